#include "quire/planning/engine_timer.h"

#include <algorithm>
#include <limits>

#include "quire/planning/served_run.h"

namespace quire::planning {
namespace {

/// Tokens of one step come at about the same time.
constexpr std::uint64_t kSameStepNs = 1'000'000;

/// The prompts are computed one or two a step, while those before decode: room for that, then the measured steps.
std::int32_t answer_tokens(const DecodeLoad& load) { return 2 * load.batch + load.steps + 4; }

double milliseconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

}  // namespace

std::int32_t tokens_of_request(const DecodeLoad& load) { return load.context + answer_tokens(load); }

Result<std::vector<double>> time_decode(engine::Engine& engine, const DecodeLoad& load) {
  const std::uint64_t preemptions = engine.stats().preemptions;
  const RequestSpec spec{.prompt_tokens = load.context, .output_tokens = answer_tokens(load)};
  QUIRE_TRY(const ServedRun run, serve(engine, std::vector<RequestSpec>(static_cast<std::size_t>(load.batch), spec)));
  if (engine.stats().preemptions != preemptions) {
    return fail("the KV cache is too small for batch ", load.batch, " at context ", load.context,
                ": requests were preempted; give more --kv-memory");
  }
  // From the first token of the request that came last, everyone decodes, until the first one ends.
  const std::vector<std::uint64_t>* last = &run.token_ns.front();
  std::uint64_t until = std::numeric_limits<std::uint64_t>::max();
  for (const std::vector<std::uint64_t>& tokens : run.token_ns) {
    if (tokens.front() > last->front()) last = &tokens;
    until = std::min(until, tokens.back());
  }
  std::vector<double> ms;
  for (std::size_t i = 1; i < last->size() && ms.size() < static_cast<std::size_t>(load.steps); ++i) {
    if ((*last)[i] > until + kSameStepNs) break;
    ms.push_back(milliseconds((*last)[i] - (*last)[i - 1]));
  }
  if (ms.empty()) return fail("no step had all ", load.batch, " requests decoding; give more --steps");
  return ms;
}

Result<double> time_prefill(engine::Engine& engine, std::int32_t tokens, std::uint64_t number) {
  const RequestSpec spec{.prompt_tokens = tokens, .prefix_block_tokens = tokens, .prefix_blocks = {number}};
  QUIRE_TRY(const ServedRun run, serve(engine, {spec}));
  return milliseconds(run.token_ns.front().front());
}

}  // namespace quire::planning
