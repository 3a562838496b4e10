#pragma once
// A naive model of paged KV memory for tests: maps and vectors, everything counted by walking. KvChecker drives it and
// a PagedKvManager through the same operations, writes a different value into every slot of every layer group through
// the manager's tables, carries out the copies it asks for, and compares everything readable after each operation.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/kv/paged_kv_manager.h"

namespace quire {

/// Blocks are numbers of its own, never reused; a block's references are counted by walking the tables.
class KvModel {
 public:
  KvModel(std::int32_t num_blocks, const GroupGeometry& geometry)
      : num_blocks_(num_blocks), block_size_(geometry.block_size()), groups_(geometry.groups()) {}

  using Values = std::vector<std::uint64_t>;
  struct Sequence {
    std::vector<std::vector<int>> tables;  ///< [num_groups]; 0: a window has passed over the entry
    std::int64_t num_tokens = 0;
  };

  bool try_reserve(SequenceId sequence, const Values& values);  ///< appends positions with these values
  void truncate(SequenceId sequence, std::int64_t num_tokens);
  void pass_windows(SequenceId sequence);  ///< all positions have been computed
  void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens);
  void release(SequenceId sequence);

  int ref_count(int block) const;
  std::int64_t num_free() const;
  std::int64_t num_held(SequenceId sequence) const;
  /// What the position holds in the group; nullopt: its block was given back.
  std::optional<std::uint64_t> value_at(SequenceId sequence, std::size_t group, std::int64_t position) const;

  std::map<SequenceId, Sequence> sequences;

 private:
  std::map<int, Values> contents_;
  int next_block_ = 1;
  void collect();

  std::int32_t num_blocks_;
  std::int32_t block_size_;
  std::vector<LayerGroup> groups_;
};

/// A value written in every group is told apart by this.
std::uint64_t value_in_group(std::uint64_t value, std::size_t group);

/// One step of a test: a plan of reservations and releases, or a fork or a release outside of a plan.
class KvChecker {
 public:
  KvChecker(std::int32_t num_blocks, const GroupGeometry& geometry);
  KvChecker(std::int32_t num_blocks, std::int32_t block_size);  ///< one full group

  struct Operation {
    SequenceId sequence;
    std::int64_t num_more;          ///< positions to append; -1: release
    std::int64_t num_proposed = 0;  ///< more than these, if there is room; once computed they do not count,
    std::int64_t num_accepted = 0;  ///< but for so many
  };
  /// Plans all operations (those on unknown or already planned sequences are left out), then commits or abandons.
  void run_plan(const std::vector<Operation>& operations, bool commit);
  /// At all that the parent has, or `num_less` before.
  void fork(SequenceId parent, SequenceId child, std::int64_t num_less = 0);
  void release(SequenceId sequence);

  bool has(SequenceId sequence) const { return model_.sequences.count(sequence) > 0; }
  std::vector<SequenceId> sequences() const;
  const PagedKvManager& manager() const { return manager_; }

  /// The first difference between manager and model so far, or violated invariant.
  const std::optional<std::string>& difference() const { return difference_; }

 private:
  void note(std::string text);
  void apply(const KvChanges& changes, const std::vector<KvReservation>& reservations,
             const std::map<SequenceId, KvModel::Values>& written);
  void write(const KvReservation& row, const KvModel::Values& values);
  bool extend(const Operation& operation, std::int64_t total, KvModel::Values& values, KvModel& planned);
  void truncate(SequenceId sequence, std::int64_t num_tokens);
  void pass_windows(const std::vector<KvReservation>& reservations);
  void compare();
  void compare_sequence(SequenceId sequence);
  void compare_table(SequenceId sequence, std::size_t group);
  KvModel::Values fresh_values(std::int64_t count);

  std::size_t num_groups_;
  std::int32_t block_size_;
  PagedKvManager manager_;
  KvModel model_;
  std::vector<KvModel::Values> slots_;  ///< [num_blocks + 1][block_size], the physical memory
  std::map<SequenceId, std::vector<std::vector<BlockId>>> mirror_;  ///< tables as an executor sees them
  std::uint64_t next_value_ = 1;
  std::optional<std::string> difference_;
};

}  // namespace quire
