#include <algorithm>

#include "quire/html/event_words.h"
#include "quire/html/events.h"
#include "quire/json/json.h"
#include "quire/json/reader.h"

namespace quire::html {
namespace {

using json::ObjectReader;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

Result<std::uint64_t> read_count(ObjectReader& line, std::string_view name) {
  QUIRE_TRY(const std::int64_t value, line.required_int(name, {.min = 0, .max = kMaxEventNumber}));
  return static_cast<std::uint64_t>(value);
}

Result<std::uint64_t> read_count_or_zero(ObjectReader& line, std::string_view name) {
  QUIRE_TRY(const std::optional<std::int64_t> value, line.optional_int(name, {.min = 0, .max = kMaxEventNumber}));
  return static_cast<std::uint64_t>(value.value_or(0));
}

/// Both, in order.
Result<std::pair<std::uint64_t, std::uint64_t>> read_span(ObjectReader& line, std::string_view begin_name) {
  QUIRE_TRY(const std::uint64_t begin, read_count(line, begin_name));
  QUIRE_TRY(const std::uint64_t end, read_count(line, "end_ns"));
  if (end < begin)
    return json::field_error("end_ns", cat("found ", end, ", wanted at least '", begin_name, "', ", begin));
  return std::pair(begin, end);
}

/// Seeds use all 64 bits.
Result<std::optional<std::uint64_t>> read_seed(ObjectReader& line) {
  const json::Value* value = line.optional_value("seed");
  if (value == nullptr) return std::optional<std::uint64_t>();
  if (const auto large = value->if_unsigned()) return std::optional(*large);
  QUIRE_TRY(const std::int64_t seed, json::read_int(*value, "seed", {.min = 0}));
  return std::optional(static_cast<std::uint64_t>(seed));
}

Result<RunHeader> read_header(ObjectReader& line) {
  RunHeader header;
  QUIRE_TRY(const std::int64_t format, line.required_int("format"));
  if (format != kEventFormat) return json::field_error("format", cat("found ", format, ", wanted ", kEventFormat));
  QUIRE_TRY(header.version, line.required_string("version"));
  QUIRE_TRY(header.command, line.required_string("command"));
  QUIRE_TRY(const auto name, line.optional_string("name"));
  header.name = name.value_or("");
  QUIRE_TRY(header.seed, read_seed(line));
  QUIRE_TRY(header.total_slots, read_count_or_zero(line, "total_slots"));
  QUIRE_TRY(header.block_size, read_count_or_zero(line, "block_size"));
  QUIRE_TRY(header.max_step_tokens, read_count_or_zero(line, "max_step_tokens"));
  QUIRE_TRY(const json::Object* options, line.optional_object("options"));
  if (options == nullptr) return header;
  for (const auto& [key, value] : *options) {
    const std::string* text = value.if_string();
    header.options.emplace_back(key, text != nullptr ? *text : json::dump(value));
  }
  return header;
}

Result<SlotUse> read_slots(const json::Object& object) {
  ObjectReader slots(object, "slots");
  SlotUse use;
  QUIRE_TRY(use.written, read_count_or_zero(slots, "written"));
  QUIRE_TRY(use.reserved, read_count_or_zero(slots, "reserved"));
  QUIRE_TRY(use.unused, read_count_or_zero(slots, "unused"));
  QUIRE_TRY(use.rounding, read_count_or_zero(slots, "rounding"));
  QUIRE_TRY(use.cached, read_count_or_zero(slots, "cached"));
  return use;
}

Result<StepEvent> read_step(ObjectReader& line) {
  StepEvent step;
  QUIRE_TRY(const auto span, read_span(line, "begin_ns"));
  step.begin_ns = span.first;
  step.end_ns = span.second;
  QUIRE_TRY(step.prefill_tokens, read_count_or_zero(line, "prefill_tokens"));
  QUIRE_TRY(step.decode_tokens, read_count_or_zero(line, "decode_tokens"));
  QUIRE_TRY(step.running, read_count_or_zero(line, "running"));
  QUIRE_TRY(step.waiting, read_count_or_zero(line, "waiting"));
  QUIRE_TRY(const json::Object* slots, line.optional_object("slots"));
  if (slots != nullptr) {
    QUIRE_TRY(step.slots, read_slots(*slots));
  }
  return step;
}

Result<RequestEvent> read_request_event(ObjectReader& line, RequestEventKind kind) {
  const RequestWords& words = kRequestWords[static_cast<std::size_t>(kind)];
  RequestEvent event{.kind = kind};
  QUIRE_TRY(event.request.value, read_count(line, "request"));
  if (words.has_end) {
    QUIRE_TRY(const auto span, read_span(line, "ns"));
    event.ns = span.first;
    event.end_ns = span.second;
  } else {
    QUIRE_TRY(event.ns, read_count(line, "ns"));
  }
  if (!words.tokens.empty()) {
    QUIRE_TRY(event.tokens, read_count_or_zero(line, words.tokens));
  }
  if (!words.detail.empty()) {
    QUIRE_TRY(const auto detail, line.optional_string(words.detail));
    event.detail = detail.value_or("");
  }
  return event;
}

Result<BlockRun> read_block(ObjectReader& line) {
  BlockRun run;
  QUIRE_TRY(const std::int64_t block, line.required_int("block", {.min = 0, .max = UINT32_MAX - 1}));
  run.block = static_cast<std::uint32_t>(block);
  QUIRE_TRY(const auto state, line.optional_choice("state", {"used", "shared", "cached", "reserved"}));
  if (state == "shared") run.state = BlockState::shared;
  if (state == "cached") run.state = BlockState::cached;
  if (state == "reserved") run.state = BlockState::reserved;
  QUIRE_TRY(const auto span, read_span(line, "begin_ns"));
  run.begin_ns = span.first;
  run.end_ns = span.second;
  QUIRE_TRY(run.owner, read_count_or_zero(line, "request"));
  return run;
}

/// No block lies behind the pool, if its size is known.
Result<void> check_block(const BlockRun& run, const RunHeader& header) {
  if (header.total_slots == 0 || header.block_size == 0) return {};
  const std::uint64_t num_blocks = header.total_slots / header.block_size;
  if (run.block < num_blocks) return {};
  return json::field_error("block", cat("found ", run.block, ", wanted less than the pool's ", num_blocks, " blocks"));
}

/// No more slots are in use than there are, if that is known; each count is at most 2^53.
Result<void> check_slots(const SlotUse& use, const RunHeader& header) {
  const std::uint64_t sum = use.written + use.reserved + use.unused + use.rounding + use.cached;
  if (header.total_slots == 0 || sum <= header.total_slots) return {};
  return json::field_error("slots", cat("found ", sum, " in all, wanted at most 'total_slots', ", header.total_slots));
}

Result<void> read_line(std::string_view text, RunEvents& run, bool is_first) {
  if (text.size() > kMaxLineBytes) return fail("found ", text.size(), " bytes, wanted at most ", kMaxLineBytes);
  QUIRE_TRY(const json::Value value, json::parse(text));
  if (!value.is_object()) return fail("found ", json::kind_name(value.kind()), ", wanted an object");
  ObjectReader line(value.as_object());
  QUIRE_TRY(const std::string_view event, line.required_string("event"));
  if (is_first != (event == "run")) {
    return json::field_error("event",
                             cat("found '", event, "', wanted ", is_first ? "'run' in the first line" : "'run' once"));
  }
  if (is_first) {
    QUIRE_TRY(run.header, read_header(line));
    return {};
  }
  if (event == "step") {
    QUIRE_TRY(const StepEvent step, read_step(line));
    if (!run.steps.empty() && step.begin_ns < run.steps.back().end_ns) {
      return json::field_error(
          "begin_ns",
          cat("found ", step.begin_ns, ", wanted at least the end of the step before, ", run.steps.back().end_ns));
    }
    QUIRE_TRY_VOID(check_slots(step.slots, run.header));
    run.steps.push_back(step);
    return {};
  }
  if (event == "block") {
    QUIRE_TRY(const BlockRun block, read_block(line));
    QUIRE_TRY_VOID(check_block(block, run.header));
    run.blocks.push_back(block);
    return {};
  }
  const auto words = std::find_if(kRequestWords.begin(), kRequestWords.end(),
                                  [&](const RequestWords& one) { return one.event == event; });
  if (words == kRequestWords.end()) {
    ++run.num_unknown;
    return {};
  }
  QUIRE_TRY(RequestEvent read, read_request_event(line, static_cast<RequestEventKind>(words - kRequestWords.begin())));
  run.requests.push_back(std::move(read));
  return {};
}

}  // namespace

Result<RunEvents> read_events(std::string_view text) {
  RunEvents run;
  bool is_first = true;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (const auto read = read_line(line, run, is_first); !read.ok()) {
      return fail("line ", number, ": ", read.error().message);
    }
    is_first = false;
  }
  if (is_first) return fail("found no line, wanted one with 'event': 'run' first");
  return run;
}

}  // namespace quire::html
