#pragma once
// What of K and V is fetched into the cache before it is read: part of the kernels of attention_kernels.h, over a
// tier's TileMemory.
//
// Memory is asked for in pieces of kFetchBytes, in about the order in which a kernel reads them, and each piece three
// times: when kFetchAhead bytes before it are being read. A core drops requests when too many are under way, and reads
// so fast that many are: what was dropped is asked for again, and what has come costs no more than the instruction.

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/ops/inline.h"

namespace quire::attention {

template <class Memory>
struct TileFetch {
  using Range = typename Memory::Range;

  /// How many vectors of sixteen elements make a piece.
  template <class T>
  static constexpr int vectors_a_fetch() {
    return static_cast<int>(kFetchBytes / (16 * sizeof(T)));
  }

  static QUIRE_INLINE void prefetch(const std::byte* piece) {
    for (std::int64_t line = 0; line < kFetchBytes; line += 64) __builtin_prefetch(piece + line);
  }

  /// To be called when the piece at `now` begins to be read.
  static QUIRE_INLINE void ask(const std::byte* const* now) {
    for (std::int64_t ahead : kFetchAhead) prefetch(now[ahead]);
  }

  struct Count {
    std::int64_t keys, all;
  };

  /// Lists the pieces of a tile: its keys, a piece of each block in turn, then its values in order of position.
  template <class T, class Head>
  static QUIRE_INLINE Count list(const UpcomingTile<Head>& tile, std::int64_t head_dim, const std::byte** out) {
    constexpr std::int64_t kBytes = sizeof(T);
    const int shift = Memory::piece_shift(tile.cache);
    const std::int64_t first = tile.begin >> shift, last = (tile.end - 1) >> shift, step = std::int64_t{1} << shift;
    const std::byte* blocks[Memory::kMostPieces];
    for (std::int64_t i = first; i <= last; ++i)
      blocks[i - first] = Memory::k_panel(tile.cache, tile.tile_start + (i << shift));
    Count count = {0, 0};
    // Of a block larger than a tile all keys: their rows are interleaved.
    const std::int64_t key_bytes = head_dim * Memory::panel_tokens(tile.cache) * kBytes;
    for (std::int64_t at = 0; at < key_bytes; at += kFetchBytes) {
      for (std::int64_t i = 0; i <= last - first; ++i) out[count.keys++] = blocks[i] + at;
    }
    count.all = count.keys;
    for (std::int64_t i = first; i <= last; ++i) {
      const std::int64_t from = Memory::larger(tile.begin, i * step), to = Memory::smaller(tile.end, (i + 1) * step);
      const auto* values =
          reinterpret_cast<const std::byte*>(Memory::template v_at<T>(tile.cache, tile.tile_start + from, head_dim));
      for (std::int64_t at = 0; at < (to - from) * head_dim * kBytes; at += kFetchBytes) out[count.all++] = values + at;
    }
    return count;
  }

  /// Makes the list for `tile` and the one after it, which may be null, and returns how many of its pieces are keys.
  template <class T, class Head>
  static QUIRE_INLINE std::int64_t prepare(const UpcomingTile<Head>& tile, const UpcomingTile<Head>* next,
                                           std::int64_t head_dim, FetchList& list_of) {
    const std::byte** pieces = list_of.pieces;
    Count here = {list_of.next_keys, list_of.end - list_of.next};
    if (list_of.next_block == first_block(tile) && list_of.next_tile_start == tile.tile_start) {
      __builtin_memmove(pieces, pieces + list_of.next, static_cast<std::size_t>(here.all) * sizeof(*pieces));
    } else {
      here = list<T>(tile, head_dim, pieces);
      for (std::int64_t i = 0; i < Memory::smaller(here.all, kFetchAhead[0]); ++i) prefetch(pieces[i]);
    }
    list_of.next = list_of.end = here.all;
    list_of.next_block = nullptr;
    if (next) {
      const Count after = list<T>(*next, head_dim, pieces + here.all);
      list_of.end += after.all;
      list_of.next_keys = after.keys;
      list_of.next_block = first_block(*next);
      list_of.next_tile_start = next->tile_start;
    }
    // What is asked for while this tile is read may reach beyond both.
    const std::int64_t steps = most_fetches(head_dim, Memory::panel_tokens(tile.cache), sizeof(T));
    for (std::int64_t i = list_of.end; i < steps + kMostFetchesAhead; ++i) pieces[i] = pieces[list_of.end - 1];
    return here.keys;
  }

 private:
  template <class Head>
  static QUIRE_INLINE const std::byte* first_block(const UpcomingTile<Head>& tile) {
    return Memory::k_panel(tile.cache, tile.tile_start + tile.begin);
  }
};

}  // namespace quire::attention
