// Fuzzes the reader of run events and the report made of them: any text is read or refused, and what was read becomes a
// page, or is refused with a reason, in memory that the text's length bounds.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quire/report/run_charts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto run = quire::report::read_events({reinterpret_cast<const char*>(data), size});
  if (!run.ok()) return 0;
  const auto page = quire::report::render_html(quire::report::run_report("fuzzed", *run));
  if (page.ok() ? page->find("</html>") == std::string::npos : page.error().message.empty()) __builtin_trap();
  return 0;
}
