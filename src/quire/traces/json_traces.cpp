#include "quire/traces/json_traces.h"

#include <algorithm>

#include "quire/base/checked.h"
#include "quire/json/json.h"

namespace quire {
namespace {

constexpr std::int32_t kMooncakeBlock = 512;
constexpr std::string_view kArrivalS = "arrival_s", kArrivalMs = "arrival_ms";

std::string shown(const json::Value& value) {
  std::string text = json::dump(value);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return text;
}

/// The member as a length; an error if it is missing.
Result<std::int32_t> length_of(const TracePlace& place, const json::Value& object) {
  const json::Value* value = object.find(place.column);
  if (!value) return trace_error(place, "is missing");
  const auto number = value->if_int();
  if (!number || *number < 1 || *number > kMaxLength)
    return trace_error(place, "found ", shown(*value), ", wanted a whole number from 1 to ", kMaxLength);
  return static_cast<std::int32_t>(*number);
}

/// The member as a time in units of unit_ns.
Result<std::uint64_t> time_of(const TracePlace& place, const json::Value& object, double unit_ns) {
  const json::Value* value = object.find(place.column);
  if (!value) return trace_error(place, "is missing");
  const auto number = value->if_number();
  if (!number || !(*number >= 0) || *number * unit_ns > 1e18)
    return trace_error(place, "found ", shown(*value), ", wanted a time from 0 to 1000000000 s");
  return static_cast<std::uint64_t>(*number * unit_ns + 0.5);
}

/// The member hash_ids: names of blocks, at most as many as the prompt has.
Result<void> read_names(const TracePlace& place, const json::Value& object, RequestSpec& request) {
  const json::Value* value = object.find(place.column);
  if (!value) return trace_error(place, "is missing");
  const json::Array* names = value->if_array();
  if (!names) return trace_error(place, "found ", shown(*value), ", wanted an array");
  const std::int64_t num_blocks = ceil_div(request.prompt_tokens, request.prefix_block_tokens);
  if (static_cast<std::int64_t>(names->size()) > num_blocks)
    return trace_error(place, "found ", names->size(), " names, wanted at most ", num_blocks, " for ",
                       request.prompt_tokens, " tokens");
  for (const json::Value& name : *names) {
    const auto number = name.if_int();
    if (!number || *number < 0) return trace_error(place, "found ", shown(name), ", wanted whole numbers from 0");
    request.prefix_blocks.push_back(static_cast<std::uint64_t>(*number));
  }
  return {};
}

Result<RequestSpec> read_mooncake(std::string_view file, std::uint64_t row, const json::Value& object) {
  RequestSpec request;
  QUIRE_TRY(request.arrival_ns, time_of({file, row, "timestamp"}, object, 1e6));
  QUIRE_TRY(request.prompt_tokens, length_of({file, row, "input_length"}, object));
  QUIRE_TRY(request.output_tokens, length_of({file, row, "output_length"}, object));
  request.prefix_block_tokens = kMooncakeBlock;
  QUIRE_TRY_VOID(read_names({file, row, "hash_ids"}, object, request));
  return request;
}

/// `arrival`: the member that has the times; empty: there is none.
Result<RequestSpec> read_plain(std::string_view file, std::uint64_t row, const json::Value& object,
                               std::string_view arrival) {
  RequestSpec request;
  if (!arrival.empty()) {
    QUIRE_TRY(request.arrival_ns, time_of({file, row, arrival}, object, arrival == kArrivalMs ? 1e6 : 1e9));
  }
  for (const std::string_view other : {kArrivalS, kArrivalMs})
    if (other != arrival && object.find(other))
      return trace_error({file, row, other}, arrival.empty()
                                                 ? cat("is there, but not in row 1; wanted it in all rows, or in none")
                                                 : cat("means the same as column ", arrival, ", wanted one of them"));
  QUIRE_TRY(request.prompt_tokens, length_of({file, row, "prompt_tokens"}, object));
  QUIRE_TRY(request.output_tokens, length_of({file, row, "output_tokens"}, object));
  if (object.find("session")) {
    QUIRE_TRY(const std::int32_t session, length_of({file, row, "session"}, object));
    request.session = static_cast<std::uint64_t>(session);
  }
  return request;
}

}  // namespace

Error json_error(std::string_view file, std::uint64_t row, std::string_view message) {
  constexpr std::string_view kPlace = "JSON: byte ";  // a number from 0 and a colon follow
  std::uint64_t byte = 0;
  if (message.starts_with(kPlace)) {
    message.remove_prefix(kPlace.size());
    for (; !message.empty() && message[0] >= '0' && message[0] <= '9'; message.remove_prefix(1))
      byte = byte * 10 + static_cast<std::uint64_t>(message[0] - '0');
    if (message.starts_with(": ")) message.remove_prefix(2);
  }
  return trace_error({file, row, cat(byte + 1)}, message, ", wanted JSON");
}

Result<Trace> read_jsonl_trace(std::string_view file, std::string_view text) {
  Trace trace;
  TraceLines lines(file, text, trace.notes);
  std::string_view line, arrival;
  while (lines.next(line)) {
    if (line.empty()) return trace_error({file, lines.row(), "1"}, "the line is empty, wanted an object");
    auto object = json::parse(line);
    if (!object.ok()) return json_error(file, lines.row(), object.error().message);
    if (!object->is_object())
      return trace_error({file, lines.row(), "1"}, "found ", json::kind_name(object->kind()), ", wanted an object");
    if (trace.requests.empty()) {
      trace.format = object->find("hash_ids") ? "mooncake" : "jsonl";
      arrival = object->find("hash_ids")   ? "timestamp"
                : object->find(kArrivalS)  ? kArrivalS
                : object->find(kArrivalMs) ? kArrivalMs
                                           : std::string_view();
      trace.has_arrivals = !arrival.empty();
    }
    const bool is_mooncake = trace.format == "mooncake";
    QUIRE_TRY(auto request, is_mooncake ? read_mooncake(file, lines.row(), *object)
                                        : read_plain(file, lines.row(), *object, arrival));
    if (!trace.requests.empty() && request.arrival_ns < trace.requests.back().arrival_ns)
      return trace_error({file, lines.row(), arrival},
                         "is earlier than the row before, wanted rows in the order of arrival");
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) return trace_error({file, 1, "1"}, "the file is empty, wanted a JSON object a line");
  return trace;
}

Result<void> read_agent_session(std::string_view file, std::string_view text, std::uint64_t session, Trace& trace) {
  auto object = json::parse(text);
  if (!object.ok()) return json_error(file, 1, object.error().message);
  QUIRE_TRY(const std::int32_t block_tokens, length_of({file, 1, "block_size"}, *object));
  const json::Value* list = object->find("requests");
  if (!list || !list->is_array()) return trace_error({file, 1, "requests"}, "is missing, wanted an array");
  std::uint64_t row = 0, last_ns = 0;
  for (const json::Value& item : list->as_array()) {
    ++row;
    RequestSpec request;
    request.session = session;
    QUIRE_TRY(request.arrival_ns, time_of({file, row, "t"}, item, 1e9));
    QUIRE_TRY(request.prompt_tokens, length_of({file, row, "in"}, item));
    QUIRE_TRY(request.output_tokens, length_of({file, row, "out"}, item));
    request.prefix_block_tokens = block_tokens;
    QUIRE_TRY_VOID(read_names({file, row, "hash_ids"}, item, request));
    if (request.arrival_ns < last_ns)
      return trace_error({file, row, "t"}, "is earlier than the request before, wanted them in the order of arrival");
    last_ns = request.arrival_ns;
    trace.requests.push_back(std::move(request));
  }
  return {};
}

}  // namespace quire
