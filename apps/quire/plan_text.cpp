// A plan as text and as JSON.

#include <algorithm>
#include <cmath>

#include "plan.h"
#include "quire/base/cat.h"
#include "sim_report.h"
#include "table.h"

namespace quire::cli {
namespace {

using namespace planning;

std::string count(std::int64_t number) {
  return grouped(static_cast<std::uint64_t>(std::max<std::int64_t>(0, number)));
}

std::string mebibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return cat(grouped(tenths / 10), ".", tenths % 10);
}

std::string per_second(double rate) {
  return rate >= 100 ? fixed(rate, 0) : rate >= 10 ? fixed(rate, 1) : fixed(rate, 2);
}

std::string change_text(double change) {
  if (change == 0) return "same";
  return cat(change > 0 ? "+" : "-", fixed(100 * std::abs(change), 0), " %");
}

const MeasuredPart* find_measured(const std::vector<MeasuredPart>& measured, const std::string& name) {
  for (const MeasuredPart& part : measured)
    if (part.name == name) return &part;
  return nullptr;
}

std::string memory_text(const Plan& plan, const std::vector<MeasuredPart>& measured) {
  std::vector<std::string> head = {"part", "what it is", "MiB"};
  if (!measured.empty()) head.push_back("measured");
  Table table(head);
  const auto add = [&](std::string name, std::string what, std::uint64_t bytes, std::string found) {
    std::vector<std::string> row = {std::move(name), std::move(what), mebibytes(bytes)};
    if (!measured.empty()) row.push_back(std::move(found));
    table.add(std::move(row));
  };
  for (const MemoryPart& part : plan.fit.parts) {
    const MeasuredPart* found = find_measured(measured, part.name);
    add(part.name, part.what, part.bytes,
        found == nullptr             ? "-"
        : found->bytes == part.bytes ? "equal"
                                     : mebibytes(found->bytes));
  }
  add("in all", "", plan.fit.total_bytes(), "");
  add("left", "", plan.fit.spare_bytes(), "");
  return cat("\n1. It fits into ", mebibytes(plan.fit.memory.bytes), " MiB (", plan.fit.memory.source, ")\n",
             table.text(2));
}

std::string requests_text(const Plan& plan) {
  const AtOnce& found = plan.at_once;
  Table table({"", "requests at once"});
  table.add({"of these, all at their full length", count(found.at_full_length)});
  table.add({"in the middle of their answers", count(found.growing)});
  table.add({cat("of the whole context, ", count(found.context), " tokens"), count(found.full_context)});
  table.add({"that may run at once (--max-batch-rows)", count(found.rows)});
  const std::string longest =
      found.largest_context > found.context ? cat("; one request alone could have ", count(found.largest_context)) : "";
  return cat("\n2. Requests of ", plan.load.name, " (", plan.load.description, "): prompts of ",
             fixed(mean_prompt(plan.load), 0), " and answers of ", fixed(mean_output(plan.load), 0),
             " tokens on average\n", table.text(), "largest context of a request: ", count(found.context), " tokens",
             longest, "\n");
}

std::string limit_times(const Trial& trial, const std::vector<Limit>& limits) {
  std::string text;
  for (const Limit& limit : limits)
    text += cat(text.empty() ? "" : ", ", name_of(limit), " ",
                duration(static_cast<double>(found_ns(limit, trial.result))));
  return text;
}

std::string latency_table(const SimulationResult& found) {
  Table table({"", "p50", "p95", "p99"});
  const auto add = [&](std::string name, const Histogram& times) {
    table.add({std::move(name), duration(static_cast<double>(times.quantile(500))),
               duration(static_cast<double>(times.quantile(950))), duration(static_cast<double>(times.quantile(990)))});
  };
  add("first token (ttft)", found.ttft_ns);
  add("between tokens (itl)", found.inter_token_ns);
  add("end to end (e2e)", found.end_to_end_ns);
  return table.text();
}

std::string curve_table(const Performance& found, const std::vector<Limit>& limits) {
  std::vector<std::string> head = {"requests/s", "holds", "answer tokens/s"};
  for (const Limit& limit : limits) head.push_back(name_of(limit));
  Table table(head);
  for (const CurvePoint& point : found.curve) {
    std::vector<std::string> row = {per_second(point.rate), point.holds ? "yes" : "no",
                                    fixed(point.tokens_per_second, 0)};
    for (const std::uint64_t ns : point.limits_ns) row.push_back(duration(static_cast<double>(ns)));
    table.add(std::move(row));
  }
  return table.text(2);
}

std::string rate_text(const Plan& plan, const Performance& found) {
  const std::string limits = to_string(plan.limits);
  const std::string cost =
      cat("\n   cost of a step: ", found.cost, found.cost_note.empty() ? "" : "; ", found.cost_note);
  if (!found.has_knee()) {
    const std::string alone =
        found.alone.holds ? "" : cat(": alone on the machine a request has ", limit_times(found.alone, plan.limits));
    return cat("\n3. No rate holds ", limits, alone, cost, "\n");
  }
  return cat("\n3. ", per_second(found.knee.at.rate), " requests/s hold ", limits, "; above it, ",
             found.knee.above.broken.empty()             ? "nothing was tried"
             : found.knee.above.broken == "falls behind" ? "the machine falls behind"
                                                         : cat(found.knee.above.broken, " breaks"),
             cost, "\n", latency_table(found.knee.at.result), curve_table(found, plan.limits));
}

std::string binding_text(const Binding& binding) {
  Table table({"relieved", "requests/s", "change"});
  std::string evidence;
  for (const Relief& relief : binding.reliefs) {
    table.add({cat(to_string(relief.cause), ": ", relief_words(relief.cause)), per_second(relief.rate),
               change_text(relief.gain)});
    evidence += cat("   ", to_string(relief.cause), ": ", evidence_words(relief.cause, binding.evidence), "\n");
  }
  std::string verdict(to_string(binding.cause));
  if (binding.reliefs.front().gain < kClearGain) {
    verdict = "nothing of these alone";
  } else if (!binding.is_clear) {
    verdict += cat(", with ", to_string(binding.reliefs[1].cause), " close to it");
  }
  return cat("\n4. What binds: ", verdict, "\n", table.text(), "at ", per_second(binding.evidence.rate),
             " requests/s, a tenth above:\n", evidence);
}

std::string what_ifs_text(const Performance& found) {
  Table table({"change", "requests/s", "of the rate", "requests at once", "note"});
  for (const WhatIfRow& row : found.what_ifs)
    table.add({row.flag, row.rate > 0 ? per_second(row.rate) : "-", row.rate > 0 ? change_text(row.change) : "",
               row.rate > 0 ? count(row.at_once) : "", row.note});
  return cat("\n5. What to change first\n", table.text());
}

std::string replicas_text(const Replicas& found) {
  if (found.count == 0) return cat("\n6. No number of replicas holds the limits\n");
  return cat("\n6. ", per_second(found.rate), " requests/s need ", found.count,
             found.count == 1 ? " replica" : " replicas, requests spread at random", "; each at ",
             fixed(100 * found.load, 0), " % of what it can take\n");
}

json::Value limits_as_json(const Trial& trial, const std::vector<Limit>& limits) {
  json::Object out;
  for (const Limit& limit : limits)
    out.append(name_of(limit), static_cast<double>(found_ns(limit, trial.result)) * 1e-9);
  return out;
}

json::Value shares_as_json(const Trial& trial) {
  const StepShares& shares = trial.shares;
  return json::Object{{"rate", trial.rate},
                      {"busy", shares.busy},
                      {"short_of_blocks", shares.short_of_blocks},
                      {"short_of_rows", shares.short_of_rows},
                      {"full_budget", shares.full_budget},
                      {"prefill", shares.prefill},
                      {"decode", shares.decode},
                      {"waiting", shares.waiting},
                      {"pool_written", trial.result.memory.share(trial.result.memory.written)},
                      {"requests_at_once_mean", trial.result.memory.mean(trial.result.memory.running)},
                      {"preemptions_per_request", trial.preemptions},
                      {"recomputed_tokens", trial.recomputed},
                      {"cached_prompt_tokens", trial.cached}};
}

json::Value binding_as_json(const Binding& binding) {
  json::Array reliefs;
  for (const Relief& relief : binding.reliefs)
    reliefs.push_back(json::Object{{"cause", std::string(to_string(relief.cause))},
                                   {"relief", std::string(relief_words(relief.cause))},
                                   {"rate", relief.rate},
                                   {"gain", relief.gain}});
  return json::Object{{"cause", std::string(to_string(binding.cause))},
                      {"is_clear", binding.is_clear},
                      {"reliefs", std::move(reliefs)},
                      {"evidence", shares_as_json(binding.evidence)}};
}

json::Value performance_as_json(const Performance& found, const std::vector<Limit>& limits) {
  json::Object out{{"cost", found.cost},
                   {"cost_note", found.cost_note},
                   {"requests_per_run", found.num_requests},
                   {"rate", found.knee.at.rate}};
  out.append("alone", limits_as_json(found.alone, limits));
  if (found.has_knee()) {
    out.append("at_rate", limits_as_json(found.knee.at, limits));
    const SimulationResult& at = found.knee.at.result;
    out.append("latencies", json::Object{{"ttft_s", times_as_json(at.ttft_ns)},
                                         {"itl_s", times_as_json(at.inter_token_ns)},
                                         {"e2e_s", times_as_json(at.end_to_end_ns)}});
    out.append("broken_above", found.knee.above.broken);
  }
  json::Array curve;
  for (const CurvePoint& point : found.curve) {
    json::Object row{
        {"rate", point.rate}, {"holds", point.holds}, {"answer_tokens_per_second", point.tokens_per_second}};
    for (std::size_t i = 0; i < limits.size(); ++i)
      row.append(name_of(limits[i]), static_cast<double>(point.limits_ns[i]) * 1e-9);
    curve.push_back(std::move(row));
  }
  out.append("curve", std::move(curve));
  if (found.binding) out.append("binding", binding_as_json(*found.binding));
  json::Array rows;
  for (const WhatIfRow& row : found.what_ifs)
    rows.push_back(json::Object{{"setting", row.setting},
                                {"flag", row.flag},
                                {"rate", row.rate},
                                {"change", row.change},
                                {"requests_at_once", row.at_once},
                                {"note", row.note}});
  out.append("what_ifs", std::move(rows));
  if (found.replicas)
    out.append(
        "replicas",
        json::Object{{"rate", found.replicas->rate}, {"count", found.replicas->count}, {"load", found.replicas->load}});
  return out;
}

json::Value memory_as_json(const Fit& fit, const std::vector<MeasuredPart>& measured) {
  json::Array parts;
  for (const MemoryPart& part : fit.parts) {
    json::Object row{{"name", part.name}, {"bytes", part.bytes}, {"what", part.what}};
    if (const MeasuredPart* found = find_measured(measured, part.name)) row.append("measured_bytes", found->bytes);
    parts.push_back(std::move(row));
  }
  return json::Object{{"bytes", fit.memory.bytes},
                      {"source", fit.memory.source},
                      {"parts", std::move(parts)},
                      {"total_bytes", fit.total_bytes()},
                      {"spare_bytes", fit.spare_bytes()}};
}

}  // namespace

