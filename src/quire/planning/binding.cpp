#include "quire/planning/binding.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/planning/cost_parts.h"

namespace quire::planning {
namespace {

std::string percent(double share) { return cat(static_cast<int>(share * 100 + 0.5), " %"); }

std::string tenths(double number) {
  const auto scaled = static_cast<std::int64_t>(number * 10 + 0.5);
  return cat(scaled / 10, ".", scaled % 10);
}

}  // namespace

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::kv_memory:
      return "KV memory";
    case Cause::prefill_compute:
      return "prefill compute";
    case Cause::decode_bandwidth:
      return "decode bandwidth";
    case Cause::batch_cap:
      return "batch cap";
    case Cause::queue:
      return "queue";
  }
  QUIRE_CHECK(false, "unknown cause");
}

std::string_view relief_words(Cause cause) {
  switch (cause) {
    case Cause::kv_memory:
      return "a pool twice as large";
    case Cause::prefill_compute:
      return "prompts at half the cost";
    case Cause::decode_bandwidth:
      return "decodes at half the cost";
    case Cause::batch_cap:
      return "twice as many requests at once";
    case Cause::queue:
      return "arrivals without bursts";
  }
  QUIRE_CHECK(false, "unknown cause");
}

Scenario relieved(const Scenario& scenario, Cause cause) {
  Scenario out = scenario;
  CoreOptions& core = out.core;
  switch (cause) {
    case Cause::kv_memory:
      core.num_blocks = std::min(core.num_blocks, 1 << 23) * 2;
      core.max_mappings = std::min(core.max_mappings, 1 << 29) * 2;
      break;
    case Cause::prefill_compute:
      out.cost = scaled_cost(scenario.cost, 0.5, 1);
      break;
    case Cause::decode_bandwidth:
      out.cost = scaled_cost(scenario.cost, 1, 0.5);
      break;
    case Cause::batch_cap:
      core.max_rows *= 2;
      core.num_idle_places *= 2;
      core.max_mappings = std::min(core.max_mappings, 1 << 29) * 2;  // each place takes some
      core.token_budget = std::max(core.token_budget, core.max_rows);
      break;
    case Cause::queue:
      out.arrivals = "even";
      break;
  }
  return out;
}

Relief find_relief(const Scenario& scenario, Cause cause, const Knee& knee, double precision) {
  Relief relief{.cause = cause};
  relief.rate = find_knee_again(relieved(scenario, cause), knee, precision);
  relief.gain = relief.rate / knee.at.rate - 1;
  return relief;
}

Binding judge(std::vector<Relief> reliefs, Trial evidence) {
  QUIRE_CHECK(!reliefs.empty(), "no relief was tried");
  std::stable_sort(reliefs.begin(), reliefs.end(), [](const Relief& a, const Relief& b) { return a.gain > b.gain; });
  const double largest = reliefs.front().gain;
  const auto held = std::find_if(reliefs.begin(), reliefs.end(), [](const Relief& relief) {
    return relief.cause == Cause::kv_memory || relief.cause == Cause::batch_cap;
  });
  if (held != reliefs.end() && held->gain >= kContained * largest) std::rotate(reliefs.begin(), held, held + 1);
  Binding out{.cause = reliefs.front().cause, .reliefs = std::move(reliefs), .evidence = std::move(evidence)};
  const double first = out.reliefs.front().gain, second = out.reliefs.size() > 1 ? out.reliefs[1].gain : 0;
  out.is_clear = first >= kClearGain && first >= 1.5 * second;
  return out;
}

std::string evidence_words(Cause cause, const Trial& trial) {
  const StepShares& shares = trial.shares;
  switch (cause) {
    case Cause::kv_memory:
      return cat("in ", percent(shares.short_of_blocks), " of the time a request waited for blocks; the pool was ",
                 percent(trial.result.memory.share(trial.result.memory.written)), " full; ",
                 tenths(trial.preemptions * 100), " preemptions per 100 requests, ", percent(trial.recomputed),
                 " of all tokens computed again");
    case Cause::prefill_compute:
      return cat("prompts took ", percent(shares.prefill), " of the time; in ", percent(shares.full_budget),
                 " a step had as many tokens as it may");
    case Cause::decode_bandwidth:
      return cat("decodes took ", percent(shares.decode), " of the time; ",
                 tenths(trial.result.memory.mean(trial.result.memory.running)), " requests ran at once");
    case Cause::batch_cap:
      return cat("in ", percent(shares.short_of_rows), " of the time a request waited because as many ran as may");
    case Cause::queue:
      return cat("the machine was busy for ", percent(shares.busy), " of the time; somebody waited in ",
                 percent(shares.waiting), " of it");
  }
  QUIRE_CHECK(false, "unknown cause");
}

}  // namespace quire::planning
