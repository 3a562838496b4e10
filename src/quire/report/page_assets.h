#pragma once
// The parts of a page that are the same for all: made from page/ and Debian's Chart.js when Quire is built
// (cmake/QuirePageAssets.cmake). Internal to report.

#include <string_view>

namespace quire::report {

std::string_view page_style();
std::string_view page_script();
std::string_view chart_library();

}  // namespace quire::report
