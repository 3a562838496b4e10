#include "quire/kv/block_pool.h"

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

BlockPool::BlockPool(std::int32_t num_blocks) : num_blocks_(num_blocks), num_free_(num_blocks), first_free_{1} {
  QUIRE_CHECK(num_blocks >= 1, num_blocks);
  const auto num_ids = static_cast<std::uint32_t>(num_blocks) + 1;
  ref_count_.assign(num_ids, 0);
  next_free_.resize(num_ids);
  for (std::uint32_t id = 1; id < num_ids; ++id) next_free_[id] = id + 1 < num_ids ? BlockId{id + 1} : kNullBlock;
}

BlockId BlockPool::allocate() {
  const BlockId block = first_free_;
  if (block == kNullBlock) return kNullBlock;
  QUIRE_CHECK(ref_count_[block.value] == 0, "free block ", block, " has references");
  first_free_ = next_free_[block.value];
  ref_count_[block.value] = 1;
  --num_free_;
  return block;
}

void BlockPool::share(BlockId block) {
  QUIRE_CHECK(ref_count(block) > 0, "block ", block, " is not in use");
  ++ref_count_[block.value];
}

ReleaseOutcome BlockPool::release(BlockId block) {
  if (ref_count(block) == 0) return ReleaseOutcome::not_held;
  if (--ref_count_[block.value] > 0) return ReleaseOutcome::still_held;
  next_free_[block.value] = first_free_;
  first_free_ = block;
  ++num_free_;
  return ReleaseOutcome::freed;
}

std::int32_t BlockPool::ref_count(BlockId block) const { return contains(block) ? ref_count_[block.value] : 0; }

std::optional<std::string> BlockPool::validate() const {
  if (ref_count_[0] != 0) return cat("P3: the null block has ", ref_count_[0], " references");
  std::vector<bool> is_free(ref_count_.size(), false);
  std::int32_t num_listed = 0;
  for (BlockId block = first_free_; block != kNullBlock; block = next_free_[block.value]) {
    if (!contains(block)) return cat("P2: the free list names block ", block, " of ", num_blocks_);
    if (is_free[block.value]) return cat("P2: block ", block, " is on the free list twice");
    is_free[block.value] = true;
    ++num_listed;
  }
  if (num_listed != num_free_) return cat("P2: the free list has ", num_listed, " blocks, num_free is ", num_free_);
  for (std::size_t id = 1; id < ref_count_.size(); ++id) {
    if (ref_count_[id] < 0) return cat("P1: block ", id, " has ", ref_count_[id], " references");
    if (is_free[id] != (ref_count_[id] == 0))
      return cat("P1: block ", id, " has ", ref_count_[id], " references and is ", is_free[id] ? "" : "not ", "free");
  }
  return std::nullopt;
}

}  // namespace quire