std::string plan_as_text(const Plan& plan, const std::vector<MeasuredPart>& measured) {
  const engine::EngineInfo& info = plan.fit.info;
  std::string text = cat(info.model_name, ": ", info.architecture, ", ", info.quantization, ", ",
                         count(info.num_parameters / 1'000'000), " million parameters, context ",
                         count(info.model_context), "\n", memory_text(plan, measured), requests_text(plan));
  if (plan.performance) {
    const Performance& found = *plan.performance;
    text += rate_text(plan, found);
    if (found.binding) text += binding_text(*found.binding);
    if (!found.what_ifs.empty()) text += what_ifs_text(found);
    if (found.replicas) text += replicas_text(*found.replicas);
  } else {
    text += cat("\n3. to 6. ", plan.no_performance, "\n");
  }
  text += cat("\n7. ", serve_command(plan), "\n");
  for (const std::string& note : plan.notes) text += cat("\nnote: ", note, "\n");
  return text;
}

void append_plan(json::Object& out, const Plan& plan, const std::vector<MeasuredPart>& measured) {
  const engine::EngineInfo& info = plan.fit.info;
  out.append("model", json::Object{{"path", info.model_path},
                                   {"name", info.model_name},
                                   {"architecture", info.architecture},
                                   {"quantization", info.quantization},
                                   {"num_parameters", info.num_parameters},
                                   {"context", info.model_context}});
  out.append("memory", memory_as_json(plan.fit, measured));
  out.append("engine", json::Object{{"weight_bytes", info.weight_bytes},
                                    {"scratch_bytes", info.scratch_bytes},
                                    {"kv_bytes", info.kv_bytes},
                                    {"kv_store_bytes", info.kv_store_bytes},
                                    {"kv_bytes_per_token", info.kv_bytes_per_token},
                                    {"num_blocks", info.num_blocks},
                                    {"block_size", info.block_size},
                                    {"context", info.context}});
  const AtOnce& found = plan.at_once;
  out.append("requests", json::Object{{"at_full_length", found.at_full_length},
                                      {"growing", found.growing},
                                      {"full_context", found.full_context},
                                      {"rows", found.rows},
                                      {"context", found.context},
                                      {"largest_context", found.largest_context}});
  out.append("workload", json::Object{{"name", plan.load.name},
                                      {"description", plan.load.description},
                                      {"mean_prompt_tokens", mean_prompt(plan.load)},
                                      {"mean_output_tokens", mean_output(plan.load)},
                                      {"left_out", plan.load.num_left_out}});
  out.append("limits", to_string(plan.limits));
  if (plan.performance) {
    out.append("performance", performance_as_json(*plan.performance, plan.limits));
  } else {
    out.append("no_performance", plan.no_performance);
  }
  out.append("notes", json::Array(plan.notes.begin(), plan.notes.end()));
  out.append("serve", serve_command(plan));
}

}  // namespace quire::cli
