#include "quire/kv/layer_groups.h"

#include <algorithm>
#include <limits>

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

GroupGeometry::GroupGeometry(std::int32_t block_size, std::vector<LayerGroup> groups, std::int32_t max_step_tokens)
    : block_size_(block_size), max_step_tokens_(max_step_tokens), groups_(std::move(groups)) {
  QUIRE_CHECK(!groups_.empty() && groups_.size() <= kMaxLayerGroups && groups_.front().window == 0, groups_.size(),
              " layer groups");
  QUIRE_CHECK(max_step_tokens >= 1, max_step_tokens);
  for (const LayerGroup& group : groups_) num_full_ += group.window == 0 ? 1 : 0;
}

GroupGeometry GroupGeometry::uniform(std::int32_t block_size) {
  return {block_size, {LayerGroup{}}, std::numeric_limits<std::int32_t>::max()};
}

std::int64_t GroupGeometry::num_entries(std::int64_t num_tokens) const { return ceil_div(num_tokens, block_size_); }

bool GroupGeometry::has_seen(std::int64_t next, std::int64_t num_entries, const EntryTest& has) const {
  for (std::size_t group = 1; group < num_groups(); ++group)
    for (std::int64_t entry = first_needed(group, next); entry < num_entries; ++entry)
      if (!has(group, entry)) return false;
  return true;
}

std::int64_t GroupGeometry::longest_hit(std::int64_t num_entries, const EntryTest& has) const {
  std::int64_t count = num_entries;
  std::vector<std::int64_t> unbroken_from(num_groups(), count);  // from here to `count` a group has all entries
  for (std::size_t group = 1; group < num_groups();) {
    std::int64_t& from = unbroken_from[group];
    from = std::min(from, count);
    const std::int64_t needed_from = first_needed(group, count * block_size_);
    while (from > needed_from && has(group, from - 1)) --from;
    if (from <= needed_from) {
      ++group;
      continue;
    }
    // A smaller count sees this entry too, unless it ends before it.
    count = from - 1;
    group = 1;
  }
  return count;
}

std::int64_t GroupGeometry::blocks_for(std::int64_t num_tokens) const {
  const std::int64_t all = num_entries(num_tokens);
  std::int64_t num_blocks = all * static_cast<std::int64_t>(num_full_);
  if (!has_windows()) return num_blocks;
  for (const LayerGroup& group : groups_) {
    if (group.window == 0) continue;
    const std::int64_t seen = std::int64_t{group.window} + max_step_tokens_;
    num_blocks += std::min(all, ceil_div(seen - 1, block_size_) + 1);
  }
  return num_blocks;
}

std::int64_t GroupGeometry::blocks_held(std::int64_t num_tokens) const {
  std::int64_t num_blocks = num_entries(num_tokens) * static_cast<std::int64_t>(num_groups());
  if (!has_windows()) return num_blocks;
  for (std::size_t group = 0; group < num_groups(); ++group) num_blocks -= first_kept(group, num_tokens);
  return num_blocks;
}

std::int64_t GroupGeometry::longest_sequence(std::int64_t num_blocks) const {
  if (!has_windows()) return num_blocks / static_cast<std::int64_t>(num_groups()) * block_size_;
  std::int64_t fits = 0, too_many = num_blocks + 1;  // entries of the first group, which is full
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (blocks_for(middle * block_size_) <= num_blocks ? fits : too_many) = middle;
  }
  return fits * block_size_;
}

}  // namespace quire
