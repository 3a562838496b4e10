#include "quire/blockfile/block_files.h"

#include <utility>

namespace quire {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::string_view kSuffix = ".kv";
constexpr std::uint64_t kSpareShare = 16;

TransferOutcome outcome_of(DiskStatus status) {
  switch (status) {
    case DiskStatus::ok:
      return TransferOutcome::done;
    case DiskStatus::missing:
      return TransferOutcome::missing;
    case DiskStatus::no_space:
      return TransferOutcome::no_space;
    case DiskStatus::io_error:
      return TransferOutcome::io_error;
  }
  return TransferOutcome::io_error;
}

}  // namespace

std::string block_file_name(const BlockKey& key) {
  std::string name;
  for (std::byte byte : key.bytes) {
    name += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    name += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return name += kSuffix;
}

std::optional<BlockKey> parse_block_file_name(std::string_view name) {
  BlockKey key;
  if (name.size() != 2 * key.bytes.size() + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    const std::size_t high = kDigits.find(name[2 * i]);
    const std::size_t low = kDigits.find(name[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    key.bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return key;
}

Result<BlockFiles> BlockFiles::open(Disk& disk, const BlockFilesOptions& options) {
  BlockFiles files(disk, options);
  QUIRE_TRY(const std::vector<Disk::File> found, disk.list());
  for (const Disk::File& file : found)
    if (const auto key = parse_block_file_name(file.name)) files.add(*key, file.bytes);
  std::vector<BlockKey> removed;
  files.make_room(0, removed);
  return files;
}

std::vector<BlockKey> BlockFiles::keys() const {
  std::vector<BlockKey> keys;
  for (const auto& [use, key] : by_use_) keys.push_back(key);
  return keys;
}

void BlockFiles::add(const BlockKey& key, std::uint64_t bytes) {
  forget(key);
  files_.emplace(key, File{bytes, next_use_});
  by_use_.emplace(next_use_++, key);
  bytes_ += bytes;
}

void BlockFiles::forget(const BlockKey& key) {
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  bytes_ -= found->second.bytes;
  by_use_.erase(found->second.used_at);
  files_.erase(found);
}

void BlockFiles::make_room(std::uint64_t bytes, std::vector<BlockKey>& removed) {
  if (bytes_ + bytes <= options_.budget_bytes) return;
  const std::uint64_t target = options_.budget_bytes - options_.budget_bytes / kSpareShare;
  while (!by_use_.empty() && bytes_ + bytes > target) {
    const BlockKey key = by_use_.begin()->second;
    static_cast<void>(disk_->remove(block_file_name(key)));  // one that stays is found again at the next start
    forget(key);
    removed.push_back(key);
  }
}

TransferOutcome BlockFiles::write(const BlockIdentity& identity, std::span<const std::byte> payload,
                                  std::vector<BlockKey>& removed) {
  if (num_skipped_ > 0) return --num_skipped_, TransferOutcome::no_space;
  const std::vector<std::byte> file = encode_block_file(identity, payload, options_.compression);
  if (file.size() > options_.budget_bytes) return TransferOutcome::no_space;
  make_room(file.size(), removed);
  const DiskStatus status = disk_->write(block_file_name(identity.key), file);
  if (status == DiskStatus::no_space) num_skipped_ = kWritesSkippedWhenFull;
  if (status == DiskStatus::ok) add(identity.key, file.size());
  return outcome_of(status);
}

TransferOutcome BlockFiles::read(const BlockIdentity& identity, std::span<std::byte> payload) {
  const std::string name = block_file_name(identity.key);
  const DiskStatus status = disk_->read(name, max_block_file_bytes(identity, payload.size()), buffer_);
  if (status == DiskStatus::missing) forget(identity.key);
  if (status != DiskStatus::ok) return outcome_of(status);
  const TransferOutcome outcome = quire::outcome_of(decode_block_file(buffer_, identity, payload));
  if (outcome == TransferOutcome::damaged) {
    static_cast<void>(disk_->remove(name));
    forget(identity.key);
  } else if (outcome == TransferOutcome::done) {
    add(identity.key, buffer_.size());
  }
  return outcome;
}

}  // namespace quire
