#pragma once
// Test support for the prefix cache. Drives a PagedKvManager with a cache as the scheduler does, on sequences with
// given tokens; plays the executor: mirrors tables, copies blocks and writes into every slot a digest of the salt, of
// all tokens up to its position and of the layer group. After each step every sequence must read exactly the digests of
// its own tokens, wherever its windows have not passed. With tiers it plays frames and files too; a file that is read
// may be of other content, and then fails.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/cat.h"
#include "quire/base/hash.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

class CacheChecker {
 public:
  CacheChecker(std::int32_t num_blocks, const GroupGeometry& geometry, const BlockHasher* hasher = nullptr,
               const TierOptions& tiers = {})
      : identity_{hasher, {}},
        manager_(num_blocks, geometry, identity_, tiers),
        slots_(static_cast<std::size_t>(num_blocks) + 1,
               std::vector<std::uint64_t>(static_cast<std::size_t>(geometry.block_size()))),
        frames_(static_cast<std::size_t>(tiers.num_frames) + 1),
        block_size_(geometry.block_size()) {}
  CacheChecker(std::int32_t num_blocks, std::int32_t block_size, const BlockHasher* hasher = nullptr)
      : CacheChecker(num_blocks, GroupGeometry::uniform(block_size), hasher) {}

  struct Start {
    SequenceId sequence;
    std::string salt;
    std::vector<TokenId> tokens;  ///< all that the sequence will ever have
    std::int64_t num_computed;    ///< beyond the hit, in the first step; at most what is left
  };

  /// Starts sequences in one plan; those that do not fit are left out. Returns what each found.
  std::vector<PrefixHit> start(const std::vector<Start>& starts, bool commit = true) {
    std::vector<PrefixHit> hits;
    std::map<SequenceId, Sequence> started;
    manager_.begin_plan();
    for (const Start& asked : starts) {
      Sequence sequence{asked.tokens, {}, {}, 0};
      sequence.chain.salt = asked.salt;
      const auto limit = static_cast<std::int64_t>(asked.tokens.size()) - 1;
      PrefixHit hit = manager_.match(sequence.chain, asked.tokens, limit);
      check_hit(asked, hit);
      const std::int64_t end = std::min(hit.num_tokens + asked.num_computed, limit + 1);
      const bool fits = hit.num_tokens > 0 ? manager_.plan_start(asked.sequence, hit, end)
                                           : manager_.plan_reserve(asked.sequence, end);
      hits.push_back(hit);
      if (!fits) continue;
      sequence.written = hit.num_tokens;
      started[asked.sequence] = sequence;
    }
    if (!commit) return manager_.begin_plan(), hits;
    for (auto& [id, sequence] : started) sequences_[id] = sequence;
    commit_plan();
    return hits;
  }

  /// Computes `count` more tokens of each, as far as they have them and blocks are left.
  void grow(const std::vector<SequenceId>& ids, std::int64_t count) {
    manager_.begin_plan();
    for (SequenceId id : ids) {
      const auto all = static_cast<std::int64_t>(sequences_.at(id).tokens.size());
      static_cast<void>(manager_.plan_reserve(id, std::min(all, manager_.reserved_tokens(id) + count)));
    }
    commit_plan();
  }

  /// The child has all that the parent has, but the last `num_less` tokens.
  void fork(SequenceId parent, SequenceId child, std::vector<TokenId> tail, std::int64_t num_less = 0) {
    const std::int64_t num_tokens = std::max<std::int64_t>(0, manager_.reserved_tokens(parent) - num_less);
    manager_.fork(parent, child, num_tokens);
    Sequence sequence = sequences_.at(parent);
    sequence.written = num_tokens;
    for (std::vector<BlockId>& table : sequence.tables)
      table.resize(static_cast<std::size_t>(geometry().num_entries(num_tokens)));
    sequence.tokens.resize(static_cast<std::size_t>(sequence.written));
    sequence.tokens.insert(sequence.tokens.end(), tail.begin(), tail.end());
    sequence.chain.keys.resize(
        std::min(sequence.chain.keys.size(), static_cast<std::size_t>(sequence.written / block_size_)));
    sequences_[child] = sequence;
    check();
  }

  void release(SequenceId id) {
    manager_.release(id);
    sequences_.erase(id);
    check();
  }

