#pragma once
// Text tables for terminals: columns as wide as they need to be, numbers to the right, the first column to the left.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// With a line below the head. The first `num_left` columns are aligned to the left.
  std::string text(std::size_t num_left = 1) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// 3.14 for fixed(3.14159, 2).
std::string fixed(double number, int digits);
/// 12.3 % for percent(0.123).
std::string percent(double share, int digits = 1);
/// Nanoseconds as 1.23 s, 4.56 ms, ...
std::string duration(double ns);
/// 12,345,678
std::string grouped(std::uint64_t number);

/// The words in lines of at most `width` characters, each with its line feed; nothing for no words.
std::string in_lines(std::string_view text, std::size_t width);

/// Horizontal bars, one a line: label, bar, count. The longest bar has `width` characters.
struct Bar {
  std::string label;
  std::uint64_t count;
};
std::string bars(const std::vector<Bar>& all, std::size_t width = 50);

}  // namespace quire::cli
