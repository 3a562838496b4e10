#pragma once
// LargePageAllocator: pages of different sizes carved from common large pages, after Jenga (Zhang et al., SOSP 2025).
// For models whose kinds of layers need different bytes for a token and keep different tokens: groups of equally many
// layers (kv/layer_groups.h) do without it, this does without equal groups. In the simulator only.
//
// A kind of layer has pages of page_tokens tokens, of its own size. A large page is as long as the least common
// multiple of these sizes, so that it can be cut into pages of any one kind without a rest. It belongs to one kind
// while a page of it is in use, and goes back to all kinds with the last one. A sequence takes its pages from large
// pages that it has begun, then from free large ones as long as all that the step needs is there, then from what others
// have left over: so a sequence that ends gives back whole large pages.
//
//   page_bytes       of a kind, of one page
//   active pages     what later positions see (num_active): the others are given back by pass()
//   possible prefix  which lengths are a hit, by the pages that are there (longest_prefix)
//
// Invariants (validate):
//  J1  every large page is free, or belongs to one kind and has a page in use; their number is the pool's
//  J2  a page in use is named by exactly one entry of one sequence, of the kind of its large page
//  J3  a sequence names the pages of each kind that are active, and those that it has taken since the last pass()
//
// Thread-safety: none. Operations are O(pages * log(large pages)).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct PageKind {
  std::int64_t page_bytes = 0;  ///< of page_tokens tokens, all layers of the kind; >= 1
  std::int32_t window = 0;      ///< positions that a query sees; 0: all
};

class LargePageAllocator {
 public:
  /// `memory_bytes` have room for at least one large page; kinds are not empty.
  LargePageAllocator(std::int64_t memory_bytes, std::int32_t page_tokens, std::vector<PageKind> kinds);

  std::int64_t large_page_bytes() const { return large_bytes_; }
  std::int64_t num_large_pages() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t num_free_large_pages() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t used_bytes() const { return used_bytes_; }  ///< of pages in use
  /// Of large pages that belong to a kind; more than used_bytes() by what is carved and not in use.
  std::int64_t taken_bytes() const { return (num_large_pages() - num_free_large_pages()) * large_bytes_; }

  /// The sequence (a new one begins with it) has room for num_tokens, which do not fall. False: nothing has changed.
  bool try_grow(SequenceId sequence, std::int64_t num_tokens);
  /// Positions [0, num_tokens) have been computed: what no later one sees is given back.
  void pass(SequenceId sequence, std::int64_t num_tokens);
  void release(SequenceId sequence);

  /// The first page of a kind that positions from num_tokens on see.
  std::int64_t first_active(std::size_t kind, std::int64_t num_tokens) const;
  std::int64_t num_active(std::size_t kind, std::int64_t num_tokens) const;
  /// The most pages that are a prefix to begin with: present[kind][page] says what is there.
  std::int64_t longest_prefix(const std::vector<std::vector<bool>>& present) const;

  std::optional<std::string> validate() const;

 private:
  struct PageRef {
    std::int32_t large = -1;  ///< -1: given back
    std::int32_t index = 0;
  };
  struct LargePage {
    std::int32_t kind = -1;  ///< -1: free
    SequenceId begun_by;
    std::vector<bool> in_use;  ///< [pages of the kind in a large page]
    std::int64_t num_used = 0;
  };
  struct Sequence {
    std::vector<std::vector<PageRef>> tables;  ///< [num_kinds]
    std::vector<std::int64_t> first_held;      ///< [num_kinds]
  };

  std::int64_t pages_in_large(std::size_t kind) const { return large_bytes_ / kinds_[kind].page_bytes; }
  std::int64_t large_needed(std::size_t kind, std::int64_t count) const;
  PageRef take(std::size_t kind, SequenceId sequence, std::int64_t& spare);
  void give_back(PageRef page);

  const std::int32_t page_tokens_;
  const std::vector<PageKind> kinds_;
  std::int64_t large_bytes_;
  std::vector<LargePage> pages_;
  std::set<std::int32_t> free_;
  std::vector<std::set<std::pair<SequenceId, std::int32_t>>> open_;  ///< [num_kinds] with a page to give, by beginner
  std::vector<std::int64_t> num_open_;                               ///< [num_kinds] pages to give in these
  std::int64_t used_bytes_ = 0;
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace quire
