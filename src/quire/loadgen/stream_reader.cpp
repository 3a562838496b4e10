#include "quire/loadgen/stream_reader.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/loadgen/stream_event.h"

namespace quire::loadgen {
namespace {

constexpr std::size_t kMaxErrorBody = 4096;

}  // namespace

void StreamReader::fail_with(std::string kind, std::string message) {
  if (!sample_.completed()) return;  // the first reason counts
  sample_.failure = std::move(kind);
  sample_.failure_message = std::move(message);
}

void StreamReader::on_body(std::uint64_t now_ns, std::string_view bytes) {
  if (status_ != 200) {
    error_body_ += bytes.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, error_body_.size()));
    return;
  }
  const bool readable = parser_.feed(bytes, [&](std::string_view data) { on_event(now_ns, data); });
  if (!readable) fail_with("bad answer", cat("an event of more than ", SseParser::kMaxBytes, " bytes"));
}

void StreamReader::on_event(std::uint64_t now_ns, std::string_view data) {
  const auto event = read_stream_event(data);
  if (!event.ok()) return fail_with("bad answer", event.error().message);
  if (event->error) fail_with("server error", *event->error);
  if (event->completion_tokens) sample_.output_tokens = *event->completion_tokens;
  finished_ |= event->finished || event->done;
  if (event->has_text) {
    if (num_texts_++ == 0) {
      sample_.first_ns = now_ns;
    } else {
      sample_.gaps_ns.push_back(now_ns - sample_.last_ns);
    }
    sample_.last_ns = now_ns;
  }
  if (event->finished && sample_.first_ns == 0) sample_.first_ns = sample_.last_ns = now_ns;
}

void StreamReader::on_end(std::uint64_t now_ns, CallEnd end, const std::string& message) {
  sample_.end_ns = now_ns;
  if (end == CallEnd::no_connection) return fail_with("no connection", message);
  if (end == CallEnd::timed_out) return fail_with("timed out", message);
  if (end == CallEnd::bad_answer) return fail_with("bad answer", message);
  if (status_ != 0 && status_ != 200) return fail_with(cat("HTTP ", status_), error_message(error_body_));
  if (end == CallEnd::connection_lost) return fail_with("connection lost", message);
  if (!finished_ || sample_.first_ns == 0) return fail_with("cut off", "the stream ended without finish_reason");
  if (sample_.output_tokens == 0) sample_.output_tokens = num_texts_;
}

}  // namespace quire::loadgen
