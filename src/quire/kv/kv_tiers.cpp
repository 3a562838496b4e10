#include "quire/kv/kv_tiers.h"

#include <algorithm>

#include "quire/base/cat.h"

namespace quire {

KvTiers::KvTiers(const TierOptions& options, std::int32_t num_blocks) : ram(options.num_frames) {
  if (options.has_files)
    files.emplace(static_cast<std::size_t>(num_blocks) + static_cast<std::size_t>(options.num_frames));
}

void KvTiers::begin_plan() {
  planned_keeps.clear();
  planned_frames = 0;
  planned_reads.clear();
  planned_read_of.clear();
}

void KvTiers::plan_read(PlannedRead read) {
  planned_read_of.emplace(read.content.key, planned_reads.size());
  planned_reads.push_back(std::move(read));
  ++planned_frames;
}

const NumberedContent* KvTiers::find_read(const BlockKey& key) const {
  const auto planned = planned_read_of.find(key);
  return planned != planned_read_of.end() ? &planned_reads[planned->second].content : files->find_read(key);
}

/// The last blocks first: so the end is evicted before the prefix that others may share.
void KvTiers::forget_kept(SequenceId sequence) {
  const auto found = kept.find(sequence);
  if (found == kept.end()) return;
  const Kept& content = found->second;
  for (auto frame = content.pinned.rbegin(); frame != content.pinned.rend(); ++frame) ram.unpin(*frame);
  for (FrameId tail : content.tails) ram.give_back(tail);
  kept.erase(found);
}

std::optional<std::string> KvTiers::validate() const {
  if (auto violation = ram.validate()) return violation;
  if (files) {
    if (auto violation = files->validate(ram)) return violation;
  }
  std::vector<std::int32_t> pins(static_cast<std::size_t>(ram.num_frames()) + 1, 0);
  std::vector<FrameId> tails;
  for (const auto& [sequence, content] : kept) {  // a walk whose order nothing depends on
    for (FrameId frame : content.pinned) ++pins[frame.value];
    for (FrameId tail : content.tails)
      if (!ram.is_private(tail)) return cat("T4: a tail of sequence ", sequence, " is not in a private frame");
    tails.insert(tails.end(), content.tails.begin(), content.tails.end());
  }
  for (std::uint32_t id = 1; id < pins.size(); ++id)
    if (pins[id] != ram.num_pins(FrameId{id}))
      return cat("T4: frame ", id, " has ", ram.num_pins(FrameId{id}), " pins, ", pins[id], " sequences name it");
  std::sort(tails.begin(), tails.end());
  if (std::adjacent_find(tails.begin(), tails.end()) != tails.end()) return "T4: a frame is a tail twice";
  const std::int32_t num_owned = static_cast<std::int32_t>(tails.size()) + (files ? files->num_reads() : 0);
  if (num_owned != ram.num_private())
    return cat("T5: ", ram.num_private(), " frames are private, ", num_owned, " have an owner");
  return std::nullopt;
}

}  // namespace quire
