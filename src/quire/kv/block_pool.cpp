#include "quire/kv/block_pool.h"

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

BlockPool::BlockPool(std::int32_t num_blocks) : num_blocks_(num_blocks), num_free_(num_blocks), first_free_{1} {
  QUIRE_CHECK(num_blocks >= 1, num_blocks);
  const auto num_ids = static_cast<std::uint32_t>(num_blocks) + 1;
  ref_count_.assign(num_ids, 0);
  is_keyed_.assign(num_ids, 0);
  previous_.assign(num_ids, kNullBlock);
  next_.resize(num_ids);
  for (std::uint32_t id = 1; id < num_ids; ++id) next_[id] = id + 1 < num_ids ? BlockId{id + 1} : kNullBlock;
}

// -- lists --

void BlockPool::push_free(BlockId block) {
  next_[block.value] = first_free_;
  first_free_ = block;
  ++num_free_;
}

void BlockPool::push_idle(BlockId block) {
  next_[block.value] = kNullBlock;
  previous_[block.value] = last_idle_;
  (last_idle_ == kNullBlock ? first_idle_ : next_[last_idle_.value]) = block;
  last_idle_ = block;
  num_visited_ += 1;  // the one before it
  ++num_idle_;
}

void BlockPool::remove_idle(BlockId block) {
  const BlockId next = next_[block.value];
  const BlockId previous = previous_[block.value];
  (previous == kNullBlock ? first_idle_ : next_[previous.value]) = next;
  (next == kNullBlock ? last_idle_ : previous_[next.value]) = previous;
  num_visited_ += 2;  // those on both sides
  --num_idle_;
}

// -- operations --

BlockId BlockPool::allocate() {
  const BlockId block = first_free_;
  if (block == kNullBlock) return kNullBlock;
  QUIRE_CHECK(ref_count_[block.value] == 0 && !is_keyed_[block.value], "free block ", block, " has ",
              ref_count_[block.value], " references");
  ++num_visited_;
  first_free_ = next_[block.value];
  ref_count_[block.value] = 1;
  --num_free_;
  return block;
}

void BlockPool::share(BlockId block) {
  QUIRE_CHECK(ref_count(block) > 0 || is_keyed(block), "block ", block, " is neither in use nor idle");
  ++num_visited_;
  if (ref_count_[block.value]++ == 0) remove_idle(block);
}

ReleaseOutcome BlockPool::release(BlockId block) {
  ++num_visited_;
  if (ref_count(block) == 0) return ReleaseOutcome::not_held;
  if (--ref_count_[block.value] > 0) return ReleaseOutcome::still_held;
  if (is_keyed_[block.value]) return push_idle(block), ReleaseOutcome::idle;
  push_free(block);
  return ReleaseOutcome::freed;
}

void BlockPool::set_keyed(BlockId block, bool keyed) {
  QUIRE_CHECK(contains(block) && is_keyed(block) != keyed, "block ", block, keyed ? " is" : " is not", " keyed");
  QUIRE_CHECK(!keyed || ref_count(block) > 0, "block ", block, " is free");
  ++num_visited_;
  is_keyed_[block.value] = keyed;
  if (ref_count(block) > 0) return;
  remove_idle(block);
  push_free(block);
}

std::int32_t BlockPool::ref_count(BlockId block) const { return contains(block) ? ref_count_[block.value] : 0; }

// -- invariants --

std::optional<std::string> BlockPool::validate_idle(std::vector<bool>& is_idle) const {
  std::int32_t num_listed = 0;
  BlockId previous = kNullBlock;
  for (BlockId block = first_idle_; block != kNullBlock; previous = block, block = next_[block.value]) {
    if (!contains(block)) return cat("P4: the idle list names block ", block, " of ", num_blocks_);
    if (is_idle[block.value]) return cat("P4: block ", block, " is on the idle list twice");
    if (previous_[block.value] != previous) return cat("P4: idle block ", block, " has a wrong link back");
    is_idle[block.value] = true;
    ++num_listed;
  }
  if (previous != last_idle_) return cat("P4: the idle list ends at ", previous, ", not at ", last_idle_);
  if (num_listed != num_idle_) return cat("P4: the idle list has ", num_listed, " blocks, num_idle is ", num_idle_);
  return std::nullopt;
}

std::optional<std::string> BlockPool::validate() const {
  if (ref_count_[0] != 0 || is_keyed_[0]) return cat("P3: the null block has ", ref_count_[0], " references or a key");
  std::vector<bool> is_free(ref_count_.size(), false);
  std::vector<bool> is_idle(ref_count_.size(), false);
  std::int32_t num_listed = 0;
  for (BlockId block = first_free_; block != kNullBlock; block = next_[block.value]) {
    if (!contains(block)) return cat("P2: the free list names block ", block, " of ", num_blocks_);
    if (is_free[block.value]) return cat("P2: block ", block, " is on the free list twice");
    is_free[block.value] = true;
    ++num_listed;
  }
  if (num_listed != num_free_) return cat("P2: the free list has ", num_listed, " blocks, num_free is ", num_free_);
  if (auto violation = validate_idle(is_idle)) return violation;
  for (std::size_t id = 1; id < ref_count_.size(); ++id) {
    if (ref_count_[id] < 0) return cat("P1: block ", id, " has ", ref_count_[id], " references");
    const bool unheld = ref_count_[id] == 0;
    if (is_free[id] != (unheld && !is_keyed_[id]) || is_idle[id] != (unheld && is_keyed_[id]))
      return cat("P1: block ", id, " has ", ref_count_[id], " references and is ", is_keyed_[id] ? "" : "not ",
                 "keyed, and is ", is_free[id] ? "" : "not ", "free, ", is_idle[id] ? "" : "not ", "idle");
  }
  return std::nullopt;
}

}  // namespace quire
