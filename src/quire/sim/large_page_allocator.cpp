#include "quire/sim/large_page_allocator.h"

#include <algorithm>
#include <numeric>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

LargePageAllocator::LargePageAllocator(std::int64_t memory_bytes, std::int32_t page_tokens, std::vector<PageKind> kinds)
    : page_tokens_(page_tokens), kinds_(std::move(kinds)), large_bytes_(1) {
  QUIRE_CHECK(!kinds_.empty() && page_tokens >= 1, kinds_.size(), " kinds");
  for (const PageKind& kind : kinds_) {
    QUIRE_CHECK(kind.page_bytes >= 1 && kind.window >= 0, kind.page_bytes, " bytes a page");
    large_bytes_ = std::lcm(large_bytes_, kind.page_bytes);
  }
  QUIRE_CHECK(memory_bytes >= large_bytes_, memory_bytes, " bytes hold no large page of ", large_bytes_);
  pages_.resize(static_cast<std::size_t>(memory_bytes / large_bytes_));
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pages_.size()); ++i) free_.insert(i);
  open_.resize(kinds_.size());
  num_open_.assign(kinds_.size(), 0);
}

std::int64_t LargePageAllocator::first_active(std::size_t kind, std::int64_t num_tokens) const {
  const std::int32_t window = kinds_[kind].window;
  return window == 0 || num_tokens + 1 <= window ? 0 : (num_tokens + 1 - window) / page_tokens_;
}

std::int64_t LargePageAllocator::num_active(std::size_t kind, std::int64_t num_tokens) const {
  return std::max<std::int64_t>(0, ceil_div(num_tokens, page_tokens_) - first_active(kind, num_tokens));
}

std::int64_t LargePageAllocator::longest_prefix(const std::vector<std::vector<bool>>& present) const {
  std::int64_t longest = 0;
  for (std::int64_t count = 1; count <= static_cast<std::int64_t>(present.front().size()); ++count) {
    bool is_hit = true;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      for (std::int64_t i = first_active(kind, count * page_tokens_); i < count; ++i)
        is_hit = is_hit && present[kind][static_cast<std::size_t>(i)];
    if (is_hit) longest = count;
  }
  return longest;
}

/// Large pages that `count` more pages of the kind take, once what is left over in its own is used up.
std::int64_t LargePageAllocator::large_needed(std::size_t kind, std::int64_t count) const {
  return ceil_div(std::max<std::int64_t>(0, count - num_open_[kind]), pages_in_large(kind));
}

bool LargePageAllocator::try_grow(SequenceId sequence, std::int64_t num_tokens) {
  const auto found = sequences_.find(sequence);
  const std::int64_t num_pages = ceil_div(num_tokens, page_tokens_);
  const auto num_before =
      found == sequences_.end() ? 0 : static_cast<std::int64_t>(found->second.tables.front().size());
  QUIRE_CHECK(num_pages >= num_before, "sequence ", sequence, " has ", num_before, " pages, asked for ", num_pages);
  std::int64_t needed = 0;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) needed += large_needed(kind, num_pages - num_before);
  std::int64_t spare = num_free_large_pages() - needed;
  if (spare < 0) return false;
  Sequence& entry = sequences_[sequence];
  entry.tables.resize(kinds_.size());
  entry.first_held.resize(kinds_.size(), 0);
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
    while (static_cast<std::int64_t>(entry.tables[kind].size()) < num_pages)
      entry.tables[kind].push_back(take(kind, sequence, spare));
  return true;
}

