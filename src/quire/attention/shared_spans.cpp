#include "quire/attention/shared_spans.h"

#include <algorithm>

#include "quire/attention/attention_kernels.h"
#include "quire/base/checked.h"

namespace quire::attention {
namespace {

/// The table entries of one tile.
std::span<const BlockId> entries_of(const SequenceChunk& chunk, std::int64_t block_size, std::int64_t tile) {
  const std::int64_t first = tile * kTileTokens / block_size,
                     count = std::max<std::int64_t>(1, kTileTokens / block_size);
  return chunk.blocks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

void SharedSpans::find(const Input& input) {
  runs_.clear();
  members_.clear();
  see(input);
  const auto num_chunks = static_cast<std::int32_t>(input.chunks.size());
  if (input.window > 0) {
    // Each chunk begins at a span of its own, so none follows from another.
    std::int64_t begin = std::int64_t{1} << 40, end = 0;
    for (const Tiles& seen : seen_) {
      if (seen.begin >= seen.end) continue;
      begin = std::min(begin, seen.begin / kSpanTiles), end = std::max(end, ceil_div(seen.end, kSpanTiles));
    }
    for (std::int64_t span = begin; span < end; ++span) {
      candidates_.clear();
      for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) candidates_.push_back(chunk);
      group(input, span);
    }
    return;
  }
  candidates_.clear();
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) candidates_.push_back(chunk);
  group(input, 0);
  // Who shares a span has shared all before it: the runs found are the queue of those that may go on.
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const SharedRun run = runs_[i];
    if (run.num_tiles < kSpanTiles) continue;
    const auto shared = members(run);
    candidates_.assign(shared.begin(), shared.end());
    group(input, run.span + 1);
  }
}

void SharedSpans::see(const Input& input) {
  seen_.clear();
  for (const SequenceChunk& chunk : input.chunks) {
    Tiles seen;
    if (chunk.num_tokens > 0 && chunk.num_tokens <= input.most_tokens && !chunk.blocks.empty()) {
      const std::int64_t last_end = chunk.first_position + chunk.num_tokens;
      seen.begin = input.window > 0 ? ceil_div(std::max<std::int64_t>(0, last_end - input.window), kTileTokens) : 0;
      seen.end = (chunk.first_position + 1) / kTileTokens;
    }
    seen_.push_back(seen);
  }
}

/// Tiles of a span that may be shared: none unless the first one is seen in full.
std::int64_t SharedSpans::tiles_of(std::int32_t chunk, std::int64_t span) const {
  const Tiles& seen = seen_[static_cast<std::size_t>(chunk)];
  const std::int64_t first = span * kSpanTiles;
  return first < seen.begin ? 0 : std::clamp<std::int64_t>(seen.end - first, 0, kSpanTiles);
}

std::int64_t SharedSpans::common_tiles(const Input& input, std::int64_t span, std::int32_t a, std::int32_t b) const {
  const SequenceChunk& left = input.chunks[static_cast<std::size_t>(a)];
  const SequenceChunk& right = input.chunks[static_cast<std::size_t>(b)];
  const std::int64_t most = std::min(tiles_of(a, span), tiles_of(b, span));
  for (std::int64_t tile = 0; tile < most; ++tile) {
    if (!std::ranges::equal(entries_of(left, input.block_size, span * kSpanTiles + tile),
                            entries_of(right, input.block_size, span * kSpanTiles + tile)))
      return tile;
  }
  return most;
}

/// Finds the runs of a span among the candidates.
void SharedSpans::group(const Input& input, std::int64_t span) {
  std::erase_if(candidates_, [&](std::int32_t chunk) { return tiles_of(chunk, span) == 0; });
  const auto first_entries = [&](std::int32_t chunk) {
    return entries_of(input.chunks[static_cast<std::size_t>(chunk)], input.block_size, span * kSpanTiles);
  };
  const auto is_less = [&](std::int32_t a, std::int32_t b) {
    return std::ranges::lexicographical_compare(first_entries(a), first_entries(b));
  };
  if (!std::is_sorted(candidates_.begin(), candidates_.end(), is_less))
    std::sort(candidates_.begin(), candidates_.end(), is_less);
  for (auto begin = candidates_.begin(); begin != candidates_.end();) {
    const auto end = std::find_if(begin, candidates_.end(), [&](std::int32_t chunk) { return is_less(*begin, chunk); });
    divide(input, span, {begin, end});
    begin = end;
  }
}

/// Chunks that have the first tile in common. Those that share the whole span become runs of their own; the rest share
/// what all of them have in common.
void SharedSpans::divide(const Input& input, std::int64_t span, std::span<std::int32_t> chunks) {
  while (chunks.size() >= 2) {
    const std::int32_t leader = chunks.front();
    std::int64_t fewest = kSpanTiles;
    const auto others = std::partition(chunks.begin(), chunks.end(), [&](std::int32_t chunk) {
      if (chunk == leader) return true;
      const std::int64_t common = common_tiles(input, span, leader, chunk);
      fewest = std::min(fewest, common);
      return common == kSpanTiles;
    });
    const auto num_alike = static_cast<std::size_t>(others - chunks.begin());
    if (num_alike < 2) return add_run(span, fewest, chunks);
    add_run(span, kSpanTiles, chunks.first(num_alike));
    chunks = chunks.subspan(num_alike);
  }
}

void SharedSpans::add_run(std::int64_t span, std::int64_t num_tiles, std::span<const std::int32_t> chunks) {
  runs_.push_back({static_cast<std::int32_t>(span), static_cast<std::int32_t>(num_tiles),
                   static_cast<std::int32_t>(members_.size()), static_cast<std::int32_t>(chunks.size())});
  members_.insert(members_.end(), chunks.begin(), chunks.end());
}

}  // namespace quire::attention
