#pragma once
// A film of the pool: what each physical block was over time, and whose. The engine's block manager is asked once a
// step, while the step is planned; the film thins itself out, so that it stays small whatever the length of the run.
//
//     BlockOwners owners;                    // follows the plans
//     BlockFilmRecorder recorder(num_blocks, block_size);
//     each step:  owners.note(plan);  owners.look(kv, cells);  recorder.look(begin_ns, cells);
//     BlockFilm film = recorder.take(end_ns);
//
// Thread-safety: none.

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

class KvManager;
struct BatchPlan;

enum class BlockUse : std::uint8_t {
  free,
  held,    ///< by one sequence
  shared,  ///< by several
  cached   ///< idle: by nobody, with content that a request may find
};

/// One block at one moment. `owner` is the request that holds it, or had it last; of shared ones, the last to come.
struct BlockCell {
  BlockUse use = BlockUse::free;
  RequestId owner;
  friend bool operator==(const BlockCell&, const BlockCell&) = default;
};

/// One block, from one moment to another; never free.
struct BlockSpan {
  std::int32_t block = 0;  ///< from 0
  BlockCell cell;
  std::uint64_t begin_ns = 0, end_ns = 0;
};

struct BlockFilm {
  std::int32_t num_blocks = 0, block_size = 0;
  std::int32_t block_stride = 1;  ///< one of so many blocks was looked at: 0, block_stride, ...
  std::uint64_t step_stride = 1;  ///< in one of so many steps
  std::vector<BlockSpan> spans;   ///< by block, then in order of time; none where nobody looked
};

/// Who was given which block.
class BlockOwners {
 public:
  /// The new blocks of the plan's rows are theirs.
  void note(const BatchPlan& plan);
  /// Of a manager with one pool of blocks (PagedKvManager); empty for any other.
  void look(const KvManager& kv, std::vector<BlockCell>& cells) const;

 private:
  void give(BlockId block, RequestId request);

  std::vector<RequestId> owners_;  ///< by block id, from 0, the null block
};

/// Keeps at most kMaxCells states of blocks: of more than kMaxBlocks blocks every k-th one with the smallest k that
/// fits, and of the steps every 2^n-th.
class BlockFilmRecorder {
 public:
  static constexpr std::int32_t kMaxBlocks = 4096;
  static constexpr std::size_t kMaxCells = std::size_t{1} << 20;

  BlockFilmRecorder(std::int32_t num_blocks, std::int32_t block_size);

  /// True if the next look will be kept: else the cells need not be made.
  bool wants_look() const { return num_steps_ % film_.step_stride == 0; }
  /// The pool during the step that begins then, [num_blocks]; ascending times.
  void look(std::uint64_t begin_ns, std::span<const BlockCell> cells);
  /// Instead of a look that is not wanted.
  void pass() { ++num_steps_; }
  /// The film, which ends then. The recorder is of no use afterwards.
  BlockFilm take(std::uint64_t end_ns);

 private:
  std::size_t blocks_seen() const;
  void halve();

  BlockFilm film_;
  std::uint64_t num_steps_ = 0;
  std::vector<std::uint64_t> moments_;  ///< when it was looked
  std::vector<BlockCell> cells_;        ///< [moments, blocks seen]
};

}  // namespace quire
