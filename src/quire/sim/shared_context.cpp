#include "quire/sim/shared_context.h"

#include <algorithm>

namespace quire {
namespace {

class Search {
 public:
  explicit Search(std::int64_t block_size) : block_size_(block_size) {}

  /// Rows that have all tiles before this one in common.
  void divide(std::span<DecodeContext> rows, std::int64_t tile) {
    const auto end = std::partition(rows.begin(), rows.end(), [tile](const DecodeContext& row) {
      return row.positions >= (tile + 1) * SharedContext::kTileTokens;
    });
    rows = rows.first(static_cast<std::size_t>(end - rows.begin()));
    const auto is_less = [&](const DecodeContext& a, const DecodeContext& b) {
      return std::ranges::lexicographical_compare(entries(a, tile), entries(b, tile));
    };
    std::sort(rows.begin(), rows.end(), is_less);
    while (rows.size() > 1) {
      const auto other =
          std::find_if(rows.begin(), rows.end(), [&](const DecodeContext& row) { return is_less(rows.front(), row); });
      const auto count = static_cast<std::size_t>(other - rows.begin());
      if (count > 1) {
        add(static_cast<std::int64_t>(count));
        divide(rows.first(count), tile + 1);
      }
      rows = rows.subspan(count);
    }
  }

  const SharedContext& found() const { return found_; }

 private:
  std::span<const BlockId> entries(const DecodeContext& row, std::int64_t tile) const {
    const std::int64_t first = tile * SharedContext::kTileTokens / block_size_;
    const std::int64_t count = std::max<std::int64_t>(1, SharedContext::kTileTokens / block_size_);
    return row.table.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }

  void add(std::int64_t num_rows) {
    found_.positions += num_rows * SharedContext::kTileTokens;
    const std::int64_t walks = (num_rows + SharedContext::kRowsPerWalk - 1) / SharedContext::kRowsPerWalk;
    found_.walked += walks * SharedContext::kTileTokens;
  }

  const std::int64_t block_size_;
  SharedContext found_;
};

}  // namespace

SharedContext find_shared_context(std::span<const DecodeContext> rows, std::int64_t block_size) {
  std::vector<DecodeContext> sorted(rows.begin(), rows.end());
  Search search(block_size);
  search.divide(sorted, 0);
  return search.found();
}

}  // namespace quire
