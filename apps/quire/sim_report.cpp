#include "sim_report.h"

#include "table.h"

namespace quire::cli {
namespace {

constexpr double kSecond = 1e-9;

double per_second(std::uint64_t count, std::uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(count) / (static_cast<double>(ns) * kSecond);
}

json::Value memory_as_json(const WeightedMemory& memory) {
  return json::Object{{"written", memory.share(memory.written)},
                      {"reserved", memory.share(memory.reserved)},
                      {"unused", memory.share(memory.unused)},
                      {"rounding", memory.share(memory.rounding)},
                      {"free", memory.free_share()},
                      {"requests_at_once_mean", memory.mean(memory.running)},
                      {"requests_waiting_mean", memory.mean(memory.waiting)}};
}

json::Value sample_as_json(const StepSample& sample) {
  const MemoryUse& use = sample.memory;
  return json::Array{sample.begin_ns,       sample.end_ns,        sample.num_running, sample.num_waiting,
                     sample.prefill_tokens, sample.decode_tokens, use.written_slots,  use.reserved_slots,
                     use.unused_slots,      use.rounding_slots,   use.free_slots(),   use.cached_slots};
}

/// [begin_ns, end_ns, tokens] each.
json::Array spans_as_json(const std::vector<WorkSpan>& spans) {
  json::Array out;
  for (const WorkSpan& span : spans) out.push_back(json::Array{span.begin_ns, span.end_ns, span.tokens});
  return out;
}

json::Value record_as_json(const RequestRecord& record) {
  return json::Object{{"id", record.id.value},
                      {"prompt_tokens", record.prompt_tokens},
                      {"output_tokens", record.output_tokens},
                      {"arrival_ns", record.arrival_ns},
                      {"start_ns", record.start_ns},
                      {"first_token_ns", record.first_token_ns},
                      {"finish_ns", record.finish_ns},
                      {"cached_tokens", record.cached_tokens},
                      {"chunks", spans_as_json(record.chunks)},
                      {"preempted_ns", json::Array(record.preempted_ns.begin(), record.preempted_ns.end())},
                      {"restored", spans_as_json(record.restored)}};
}

using Cells = std::vector<std::string>;

template <class Cell>
Cells row(std::string name, const std::vector<SimulationResult>& all, Cell cell) {
  Cells cells = {std::move(name)};
  for (const SimulationResult& found : all) cells.push_back(cell(found));
  return cells;
}

void add_times(Table& table, const std::string& name, const std::vector<SimulationResult>& all,
               const Histogram SimulationResult::*member) {
  table.add(row(name + ", p50 / p95 / p99", all, [&](const SimulationResult& found) {
    const Histogram& ns = found.*member;
    if (ns.count() == 0) return std::string("-");
    return cat(duration(static_cast<double>(ns.quantile(500))), " / ", duration(static_cast<double>(ns.quantile(950))),
               " / ", duration(static_cast<double>(ns.quantile(990))));
  }));
}

}  // namespace

json::Value times_as_json(const Histogram& ns) {
  const auto seconds = [](std::uint64_t value) { return static_cast<double>(value) * kSecond; };
  return json::Object{{"count", ns.count()},
                      {"mean", ns.mean() * kSecond},
                      {"p50", seconds(ns.quantile(500))},
                      {"p90", seconds(ns.quantile(900))},
                      {"p95", seconds(ns.quantile(950))},
                      {"p99", seconds(ns.quantile(990))},
                      {"max", seconds(ns.max())}};
}

json::Object simulation_as_json(const SimulationResult& found) {
  json::Array samples, records;
  for (const StepSample& sample : found.samples) samples.push_back(sample_as_json(sample));
  for (const RequestRecord& record : found.records) records.push_back(record_as_json(record));
  return json::Object{{"system", found.system},
                      {"cost", found.cost},
                      {"requests", found.num_requests},
                      {"refused", found.num_refused},
                      {"first_refusal", found.first_refusal},
                      {"finished", found.num_finished},
                      {"preemptions", found.num_preemptions},
                      {"steps", found.num_steps},
                      {"prompt_tokens", found.prompt_tokens},
                      {"output_tokens", found.output_tokens},
                      {"scheduled_tokens", found.scheduled_tokens},
                      {"virtual_seconds", static_cast<double>(found.end_ns) * kSecond},
                      {"busy_seconds", static_cast<double>(found.busy_ns) * kSecond},
                      {"requests_per_second", per_second(found.num_finished, found.end_ns)},
                      {"output_tokens_per_second", per_second(found.output_tokens, found.end_ns)},
                      {"requests_at_once_max", found.max_running},
                      {"requests_waiting_max", found.max_waiting},
                      {"ttft_s", times_as_json(found.ttft_ns)},
                      {"inter_token_s", times_as_json(found.inter_token_ns)},
                      {"end_to_end_s", times_as_json(found.end_to_end_ns)},
                      {"queue_s", times_as_json(found.queue_ns)},
                      {"step_s", times_as_json(found.step_ns)},
                      {"normalized_latency_s_per_token", times_as_json(found.normalized_ns)},
                      {"memory", memory_as_json(found.memory)},
                      {"digest", cat(found.digest)},
                      {"sample_columns", json::Array{"begin_ns", "end_ns", "running", "waiting", "prefill_tokens",
                                                     "decode_tokens", "written_slots", "reserved_slots", "unused_slots",
                                                     "rounding_slots", "free_slots", "cached_slots"}},
                      {"samples", std::move(samples)},
                      {"records", std::move(records)}};
}

std::string name_of(const SimulationResult& found) { return found.system.substr(0, found.system.find(':')); }

std::string simulations_as_text(const std::vector<SimulationResult>& all) {
  using Found = const SimulationResult&;
  Table table(row("", all, name_of));
  table.add(row("requests finished / refused", all,
                [](Found found) { return cat(grouped(found.num_finished), " / ", grouped(found.num_refused)); }));
  add_times(table, "time to first token", all, &SimulationResult::ttft_ns);
  add_times(table, "between tokens", all, &SimulationResult::inter_token_ns);
  add_times(table, "end to end", all, &SimulationResult::end_to_end_ns);
  add_times(table, "in the queue", all, &SimulationResult::queue_ns);
  table.add(row("normalised latency, mean", all,
                [](Found found) { return fixed(found.normalized_latency_s(), 4) + " s/token"; }));
  table.add(row("requests a second", all,
                [](Found found) { return fixed(per_second(found.num_finished, found.end_ns), 3); }));
  table.add(row("output tokens a second", all,
                [](Found found) { return fixed(per_second(found.output_tokens, found.end_ns), 1); }));
  table.add(row("at once, mean / max", all, [](Found found) {
    return cat(fixed(found.memory.mean(found.memory.running), 2), " / ", found.max_running);
  }));
  table.add(row("waiting, mean / max", all, [](Found found) {
    return cat(fixed(found.memory.mean(found.memory.waiting), 2), " / ", found.max_waiting);
  }));
  table.add(
      row("KV memory: written", all, [](Found found) { return percent(found.memory.share(found.memory.written)); }));
  table.add(row("  reserved", all, [](Found found) { return percent(found.memory.share(found.memory.reserved)); }));
  table.add(row("  never used", all, [](Found found) { return percent(found.memory.share(found.memory.unused)); }));
  table.add(row("  rounding", all, [](Found found) { return percent(found.memory.share(found.memory.rounding)); }));
  table.add(row("  free", all, [](Found found) { return percent(found.memory.free_share()); }));
  table.add(row("preemptions", all, [](Found found) { return grouped(found.num_preemptions); }));
  table.add(row("steps", all, [](Found found) { return grouped(found.num_steps); }));
  table.add(row("tokens scheduled", all, [](Found found) { return grouped(found.scheduled_tokens); }));
  table.add(row("virtual time", all, [](Found found) { return duration(static_cast<double>(found.end_ns)); }));
  std::string out = table.text();
  for (Found found : all)
    if (found.num_refused > 0)
      out += cat(name_of(found), " refused ", grouped(found.num_refused), " of ", grouped(found.num_requests),
                 "; the first is ", found.first_refusal, "\n");
  return out;
}

}  // namespace quire::cli
