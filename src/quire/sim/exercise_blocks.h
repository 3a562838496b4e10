#pragma once
// The contents of the exercise's blocks: a pool of real K and V, which follows the engine's plans, gives blocks to a
// file and takes them back. Every value is a function of request and position, so that whatever is read can be checked.

#include <map>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/core/table_mirror.h"
#include "quire/sim/exercise.h"

namespace quire {

class ExerciseBlocks {
 public:
  ExerciseBlocks(std::int32_t num_blocks, std::int32_t block_size, BlockFile& file);

  /// The sequence loses its memory: its first num_tokens positions go to the file. Before apply().
  Result<void> spill(RequestId request, SequenceId sequence, std::int32_t num_tokens);

  /// Follows the plan: tables, then every row's writes. A row of a request that was spilled begins with what comes back
  /// from the file, compared with what it must be.
  Result<void> apply(const BatchPlan& plan);

  /// Compares the sequence's positions [0, num_tokens) with what they must be.
  Result<void> check(RequestId request, SequenceId sequence, std::int32_t num_tokens) const;

  std::uint64_t bytes_written() const { return bytes_written_; }
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t blocks_restored() const { return blocks_restored_; }

 private:
  struct Spilled {
    std::uint64_t at;
    std::int32_t num_tokens;
  };
  std::size_t floats_per_block() const { return static_cast<std::size_t>(2 * block_size_ * kExerciseWidth); }
  std::span<float> slot(SequenceId sequence, std::int32_t position, int part);
  std::span<const float> slot(SequenceId sequence, std::int32_t position, int part) const;
  Result<void> restore(const PlanRow& row, const Spilled& spilled);

  const std::int32_t block_size_;
  BlockFile& file_;
  std::vector<float> values_;  ///< [num_blocks + 1, K and V, block_size, kExerciseWidth]
  TableMirror tables_;
  std::map<RequestId, Spilled> spilled_;
  std::vector<float> buffer_;
  std::uint64_t bytes_written_ = 0, bytes_read_ = 0, blocks_restored_ = 0;
};

}  // namespace quire
