// Fuzzes the reader of run events and the page made of them: any text is read or refused, and what was read becomes a
// page, or is refused with a reason, in memory that the text's length bounds.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quire/html/run_charts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto run = quire::html::read_events({reinterpret_cast<const char*>(data), size});
  if (!run.ok()) return 0;
  const auto html = quire::html::render(quire::html::run_page("fuzzed", *run));
  if (html.ok() ? html->find("</html>") == std::string::npos : html.error().message.empty()) __builtin_trap();
  return 0;
}
