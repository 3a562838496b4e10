#include "quire/html/event_words.h"
#include "quire/html/events.h"
#include "quire/json/json.h"

namespace quire::html {

void append_event(std::string& out, const RunHeader& header) {
  json::Writer w(out);
  w.begin_object().field("event", "run").field("format", kEventFormat).field("version", header.version);
  w.field("command", header.command);
  if (!header.name.empty()) w.field("name", header.name);
  if (header.seed) w.field("seed", *header.seed);
  w.field("total_slots", header.total_slots).field("block_size", header.block_size);
  w.field("max_step_tokens", header.max_step_tokens).key("options").begin_object();
  for (const auto& [name, value] : header.options) w.field(name, value);
  w.end_object().end_object();
  out += '\n';
}

void append_event(std::string& out, const StepEvent& step) {
  json::Writer w(out);
  w.begin_object().field("event", "step").field("begin_ns", step.begin_ns).field("end_ns", step.end_ns);
  w.field("prefill_tokens", step.prefill_tokens).field("decode_tokens", step.decode_tokens);
  w.field("running", step.running).field("waiting", step.waiting).key("slots").begin_object();
  w.field("written", step.slots.written).field("reserved", step.slots.reserved).field("unused", step.slots.unused);
  w.field("rounding", step.slots.rounding).field("cached", step.slots.cached).end_object().end_object();
  out += '\n';
}

void append_event(std::string& out, const RequestEvent& event) {
  json::Writer w(out);
  w.begin_object().field("event", kRequestWords[static_cast<std::size_t>(event.kind)].event);
  w.field("request", event.request.value).field("ns", event.ns);
  const RequestWords& words = kRequestWords[static_cast<std::size_t>(event.kind)];
  if (words.has_end) w.field("end_ns", event.end_ns);
  if (!words.tokens.empty()) w.field(words.tokens, event.tokens);
  if (!words.detail.empty()) w.field(words.detail, event.detail);
  w.end_object();
  out += '\n';
}

void append_event(std::string& out, const BlockRun& run) {
  json::Writer w(out);
  w.begin_object().field("event", "block").field("block", run.block).field("state", to_string(run.state));
  w.field("begin_ns", run.begin_ns).field("end_ns", run.end_ns);
  if (run.owner > 0) w.field("request", run.owner);
  w.end_object();
  out += '\n';
}

}  // namespace quire::html