/// From a large page that the sequence has begun, a free one if there is one to spare, what others have left over, or a
/// free one that was counted for this.
LargePageAllocator::PageRef LargePageAllocator::take(std::size_t kind, SequenceId sequence, std::int64_t& spare) {
  auto& open = open_[kind];
  auto chosen = open.lower_bound({sequence, -1});
  if (chosen == open.end() || chosen->first != sequence) {
    const bool others_have = !open.empty();
    if (others_have && spare <= 0) {
      chosen = open.begin();
    } else {
      if (others_have) --spare;
      QUIRE_CHECK(!free_.empty(), "a large page was promised that is not there");
      const std::int32_t large = *free_.begin();
      free_.erase(free_.begin());
      pages_[static_cast<std::size_t>(large)] = {static_cast<std::int32_t>(kind), sequence,
                                                 std::vector<bool>(static_cast<std::size_t>(pages_in_large(kind))), 0};
      num_open_[kind] += pages_in_large(kind);
      chosen = open.insert({sequence, large}).first;
    }
  }
  const std::int32_t large = chosen->second;
  LargePage& page = pages_[static_cast<std::size_t>(large)];
  const auto place = std::find(page.in_use.begin(), page.in_use.end(), false);
  *place = true;
  ++page.num_used;
  --num_open_[kind];
  used_bytes_ += kinds_[kind].page_bytes;
  if (page.num_used == pages_in_large(kind)) open.erase(chosen);
  return {large, static_cast<std::int32_t>(place - page.in_use.begin())};
}

void LargePageAllocator::give_back(PageRef ref) {
  LargePage& page = pages_[static_cast<std::size_t>(ref.large)];
  const auto kind = static_cast<std::size_t>(page.kind);
  page.in_use[static_cast<std::size_t>(ref.index)] = false;
  --page.num_used;
  ++num_open_[kind];
  used_bytes_ -= kinds_[kind].page_bytes;
  open_[kind].insert({page.begun_by, ref.large});
  if (page.num_used > 0) return;
  open_[kind].erase({page.begun_by, ref.large});
  num_open_[kind] -= pages_in_large(kind);
  page = LargePage{};
  free_.insert(ref.large);
}

void LargePageAllocator::pass(SequenceId sequence, std::int64_t num_tokens) {
  Sequence& entry = sequences_.at(sequence);
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    std::int64_t& first_held = entry.first_held[kind];
    const auto end =
        std::min<std::int64_t>(first_active(kind, num_tokens), static_cast<std::int64_t>(entry.tables[kind].size()));
    for (; first_held < end; ++first_held)
      give_back(std::exchange(entry.tables[kind][static_cast<std::size_t>(first_held)], PageRef{}));
  }
}

void LargePageAllocator::release(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  QUIRE_CHECK(found != sequences_.end(), "no sequence ", sequence);
  for (const std::vector<PageRef>& table : found->second.tables)
    for (PageRef page : table)
      if (page.large >= 0) give_back(page);
  sequences_.erase(found);
}

std::optional<std::string> LargePageAllocator::validate() const {
  std::set<std::pair<std::int32_t, std::int32_t>> named;
  std::int64_t used_bytes = 0;
  for (const auto& [id, entry] : sequences_) {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      for (std::size_t i = 0; i < entry.tables[kind].size(); ++i) {
        const PageRef page = entry.tables[kind][i];
        if ((page.large < 0) != (static_cast<std::int64_t>(i) < entry.first_held[kind]))
          return cat("J3: sequence ", id, " has or lacks page ", i, " of kind ", kind);
        if (page.large < 0) continue;
        const LargePage& large = pages_[static_cast<std::size_t>(page.large)];
        if (large.kind != static_cast<std::int32_t>(kind) || !large.in_use[static_cast<std::size_t>(page.index)] ||
            !named.emplace(page.large, page.index).second)
          return cat("J2: page ", page.index, " of large page ", page.large, " is not sequence ", id, "'s alone");
        used_bytes += kinds_[kind].page_bytes;
      }
    }
  }
  std::int64_t num_used = 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    const bool is_free = free_.contains(static_cast<std::int32_t>(i));
    if (is_free != (pages_[i].kind < 0) || is_free != (pages_[i].num_used == 0))
      return cat("J1: large page ", i, " has ", pages_[i].num_used, " pages in use");
    num_used += pages_[i].num_used;
  }
  if (num_used != static_cast<std::int64_t>(named.size()) || used_bytes != used_bytes_)
    return cat("J2: ", num_used, " pages in use, ", named.size(), " named");
  return std::nullopt;
}

}  // namespace quire
