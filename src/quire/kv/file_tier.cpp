#include "quire/kv/file_tier.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

void FileTier::append_content(const BlockKey& key, const std::string& salt, std::span<const TokenId> prefix,
                              TierChanges& changes, FileContent& content) {
  content = {key, salt, changes.add_tokens(prefix), static_cast<std::int32_t>(prefix.size())};
}

// -- writes --

void FileTier::note_published(Waiting block) {
  if (has(block.key) || keys_written_.count(block.key) > 0 || !keys_waiting_.insert(block.key).second) return;
  waiting_.push_back(std::move(block));
  if (waiting_.size() <= max_waiting_) return;
  static_cast<void>(take_waiting());
  ++num_given_up_;
}

FileTier::Waiting FileTier::take_waiting() {
  Waiting first = std::move(waiting_.front());
  waiting_.pop_front();
  keys_waiting_.erase(first.key);
  return first;
}

void FileTier::start_write(const Waiting& source, BlockId block, FrameId frame, TierChanges& changes) {
  FileWrite write{TransferId{next_transfer_++}, block, frame, {}};
  append_content(source.key, source.salt, std::span(*source.tokens).first(static_cast<std::size_t>(source.num_tokens)),
                 changes, write.content);
  const bool is_new = keys_written_.insert(source.key).second;
  QUIRE_CHECK(is_new, "F2: a key is written twice at once");
  writes_.emplace(write.transfer, source.key);
  changes.writes.push_back(std::move(write));
}

// -- reads --

void FileTier::start_read(FrameId frame, NumberedContent content, std::span<const TokenId> prefix,
                          TierChanges& changes) {
  FileRead read{TransferId{next_transfer_++}, frame, {}};
  append_content(content.key, content.salt, prefix, changes, read.content);
  const bool is_new = read_of_.emplace(content.key, read.transfer).second;
  QUIRE_CHECK(is_new, "F2: a key is read twice at once");
  reads_.emplace(read.transfer, Read{frame, std::move(content)});
  changes.reads.push_back(std::move(read));
}

const NumberedContent* FileTier::find_read(const BlockKey& key) const {
  const auto found = read_of_.find(key);
  return found == read_of_.end() ? nullptr : &reads_.at(found->second).content;
}

FileTier::Ended FileTier::end(const TransferEnd& end) {
  Ended ended;
  if (const auto write = writes_.find(end.transfer); write != writes_.end()) {
    ended.is_known = true;
    keys_written_.erase(write->second);
    if (end.outcome == TransferOutcome::done) known_.insert(write->second);
    writes_.erase(write);
  } else if (const auto read = reads_.find(end.transfer); read != reads_.end()) {
    ended.is_known = true;
    ended.read = std::move(read->second);
    reads_.erase(read);
    read_of_.erase(ended.read->content.key);
    if (end.outcome != TransferOutcome::done) known_.erase(ended.read->content.key);
  }
  if (ended.is_known)
    for (const BlockKey& key : end.removed) known_.erase(key);
  return ended;
}

// -- invariants --

std::optional<std::string> FileTier::validate(const RamTier& ram) const {
  std::vector<FrameId> frames;
  for (const auto& [transfer, read] : reads_) {
    if (!ram.is_private(read.frame))
      return cat("F1: transfer ", transfer, " reads into frame ", read.frame, ", which is not private");
    frames.push_back(read.frame);
  }
  std::sort(frames.begin(), frames.end());
  if (std::adjacent_find(frames.begin(), frames.end()) != frames.end()) return "F1: two transfers read into one frame";
  if (read_of_.size() != reads_.size() || keys_written_.size() != writes_.size())
    return cat("F2: ", reads_.size(), " reads of ", read_of_.size(), " keys, ", writes_.size(), " writes of ",
               keys_written_.size());
  return std::nullopt;
}

}  // namespace quire