  /// Preempts the sequence, keeping its content; resume() or forget() it later.
  void preempt(SequenceId id) {
    Sequence sequence = sequences_.at(id);
    manager_.begin_plan();
    manager_.plan_release(id);
    manager_.plan_keep(id, sequence.chain);
    sequences_.erase(id);
    preempted_[id] = std::move(sequence);
    commit_plan();
  }

  /// As another sequence. False: there is no room now.
  bool resume(SequenceId id, SequenceId as) {
    Sequence sequence = preempted_.at(id);
    const auto limit = static_cast<std::int64_t>(sequence.tokens.size()) - 1;
    manager_.begin_plan();
    const PrefixHit hit = manager_.match(sequence.chain, sequence.tokens, limit);
    check_hit({as, sequence.chain.salt, sequence.tokens, 0}, hit);
    const bool fits =
        hit.num_tokens > 0 ? manager_.plan_start(as, hit, limit + 1) : manager_.plan_reserve(as, limit + 1);
    if (!fits) return manager_.begin_plan(), false;
    sequence.tables.clear();
    sequence.written = hit.num_tokens;
    preempted_.erase(id);
    sequences_[as] = std::move(sequence);
    commit_plan();
    manager_.forget_kept(sequences_.at(as).chain);
    check();
    return true;
  }

  void forget(SequenceId id) {
    manager_.forget_kept(preempted_.at(id).chain);
    preempted_.erase(id);
    check();
  }

  /// Asks files for what they have of a prefix, and starts what is waiting to be written.
  void read_ahead(const std::string& salt, const std::vector<TokenId>& tokens) {
    KeyChain chain{salt, {}, false, {}, {}};
    manager_.begin_plan();
    const auto limit = static_cast<std::int64_t>(tokens.size());
    const PrefixHit hit = manager_.match(chain, tokens, limit);
    manager_.plan_reads(chain, tokens, limit, hit);
    commit_plan();
  }

  std::size_t num_in_flight() const { return in_flight_.size(); }
  /// One of the transfers in flight ends.
  void end_transfer(std::size_t index, bool fails) {
    const InFlight transfer = in_flight_.at(index);
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
    TransferEnd end{transfer.id, fails ? TransferOutcome::io_error : TransferOutcome::done, {}};
    if (transfer.to == kNoFrame) {
      if (!fails) files_[transfer.key] = transfer;
    } else if (!fails) {
      const auto file = files_.find(transfer.key);
      const bool is_it =
          file != files_.end() && file->second.salt == transfer.salt && file->second.tokens == transfer.tokens;  // I12
      if (is_it) frames_.at(transfer.to.value) = file->second.values;
      if (!is_it) end.outcome = TransferOutcome::mismatch;
    }
    manager_.end_transfer(end);
    check();
  }

