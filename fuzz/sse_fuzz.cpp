// Bytes that a server may send: events are the same however they are cut, and reading them never fails in another way.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/check.h"
#include "quire/loadgen/sse_parser.h"
#include "quire/loadgen/stream_event.h"

using namespace quire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> whole, bytewise;
  loadgen::SseParser one, many;
  one.feed(text, [&](std::string_view event) { whole.emplace_back(event); });
  for (char c : text) many.feed(std::string_view(&c, 1), [&](std::string_view event) { bytewise.emplace_back(event); });
  QUIRE_CHECK(whole == bytewise);
  for (const auto& event : whole) (void)loadgen::read_stream_event(event);
  (void)loadgen::error_message(text);
  return 0;
}
