#pragma once
// Cascade: which spans of which chunks lie in the same physical blocks, so that attention walks their K and V once for
// all of them (after FlashInfer's cascade inference and Hydragen, arXiv 2402.05099). Branches and beams of one request
// and requests with a common cached prefix have the same leading table entries; nothing else is looked at: equal block
// ids are equal memory. Sharing changes which rows are computed together, never a bit of a row.
//
// What may be shared of a span is whole tiles, from its first one on, that every row of all chunks sees in full: no
// causal boundary, no window begins in it.
//
// Cost: a few comparisons of block ids for each chunk, and again for each span that it shares. With a window, where
// tables may begin with null entries, for each span that a chunk sees.
//
// Invariants
// 1. The members of a run are distinct chunks, at least two; a chunk is in at most one run of a span.
// 2. All members have the same block ids for the run's tiles, and all their rows see all of them.
// 3. Without a window a chunk's shared spans are its first ones.

#include <cstdint>
#include <span>
#include <vector>

#include "quire/attention/attention_call.h"

namespace quire::attention {

/// Tiles [0, num_tiles) of a span that several chunks have in common.
struct SharedRun {
  std::int32_t span = 0, num_tiles = 0;
  std::int32_t first_member = 0, num_members = 0;
};

class SharedSpans {
 public:
  struct Input {
    std::span<const SequenceChunk> chunks;
    std::int64_t block_size = 0;
    std::int64_t window = 0;
    std::int64_t most_tokens = 0;  ///< chunks of more tokens share nothing: they share loads among their own rows
  };

  /// Replaces what was found before. Allocates only to grow.
  void find(const Input& input);

  std::span<const SharedRun> runs() const { return runs_; }
  /// Indices into the chunks.
  std::span<const std::int32_t> members(const SharedRun& run) const {
    return std::span(members_).subspan(static_cast<std::size_t>(run.first_member),
                                       static_cast<std::size_t>(run.num_members));
  }

 private:
  /// The tiles of a chunk that all its rows see in full.
  struct Tiles {
    std::int64_t begin = 0, end = 0;
  };
  void see(const Input& input);
  void group(const Input& input, std::int64_t span);
  void divide(const Input& input, std::int64_t span, std::span<std::int32_t> chunks);
  void add_run(std::int64_t span, std::int64_t num_tiles, std::span<const std::int32_t> chunks);
  std::int64_t tiles_of(std::int32_t chunk, std::int64_t span) const;
  std::int64_t common_tiles(const Input& input, std::int64_t span, std::int32_t a, std::int32_t b) const;

  std::vector<SharedRun> runs_;
  std::vector<std::int32_t> members_, candidates_;
  std::vector<Tiles> seen_;  ///< by chunk
};

}  // namespace quire::attention
