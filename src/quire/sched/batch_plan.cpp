#include "quire/sched/batch_plan.h"

#include "quire/base/hash.h"

namespace quire {
namespace {

std::uint64_t pack(std::int32_t high, std::int32_t low) {
  return std::uint64_t{static_cast<std::uint32_t>(high)} << 32 | static_cast<std::uint32_t>(low);
}

void add_row(Digest& digest, const PlanRow& row) {
  digest.add(row.sequence.value);
  digest.add(row.request.value);
  digest.add(pack(row.begin, row.num_tokens));
  digest.add(pack(row.token_offset, row.new_blocks_offset));
  digest.add(pack(row.num_new_blocks, row.logits_begin));
  digest.add(pack(row.branch, row.num_outputs));
  digest.add(std::uint64_t{row.ranked} << 2 | std::uint64_t{row.samples} << 1 | std::uint64_t{row.is_prefill});
  digest.add(pack(row.num_proposed, row.place));
}

void add_maps(Digest& digest, const std::vector<GroupMap>& maps) {
  digest.add(maps.size());
  for (const GroupMap& map : maps) {
    digest.add(pack(map.place, map.index));
    digest.add(pack(map.count, static_cast<std::int32_t>(map.group.value)));
  }
}

}  // namespace

std::uint64_t BatchPlan::digest() const {
  Digest digest;
  digest.add(step);
  digest.add(rows.size());
  for (const PlanRow& row : rows) add_row(digest, row);
  digest.add(tokens.size());
  for (TokenId token : tokens) digest.add(static_cast<std::uint32_t>(token.value));
  digest.add(new_blocks.size());
  for (BlockId block : new_blocks) digest.add(block.value);
  digest.add(copies.size());
  for (const BlockCopy& copy : copies) digest.add(std::uint64_t{copy.from.value} << 32 | copy.to.value);
  digest.add(table_edits.size());
  for (const TableEdit& edit : table_edits) {
    digest.add(edit.sequence.value);
    // A table has at most 2^21 entries, and there are at most 2^7 groups.
    digest.add(std::uint64_t{edit.block.value} << 32 | static_cast<std::uint32_t>(edit.group << 24 | edit.index));
  }
  add_maps(digest, group_maps);
  add_maps(digest, ahead_maps);
  digest.add(forks.size());
  for (const SequenceFork& fork : forks) {
    digest.add(fork.parent.value);
    digest.add(fork.child.value);
    digest.add(static_cast<std::uint32_t>(fork.num_tokens));
  }
  digest.add(dropped.size());
  for (SequenceId sequence : dropped) digest.add(sequence.value);
  tiers.add_to(digest);
  return digest.value();
}

void BatchPlan::clear() {
  step = 0;
  rows.clear();
  tokens.clear();
  new_blocks.clear();
  copies.clear();
  table_edits.clear();
  group_maps.clear();
  ahead_maps.clear();
  forks.clear();
  dropped.clear();
  tiers.clear();
}

}  // namespace quire
