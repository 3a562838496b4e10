#include "quire/engine/tier_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quire/base/check.h"

namespace quire::engine {

TierStore::TierStore(std::int64_t num_frames, attention::KvStore& store)
    : store_(store),
      block_bytes_(static_cast<std::size_t>(store.layout().block_bytes())),
      frames_(static_cast<std::size_t>(num_frames) * block_bytes_) {
  // A machine that cannot give the memory fails here, not in the middle of a request.
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < frames_.size(); at += kPage)
    *const_cast<volatile std::byte*>(frames_.data() + at) = std::byte{0};
}

Result<std::unique_ptr<TierStore>> TierStore::open(const TierStoreOptions& options, attention::KvStore& store,
                                                   std::function<void()> on_end) {
  std::unique_ptr<TierStore> tiers(new TierStore(options.num_frames, store));
  if (options.directory.empty()) return tiers;
  QUIRE_TRY(tiers->disk_, DirectoryDisk::open(options.directory));
  QUIRE_TRY(BlockFiles files,
            BlockFiles::open(*tiers->disk_, {.domain = options.domain,
                                             .budget_bytes = options.file_bytes,
                                             .compression = options.compress ? Compression::zstd : Compression::none}));
  tiers->found_ = files.keys();
  tiers->thread_ = std::make_unique<TransferThread>(std::move(files), std::move(on_end));
  return tiers;
}

std::span<std::byte> TierStore::frame(FrameId frame) {
  QUIRE_CHECK(frame != kNoFrame && frame.value * block_bytes_ <= frames_.size(), "frame ", frame);
  return {frames_.data() + (frame.value - 1) * block_bytes_, block_bytes_};
}

void TierStore::start(const TierChanges& changes) {
  const auto transfer_of = [&](TransferId id, const FileContent& content, bool is_read) {
    const auto first = changes.tokens.begin() + content.tokens_offset;
    return Transfer{id,
                    is_read,
                    content.key,
                    content.salt,
                    {first, first + content.num_tokens},
                    std::vector<std::byte>(block_bytes_)};
  };
  for (const FileWrite& write : changes.writes) {
    Transfer transfer = transfer_of(write.transfer, write.content, false);
    if (write.block != kNullBlock) {
      store_.read_block(write.block, transfer.payload);
    } else {
      std::ranges::copy(frame(write.frame), transfer.payload.begin());
    }
    thread_->submit(std::move(transfer));
  }
  for (const FrameStore& store : changes.stores) store_.read_block(store.from, frame(store.to));
  for (const FrameLoad& load : changes.loads) store_.write_block(load.to, frame(load.from));
  for (const FileRead& read : changes.reads) {
    reads_.emplace(read.transfer, read.to);
    thread_->submit(transfer_of(read.transfer, read.content, true));
  }
}

std::vector<TransferEnd> TierStore::take_ended() {
  std::vector<TransferEnd> ends;
  if (!thread_) return ends;
  for (EndedTransfer& ended : thread_->take_ended()) {
    if (ended.is_read) {
      const auto read = reads_.find(ended.end.transfer);
      if (read == reads_.end()) continue;  // given up
      if (ended.end.outcome == TransferOutcome::done) std::ranges::copy(ended.payload, frame(read->second).begin());
      reads_.erase(read);
    }
    ends.push_back(std::move(ended.end));
  }
  return ends;
}

std::vector<TransferEnd> TierStore::give_up_reads() {
  std::vector<TransferEnd> ends;
  for (const auto& [transfer, frame] : reads_) ends.push_back({transfer, TransferOutcome::timed_out, {}});
  reads_.clear();
  return ends;
}

std::int64_t TierStore::measure_copy_ns() {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kRounds = 4;
  const auto num_frames = static_cast<std::int64_t>(frames_.size() / block_bytes_);
  const std::int64_t count = std::min(kRounds, std::min(num_frames, store_.num_blocks() - 1));
  const auto start = Clock::now();
  for (std::uint32_t id = 1; id <= count; ++id) {
    store_.read_block(BlockId{id}, frame(FrameId{id}));
    store_.write_block(BlockId{id}, frame(FrameId{id}));
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  return std::max<std::int64_t>(1, elapsed / count);
}

}  // namespace quire::engine
