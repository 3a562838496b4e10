#include "quire/core/shadow_tiers.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"

namespace quire {

ShadowBlock& ShadowTiers::frame(FrameId id) {
  for (const Transfer& transfer : in_flight_)
    if (transfer.to == id && !violation_) violation_ = cat("frame ", id, " is used while a transfer reads into it");
  return frames_.at(id.value);
}

ShadowFile ShadowTiers::file_of(const FileContent& content, const TierChanges& changes) const {
  const auto first = changes.tokens.begin() + content.tokens_offset;
  return {content.salt, {first, first + content.num_tokens}, {}, false, 0};
}

void ShadowTiers::start(const TierChanges& changes, std::vector<ShadowBlock>& blocks) {
  std::vector<Transfer> started;
  for (const FileWrite& write : changes.writes) {
    Transfer transfer{write.transfer, kNoFrame, write.content.key, file_of(write.content, changes)};
    transfer.file.block = write.block != kNullBlock ? blocks.at(write.block.value) : frame(write.frame);
    started.push_back(std::move(transfer));
  }
  for (const FrameStore& store : changes.stores) frame(store.to) = blocks.at(store.from.value);
  for (const FrameLoad& load : changes.loads) {
    ShadowBlock& block = blocks.at(load.to.value);
    block = frame(load.from);
    for (ShadowSlot& slot : block) slot.written_in_step = 0;  // files outlive the steps of one run
  }
  for (const FileRead& read : changes.reads) {
    frame(read.to).clear();
    started.push_back({read.transfer, read.to, read.content.key, file_of(read.content, changes)});
    in_flight_.push_back(started.back());
    started.pop_back();
  }
  in_flight_.insert(in_flight_.end(), started.begin(), started.end());
}

TransferEnd ShadowTiers::end(std::size_t index, ShadowFault fault) {
  Transfer transfer = std::move(in_flight_.at(index));
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
  if (fault == ShadowFault::deleted) files_.erase(transfer.key);
  TransferEnd end{transfer.id, TransferOutcome::done, {}};
  if (transfer.to != kNoFrame) {
    end.outcome = read(transfer, fault);
  } else {
    end.outcome = write(transfer, fault);
    if (end.outcome == TransferOutcome::done) remove_oldest(transfer.key, end);
  }
  return end;
}

TransferOutcome ShadowTiers::read(const Transfer& transfer, ShadowFault fault) {
  if (fault == ShadowFault::io_error) return TransferOutcome::io_error;
  if (fault == ShadowFault::timed_out) return TransferOutcome::timed_out;
  const auto found = files_.find(transfer.key);
  if (found == files_.end()) return TransferOutcome::missing;
  ShadowFile& file = found->second;
  file.is_damaged = file.is_damaged || fault == ShadowFault::torn;
  if (file.is_damaged) return TransferOutcome::damaged;
  if (file.salt != transfer.file.salt || file.tokens != transfer.file.tokens) return TransferOutcome::mismatch;
  file.age = next_age_++;
  frames_.at(transfer.to.value) = file.block;
  return TransferOutcome::done;
}

TransferOutcome ShadowTiers::write(Transfer& transfer, ShadowFault fault) {
  if (fault == ShadowFault::io_error) return TransferOutcome::io_error;
  if (fault == ShadowFault::no_space) return TransferOutcome::no_space;
  if (fault == ShadowFault::lost) return TransferOutcome::done;
  transfer.file.is_damaged = fault == ShadowFault::torn;
  transfer.file.age = next_age_++;
  files_.insert_or_assign(transfer.key, std::move(transfer.file));
  return TransferOutcome::done;
}

void ShadowTiers::remove_oldest(const BlockKey& kept, TransferEnd& end) {
  while (max_files_ > 0 && files_.size() > max_files_) {
    auto oldest = files_.end();
    for (auto file = files_.begin(); file != files_.end(); ++file)
      if (file->first != kept && (oldest == files_.end() || file->second.age < oldest->second.age)) oldest = file;
    if (oldest == files_.end()) return;
    end.removed.push_back(oldest->first);
    files_.erase(oldest);
  }
}

}  // namespace quire
