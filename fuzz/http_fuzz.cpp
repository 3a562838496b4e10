// Fuzzes the HTTP parser: any bytes are a request, refused, or cut; and the pieces in which they come change nothing.
// The first byte is the size of the pieces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/check.h"
#include "quire/server/http_parser.h"

namespace {

using quire::server::HttpParser;
using quire::server::HttpRequest;

struct Outcome {
  HttpParser::State state;
  HttpRequest request;
  std::string rest;
};

Outcome parse(std::string_view bytes, std::size_t piece) {
  HttpParser parser({.max_url_bytes = 256, .max_head_bytes = 1024, .max_header_fields = 8, .max_body_bytes = 1024});
  std::string buffer;
  while (!bytes.empty() && parser.state() != HttpParser::State::complete &&
         parser.state() != HttpParser::State::failed) {
    buffer += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    const std::size_t consumed = parser.parse(buffer);
    QUIRE_CHECK(consumed <= buffer.size());
    buffer.erase(0, consumed);
  }
  Outcome outcome{.state = parser.state()};
  if (outcome.state == HttpParser::State::complete) outcome.request = parser.take_request();
  if (outcome.state == HttpParser::State::failed) QUIRE_CHECK(parser.error_status() >= 400);
  outcome.rest = buffer.append(bytes);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = parse(bytes, SIZE_MAX);
  const Outcome cut = parse(bytes, data[0] % 16 + 1);
  const bool whole_done = whole.state == HttpParser::State::complete;
  const bool cut_done = cut.state == HttpParser::State::complete;
  QUIRE_CHECK(whole_done == cut_done);
  if (whole_done) {
    QUIRE_CHECK(whole.request.method == cut.request.method && whole.request.path == cut.request.path);
    QUIRE_CHECK(whole.request.headers == cut.request.headers && whole.request.body == cut.request.body);
    QUIRE_CHECK(whole.rest == cut.rest);
  }
  return 0;
}
