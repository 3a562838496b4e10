#include "table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "quire/base/cat.h"

namespace quire::cli {
namespace {

/// Columns of a text in UTF-8, each code point one wide.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table::text(std::size_t num_left) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      line += i > 0 ? "  " : "";
      line += i < num_left ? row[i] + space : space + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (&row != &rows_.front()) continue;
    std::size_t total = 2 * (widths.size() - 1);
    for (std::size_t width : widths) total += width;
    out += std::string(total, '-') + "\n";
  }
  return out;
}

std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string percent(double share, int digits) { return fixed(share * 100, digits) + " %"; }

std::string duration(double ns) {
  if (ns >= 1e9) return fixed(ns / 1e9, 2) + " s";
  if (ns >= 1e6) return fixed(ns / 1e6, 2) + " ms";
  if (ns >= 1e3) return fixed(ns / 1e3, 2) + " us";
  return fixed(ns, 0) + " ns";
}

std::string grouped(std::uint64_t number) {
  std::string digits = cat(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string in_lines(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > width) {
      end = text.rfind(' ', width);
      if (end == std::string_view::npos || end == 0) end = std::min(text.find(' ', 1), text.size());
    }
    out += cat(text.substr(0, end), "\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string bars(const std::vector<Bar>& all, std::size_t width) {
  std::uint64_t most = 1;
  std::size_t label_width = 0;
  for (const Bar& bar : all) {
    most = std::max(most, bar.count);
    label_width = std::max(label_width, width_of(bar.label));
  }
  std::string out;
  for (const Bar& bar : all) {
    const auto length = static_cast<std::size_t>((bar.count * width + most - 1) / most);
    out += cat(std::string(label_width - width_of(bar.label), ' '), bar.label, " |", std::string(length, '#'), " ",
               bar.count, "\n");
  }
  return out;
}

}  // namespace quire::cli
