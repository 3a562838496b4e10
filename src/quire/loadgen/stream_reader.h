#pragma once
// StreamReader: follows one streamed answer and notes in a Sample when what came, and how it ended.

#include <cstdint>
#include <string>
#include <string_view>

#include "quire/loadgen/http_client.h"
#include "quire/loadgen/sample.h"
#include "quire/loadgen/sse_parser.h"

namespace quire::loadgen {

class StreamReader {
 public:
  explicit StreamReader(Sample sample) : sample_(std::move(sample)) {}

  void on_status(int status) { status_ = status; }
  void on_body(std::uint64_t now_ns, std::string_view bytes);
  void on_end(std::uint64_t now_ns, CallEnd end, const std::string& message);

  /// Whole once on_end() has been called.
  Sample& sample() { return sample_; }

 private:
  void on_event(std::uint64_t now_ns, std::string_view data);
  void fail_with(std::string kind, std::string message);

  Sample sample_;
  SseParser parser_;
  int status_ = 0;
  std::string error_body_;
  std::int64_t num_texts_ = 0;
  bool finished_ = false;
};

}  // namespace quire::loadgen
