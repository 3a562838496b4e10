#pragma once
// TextTable: rows of cells as lines of equal columns, for people. The first column is flush left, the others right.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace quire {

class TextTable {
 public:
  /// Rows may have different numbers of cells. ASCII only: widths are counted in bytes.
  void add_row(std::vector<std::string> cells) {
    if (widths_.size() < cells.size()) widths_.resize(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
    rows_.push_back(std::move(cells));
  }

  std::string text() const {
    std::string out;
    for (const auto& cells : rows_) {
      std::string line;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string padding(widths_[i] - cells[i].size(), ' ');
        line += i == 0 ? cells[i] + padding : "  " + padding + cells[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

}  // namespace quire
