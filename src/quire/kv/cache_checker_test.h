#pragma once
// Test support for the prefix cache. Drives a PagedKvManager with a cache as the scheduler does, on sequences with
// given tokens; plays the executor: mirrors tables, copies blocks and writes into every slot a digest of the salt, of
// all tokens up to its position and of the layer group. After each step every sequence must read exactly the digests of
// its own tokens, wherever its windows have not passed.

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
  CacheChecker(std::int32_t num_blocks, const GroupGeometry& geometry, const BlockHasher* hasher = nullptr)
      : manager_(num_blocks, geometry, CacheIdentity{hasher, {}}),
        slots_(static_cast<std::size_t>(num_blocks) + 1,
               std::vector<std::uint64_t>(static_cast<std::size_t>(geometry.block_size()))),
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
        const BlockId block = i < count ? hit.blocks[group * count + i] : hit.copy_from.at(group);
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

  PagedKvManager manager_;
  std::vector<std::vector<std::uint64_t>> slots_;  ///< [num_blocks + 1][block_size], the physical memory
  std::map<SequenceId, Sequence> sequences_;
  std::map<std::uint64_t, int> published_;  ///< digests of all prefixes of full blocks that were ever published
  std::int32_t block_size_;
  std::optional<std::string> problem_;
};

}  // namespace quire