  std::vector<SequenceId> preempted() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : preempted_) ids.push_back(id);
    return ids;
  }

  bool has(SequenceId id) const { return sequences_.count(id) > 0; }
  std::vector<SequenceId> sequences() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : sequences_) ids.push_back(id);
    return ids;
  }
  const PagedKvManager& manager() const { return manager_; }
  const GroupGeometry& geometry() const { return manager_.geometry(); }
  const std::optional<std::string>& problem() const { return problem_; }

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    KeyChain chain;
    std::vector<std::vector<BlockId>> tables;
    std::int64_t written;
  };

  struct InFlight {
    TransferId id;
    FrameId to;  ///< kNoFrame: a write
    BlockKey key;
    std::string salt;
    std::vector<TokenId> tokens;
    std::vector<std::uint64_t> values;
  };

  InFlight in_flight(TransferId id, FrameId to, const FileContent& content, const TierChanges& changes) const {
    const auto first = changes.tokens.begin() + content.tokens_offset;
    return {id, to, content.key, content.salt, {first, first + content.num_tokens}, {}};
  }

  void move_contents(const TierChanges& changes) {
    for (const FileWrite& write : changes.writes) {
      in_flight_.push_back(in_flight(write.transfer, kNoFrame, write.content, changes));
      in_flight_.back().values =
          write.block != kNullBlock ? slots_.at(write.block.value) : frames_.at(write.frame.value);
      check_file(in_flight_.back());
    }
    for (const FrameStore& store : changes.stores) frames_.at(store.to.value) = slots_.at(store.from.value);
    for (const FrameLoad& load : changes.loads) slots_.at(load.to.value) = frames_.at(load.from.value);
    for (const FileRead& read : changes.reads) {
      frames_.at(read.to.value).assign(static_cast<std::size_t>(block_size_), 0);
      in_flight_.push_back(in_flight(read.transfer, read.to, read.content, changes));
    }
  }

  /// What is written under a key is what the key says: of these tokens, and of that layer group.
  void check_file(const InFlight& file) {
    Sequence sequence{file.tokens, {file.salt, {}, false, {}, {}}, {}, 0};
    extend_chain(sequence.chain, identity_, static_cast<std::size_t>(block_size_), file.tokens);
    std::vector<std::uint64_t> expected = digests(sequence);
    expected.erase(expected.begin(), expected.end() - block_size_);
    const std::uint64_t group = file.values.front() - expected.front();
    for (std::uint64_t& value : expected) value += group;
    if (group >= geometry().num_groups() || file.values != expected ||
        in_group(sequence.chain.keys.back(), static_cast<std::size_t>(group)) != file.key)
      note(cat("a file of ", file.tokens.size(), " tokens gets foreign content"));
  }

  void note(std::string text) {
    if (!problem_) problem_ = std::move(text);
  }

  /// Of all tokens up to each; in the first group as they are.
  std::vector<std::uint64_t> digests(const Sequence& sequence) const {
    std::vector<std::uint64_t> all;
    Digest digest;
    digest.add_text(sequence.chain.salt);
    for (TokenId token : sequence.tokens) {
      digest.add(static_cast<std::uint32_t>(token.value));
      all.push_back(digest.value());
    }
    return all;
  }

  std::uint64_t slot_at(BlockId block, std::int64_t position) const {
    return slots_.at(block.value)[static_cast<std::size_t>(position % block_size_)];
  }

  /// All that the first computed position sees is there, in every group, and is what the sequence would have computed;
  /// without evictions and collisions no full block that was ever published is missed.
  void check_hit(const Start& asked, const PrefixHit& hit) {
    const Sequence sequence{asked.tokens, {asked.salt, {}, false, {}}, {}, 0};
    const std::vector<std::uint64_t> expected = digests(sequence);
    if (hit.num_tokens >= static_cast<std::int32_t>(asked.tokens.size())) note("a hit leaves nothing to compute");
    for (std::size_t group = 0; group < geometry().num_groups(); ++group) {
      const std::int32_t window = geometry().groups()[group].window;
      for (std::int32_t p = window == 0 ? 0 : std::max(0, hit.num_tokens - window + 1); p < hit.num_tokens; ++p) {
        const auto i = static_cast<std::size_t>(p / block_size_), count = static_cast<std::size_t>(hit.num_blocks);
        const std::vector<FrameId>& frames = i < count ? hit.frames : hit.tail_frames;
        const std::size_t at = i < count ? group * count + i : group;
        const FrameId frame = at < frames.size() ? frames[at] : kNoFrame;
        if (frame != kNoFrame) {
          if (frames_.at(frame.value)[static_cast<std::size_t>(p % block_size_)] !=
              expected[static_cast<std::size_t>(p)] + group)
            note(cat("a frame has foreign content at position ", p, " of group ", group));
          continue;
        }
        const BlockId block = i < count ? hit.blocks[at] : hit.copy_from.at(group);
        if (block == kNullBlock || slot_at(block, p) != expected[static_cast<std::size_t>(p)] + group)
          note(cat("a hit has foreign content at position ", p, " of group ", group));
      }
    }
    const KvCacheCounters counters = manager_.cache_counters();
    if (counters.evicted_blocks > 0 || counters.collisions > 0) return;
    std::size_t best = 0;
    while ((best + 1) * static_cast<std::size_t>(block_size_) < asked.tokens.size() &&
           published_.count(expected[(best + 1) * static_cast<std::size_t>(block_size_) - 1]) > 0)
      ++best;
    if (static_cast<std::size_t>(hit.num_blocks) != best)
      note(cat("a hit has ", hit.num_blocks, " full blocks, cached are ", best));
  }

  void commit_plan() {
    KvChanges changes;
    std::vector<KvReservation> reservations;
    manager_.commit_plan(changes, reservations);
    for (const TableEdit& edit : changes.table_edits)
      sequences_.at(edit.sequence)
          .tables.at(static_cast<std::size_t>(edit.group))
          .at(static_cast<std::size_t>(edit.index)) = edit.block;
    for (const KvReservation& row : reservations) {
      auto first = changes.new_blocks.begin() + row.new_blocks_offset;
      Sequence& sequence = sequences_.at(row.sequence);
      sequence.tables.resize(geometry().num_groups());
      for (std::vector<BlockId>& table : sequence.tables) {
        table.insert(table.end(), first, first + row.num_new_blocks);
        first += row.num_new_blocks;
      }
    }
    move_contents(changes.tiers);
    for (const BlockCopy& copy : changes.copies) slots_.at(copy.to.value) = slots_.at(copy.from.value);
    for (const KvReservation& row : reservations) write(row.sequence);
    check();
    for (const KvReservation& row : reservations) publish(row.sequence);
    check();
  }

  void write(SequenceId id) {
    Sequence& sequence = sequences_.at(id);
    const std::vector<std::uint64_t> values = digests(sequence);
    for (; sequence.written < manager_.reserved_tokens(id); ++sequence.written) {
      for (std::size_t group = 0; group < sequence.tables.size(); ++group) {
        const BlockId block = sequence.tables[group].at(static_cast<std::size_t>(sequence.written / block_size_));
        if (manager_.pool().ref_count(block) != 1 || manager_.pool().is_keyed(block))
          note(cat("I3: sequence ", id, " writes into block ", block, ", which is shared or keyed"));
        slots_.at(block.value)[static_cast<std::size_t>(sequence.written % block_size_)] =
            values[static_cast<std::size_t>(sequence.written)] + group;
      }
    }
  }

  void publish(SequenceId id) {
    Sequence& sequence = sequences_.at(id);
    manager_.publish(id, sequence.chain, std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.written)));
    for (std::size_t group = 0; group < sequence.tables.size(); ++group)
      std::fill_n(sequence.tables[group].begin(), geometry().first_kept(group, sequence.written), kNullBlock);
    const std::vector<std::uint64_t> values = digests(sequence);
    for (auto p = static_cast<std::size_t>(block_size_); static_cast<std::int64_t>(p) <= sequence.written;
         p += static_cast<std::size_t>(block_size_))
      published_[values[p - 1]] = 1;
  }

  void check() {
    if (auto violation = manager_.validate()) note(*violation);
    std::map<BlockId, int> named;
    for (const auto& [id, sequence] : sequences_) {
      const std::vector<std::uint64_t> expected = digests(sequence);
      for (std::size_t group = 0; group < sequence.tables.size(); ++group) {
        const std::vector<BlockId>& table = sequence.tables[group];
        if (table != manager_.find_table(id, group)->blocks) note(cat("the table of sequence ", id, " is another"));
        for (BlockId block : table) ++named[block];
        for (std::int64_t p = geometry().first_needed(group, sequence.written) * block_size_; p < sequence.written; ++p)
          if (slot_at(table.at(static_cast<std::size_t>(p / block_size_)), p) !=
              expected[static_cast<std::size_t>(p)] + group)
            note(cat("sequence ", id, " reads foreign content at position ", p, " of group ", group));
      }
    }
    named.erase(kNullBlock);
    for (const auto& [block, count] : named)
      if (manager_.pool().ref_count(block) != count) note(cat("I2: block ", block, " has a wrong count"));
    if (manager_.capacity().used_blocks() != static_cast<std::int32_t>(named.size()))
      note("I1: used blocks miscounted");
  }

  CacheIdentity identity_;
  PagedKvManager manager_;
  std::vector<std::vector<std::uint64_t>> slots_;   ///< [num_blocks + 1][block_size], the physical memory
  std::vector<std::vector<std::uint64_t>> frames_;  ///< [num_frames + 1][block_size]
  std::map<BlockKey, InFlight> files_;
  std::vector<InFlight> in_flight_;
  std::map<SequenceId, Sequence> sequences_, preempted_;
  std::map<std::uint64_t, int> published_;  ///< digests of all prefixes of full blocks that were ever published
  std::int32_t block_size_;
  std::optional<std::string> problem_;
};

}  // namespace quire
