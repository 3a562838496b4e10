#include "quire/loadgen/load_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quire/json/json.h"
#include "quire/loadgen/stream_event.h"
#include "quire/loadgen/stream_reader.h"

namespace quire::loadgen {
namespace {

class Run {
 public:
  Run(HttpClient& client, RequestSource& source, const RequestWriter& writer, const LoadOptions& options)
      : client_(client), source_(source), writer_(writer), options_(options) {}

  LoadResult run() {
    if (options_.num_warmup > 0) {
      counting_ = false;
      left_ = options_.num_warmup;
      run_closed();
    }
    counting_ = true;
    left_ = options_.num_requests;
    result_.begin_ns = result_.end_ns = client_.now_ns();
    if (options_.loop == Loop::closed) {
      run_closed();
    } else {
      schedule_next();
      client_.run();
    }
    for (const Sample& sample : result_.samples) result_.end_ns = std::max(result_.end_ns, sample.end_ns);
    return std::move(result_);
  }

 private:
  bool is_over(std::uint64_t now_ns) const {
    return counting_ && options_.duration_ns > 0 && now_ns - result_.begin_ns >= options_.duration_ns;
  }

  /// The next request; nothing once the limit or the end of the source is reached.
  std::optional<RequestSpec> take() {
    if (left_ == 0) return std::nullopt;
    auto spec = source_.next();
    if (!spec) return left_ = 0, std::nullopt;
    --left_;
    if (!counting_) warmup_arrival_ns_ = spec->arrival_ns;
    return spec;
  }

  void run_closed() {
    for (std::uint64_t i = 0; i < options_.num_clients && left_ > 0; ++i) send_next();
    client_.run();
  }

  void send_next() {
    const std::uint64_t now = client_.now_ns();
    if (is_over(now)) return;
    if (auto spec = take()) send(*spec, now);
  }

  /// One timer at a time, so that a source of a million requests is not read ahead.
  void schedule_next() {
    auto spec = take();
    if (!spec) return;
    const std::uint64_t due = result_.begin_ns + (spec->arrival_ns - warmup_arrival_ns_);
    if (is_over(due)) return;
    client_.at(due, [this, due, request = *std::move(spec)] {
      send(request, due);
      schedule_next();
    });
  }

  void send(const RequestSpec& spec, std::uint64_t due_ns) {
    const std::uint64_t number = num_sent_++;
    Sample sample;
    sample.number = number;
    sample.prompt_tokens = writer_.prompt_tokens(spec);
    sample.wanted_tokens = spec.output_tokens;
    sample.due_ns = due_ns;
    HttpCall call{.path = writer_.path(), .body = writer_.body(spec, number)};
    sample.sent_ns = client_.now_ns();
    auto reader = std::make_shared<StreamReader>(std::move(sample));
    client_.call(std::move(call),
                 {.on_status = [reader](int status) { reader->on_status(status); },
                  .on_body = [this, reader](std::string_view bytes) { reader->on_body(client_.now_ns(), bytes); },
                  .on_end =
                      [this, reader](CallEnd end, const std::string& message) {
                        reader->on_end(client_.now_ns(), end, message);
                        note_end(*reader);
                      }});
  }

  void note_end(StreamReader& reader) {
    if (counting_) {
      result_.samples.push_back(std::move(reader.sample()));
      if (options_.progress) options_.progress({result_.samples.size(), client_.now_ns() - result_.begin_ns});
    }
    if (!counting_ || options_.loop == Loop::closed) send_next();
  }

  HttpClient& client_;
  RequestSource& source_;
  const RequestWriter& writer_;
  const LoadOptions& options_;
  LoadResult result_;
  bool counting_ = false;
  std::uint64_t left_ = 0, num_sent_ = 0;
  std::uint64_t warmup_arrival_ns_ = 0;  ///< of the last request of the warm-up: the counted ones follow it
};

}  // namespace

LoadResult run_load(HttpClient& client, RequestSource& source, const RequestWriter& writer,
                    const LoadOptions& options) {
  return Run(client, source, writer, options).run();
}

Result<std::string> ask_model(HttpClient& client) {
  int status = 0;
  std::string body;
  std::optional<Error> error;
  client.call({.method = "GET", .path = "/v1/models"}, {.on_status = [&](int found) { status = found; },
                                                        .on_body = [&](std::string_view bytes) { body += bytes; },
                                                        .on_end =
                                                            [&](CallEnd end, const std::string& message) {
                                                              if (end != CallEnd::complete)
                                                                error = fail("the server does not answer: ", message);
                                                            }});
  client.run();
  if (error) return *error;
  if (status != 200) return fail("GET /v1/models: found HTTP ", status, ": ", error_message(body));
  QUIRE_TRY(const json::Value value, json::parse(body));
  const json::Value* data = value.find("data");
  if (data != nullptr && data->is_array() && !data->as_array().empty()) {
    const json::Value* id = data->as_array().front().find("id");
    if (id != nullptr && id->is_string()) return id->as_string();
  }
  return fail("GET /v1/models: found no model in ", error_message(body), "; name one with --model");
}

}  // namespace quire::loadgen
