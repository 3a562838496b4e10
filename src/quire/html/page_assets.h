#pragma once
// The parts of a page that are the same for all: made from page/ and Debian's Chart.js when Quire is built
// (cmake/QuireHtmlAssets.cmake). Internal to html.

#include <string_view>

namespace quire::html {

std::string_view page_style();
std::string_view page_script();
std::string_view chart_library();

}  // namespace quire::html
