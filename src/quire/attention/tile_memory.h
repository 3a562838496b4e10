#pragma once
// Where the K and V of a tile lie, and how they become floats: a template over a tier's Lanes, part of the kernels of
// attention_kernels.h. Sixteen keys of one dimension are a vector; from blocks of eight tokens it is loaded as two
// halves. int8 elements are multiplied by scales, which are decoded to f32 once a tile.

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/attention/tile_fetch.h"
#include "quire/ops/inline.h"

namespace quire::attention {

template <class Lanes>
struct TileMemory {
  using Fetch = TileFetch<TileMemory>;

  /// An element of a bf16 panel.
  struct Bf16 {
    std::uint16_t bits;
  };

  /// An element of a tile that was decoded to f32.
  struct Decoded {
    float value;
  };

  static constexpr int kTileVectors = kTileTokens / 16;
  static constexpr int kMostPieces = kTileTokens / 8;
  static constexpr int kTileShift = 6;
  static_assert(1 << kTileShift == kTileTokens);

  /// Tokens [begin, end) of a tile.
  struct Range {
    std::int64_t begin, end;
    bool empty() const { return begin >= end; }
    bool operator==(const Range& other) const { return begin == other.begin && end == other.end; }
  };

  /// One tile of K and V. Only what some row sees is ever dereferenced as a value; the rest may hold anything.
  template <class T, bool kIsHalved>
  struct Tile {
    static constexpr bool kHalved = kIsHalved;  ///< each vector of keys comes from two blocks
    static constexpr bool kScaled = sizeof(T) == 1;
    static constexpr bool kFetches = !__is_same(T, Decoded);
    static constexpr int kKeyTokens = kIsHalved ? 8 : 16;
    static constexpr int kKeyPieces = kTileTokens / kKeyTokens;

    const T* k[kKeyPieces];   ///< kKeyTokens each; where none is seen, the address of a piece that is
    const T* v[kMostPieces];  ///< first token of each piece
    std::int64_t k_stride, v_stride;
    int piece_shift;                        ///< a piece of V is 1 << piece_shift tokens
    const std::byte* const* key_fetches;    ///< this tile's keys in the FetchList
    const std::byte* const* value_fetches;  ///< its values
    const float* k_scales;                  ///< scaled: [scale_groups][kTileTokens]
    const float* v_scales;                  ///< scaled: [kTileTokens][scale_groups]
    std::int64_t num_groups;
  };

  static QUIRE_INLINE Lanes load(const float* p) { return Lanes::load(p); }
  static QUIRE_INLINE Lanes load(const Decoded* p) { return Lanes::load(reinterpret_cast<const float*>(p)); }
  static QUIRE_INLINE Lanes load(const std::uint16_t* p) { return Lanes::load_f16(p); }
  static QUIRE_INLINE Lanes load(const Bf16* p) { return Lanes::load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
  static QUIRE_INLINE Lanes load(const std::int8_t* p) { return Lanes::load_int8(p); }
  static QUIRE_INLINE Lanes load(const float* low, const float* high) { return Lanes::load_halves(low, high); }
  static QUIRE_INLINE Lanes load(const std::uint16_t* low, const std::uint16_t* high) {
    return Lanes::load_f16_halves(low, high);
  }
  static QUIRE_INLINE Lanes load(const Bf16* low, const Bf16* high) {
    return Lanes::load_bf16_halves(reinterpret_cast<const std::uint16_t*>(low),
                                   reinterpret_cast<const std::uint16_t*>(high));
  }
  static QUIRE_INLINE Lanes load(const std::int8_t* low, const std::int8_t* high) {
    return Lanes::load_int8_halves(low, high);
  }
  static QUIRE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static QUIRE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  static QUIRE_INLINE Range visible(const QueryRows& rows, std::int64_t token, std::int64_t tile_start) {
    return {larger(rows.visible_begin(token) - tile_start, 0),
            smaller(rows.visible_end(token) - tile_start, kTileTokens)};
  }
  static QUIRE_INLINE Range seen_by_any(const QueryRows& rows, std::int64_t tile_start) {
    return {visible(rows, 0, tile_start).begin, visible(rows, rows.num_tokens - 1, tile_start).end};
  }

  // Addresses. For contiguous memory all of it is constant but the tile's.

  static QUIRE_INLINE std::int64_t panel_tokens(const CachedHead& cache) { return cache.block_size; }
  static QUIRE_INLINE std::int64_t panel_tokens(const ContiguousHead&) { return kTileTokens; }

  static QUIRE_INLINE int piece_shift(const CachedHead& cache) {
    return cache.block_shift < kTileShift ? cache.block_shift : kTileShift;
  }
  static QUIRE_INLINE int piece_shift(const ContiguousHead&) { return kTileShift; }

  static QUIRE_INLINE const std::byte* k_panel(const CachedHead& cache, std::int64_t position) {
    return cache.base + cache.blocks[position >> cache.block_shift] * cache.block_stride;
  }
  static QUIRE_INLINE const std::byte* k_panel(const ContiguousHead& cache, std::int64_t position) {
    return cache.k + (position >> kTileShift) * cache.tile_stride;
  }
  static QUIRE_INLINE const std::byte* v_panel(const CachedHead& cache, std::int64_t position) {
    return k_panel(cache, position) + cache.panel_bytes;
  }
  static QUIRE_INLINE const std::byte* v_panel(const ContiguousHead& cache, std::int64_t position) {
    return cache.v + (position >> kTileShift) * cache.tile_stride;
  }

  template <class T, class Head>
  static QUIRE_INLINE const T* k_at(const Head& cache, std::int64_t position) {
    return reinterpret_cast<const T*>(k_panel(cache, position)) + (position & (panel_tokens(cache) - 1));
  }
  template <class T, class Head>
  static QUIRE_INLINE const T* v_at(const Head& cache, std::int64_t position, std::int64_t head_dim) {
    return reinterpret_cast<const T*>(v_panel(cache, position)) + (position & (panel_tokens(cache) - 1)) * head_dim;
  }

  /// The scales of a token of an int8 block; those of K lie block_size apart.
  static QUIRE_INLINE const std::uint16_t* k_scales_at(const CachedHead& cache, std::int64_t position,
                                                       std::int64_t head_dim) {
    auto scales = k_panel(cache, position) + cache.block_size * head_dim;
    return reinterpret_cast<const std::uint16_t*>(scales) + (position & (cache.block_size - 1));
  }
  static QUIRE_INLINE const std::uint16_t* v_scales_at(const CachedHead& cache, std::int64_t position,
                                                       std::int64_t head_dim) {
    auto scales = v_panel(cache, position) + cache.block_size * head_dim;
    return reinterpret_cast<const std::uint16_t*>(scales) +
           (position & (cache.block_size - 1)) * scale_groups(head_dim);
  }

  /// Addresses of the pieces of a tile of which the positions `seen` are seen. Blocks without a seen position are not
  /// looked up.
  template <class T, int kKeyTokens, class Head>
  static QUIRE_INLINE void find_pieces(const Head& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                                       const T** k, const T** v) {
    std::int64_t first = seen.begin / kKeyTokens, last = (seen.end - 1) / kKeyTokens;
    for (std::int64_t i = 0; i < kTileTokens / kKeyTokens; ++i) {
      k[i] = k_at<T>(cache, tile_start + kKeyTokens * larger(first, smaller(i, last)));
    }
    int shift = piece_shift(cache);
    first = seen.begin >> shift, last = (seen.end - 1) >> shift;
    for (std::int64_t i = 0; i < kTileTokens >> shift; ++i) {
      v[i] = v_at<T>(cache, tile_start + (larger(first, smaller(i, last)) << shift), head_dim);
    }
  }

  /// The tile at tile_start, and what is to be prefetched meanwhile.
  template <class T, bool kHalved, class Head>
  static void locate(const QueryRows& rows, const Head& cache, const SpanPart<Head>& part, std::int64_t tile_start,
                     const WorkArea& area, Tile<T, kHalved>& tile) {
    constexpr int kKeyTokens = Tile<T, kHalved>::kKeyTokens;
    const std::int64_t head_dim = rows.head_dim;
    const Range seen = seen_by_any(rows, tile_start);
    tile.k_stride = panel_tokens(cache);
    tile.v_stride = head_dim;
    tile.piece_shift = piece_shift(cache);
    find_pieces<T, kKeyTokens>(cache, head_dim, tile_start, seen, tile.k, tile.v);
    const Range next_seen = seen_by_any(rows, tile_start + kTileTokens);
    const bool is_last = next_seen.empty() || tile_start + kTileTokens >= part.end_position();
    const UpcomingTile<Head> following = {cache, tile_start + kTileTokens, next_seen.begin, next_seen.end};
    const UpcomingTile<Head>* next = next_seen.empty() ? nullptr : &following;
    if (is_last && part.upcoming) next = part.upcoming;
    const std::int64_t num_keys =
        Fetch::template prepare<T, Head>({cache, tile_start, seen.begin, seen.end}, next, head_dim, *area.fetches);
    tile.key_fetches = area.fetches->pieces;
    tile.value_fetches = tile.key_fetches + num_keys;
    if constexpr (Tile<T, kHalved>::kScaled) {
      tile.num_groups = scale_groups(head_dim);
      decode_scales<kHalved>(cache, head_dim, tile_start, seen, area.scales);
      tile.k_scales = area.scales;
      tile.v_scales = area.scales + tile.num_groups * kTileTokens;
      const std::int64_t step = smaller(cache.block_size, kTileTokens);
      for (std::int64_t t = next ? next->begin / step * step : kTileTokens; t < (next ? next->end : 0); t += step) {
        __builtin_prefetch(k_scales_at(next->cache, next->tile_start + t, head_dim));
        __builtin_prefetch(v_scales_at(next->cache, next->tile_start + t, head_dim));
      }
    }
  }

  /// The scales of the seen tokens as f32: of K [scale_groups][kTileTokens], behind it of V
  /// [kTileTokens][scale_groups].
  template <bool kHalved>
  static void decode_scales(const CachedHead& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                            float* scales) {
    const std::int64_t groups = scale_groups(head_dim);
    for (std::int64_t t = seen.begin / 16 * 16; t < seen.end; t += 16) {
      const std::uint16_t *low, *high;
      if constexpr (kHalved) {
        // A half that nobody sees is not looked up.
        low = k_scales_at(cache, tile_start + (t + 8 > seen.begin ? t : t + 8), head_dim);
        high = k_scales_at(cache, tile_start + (t + 8 < seen.end ? t + 8 : t), head_dim);
      } else {
        low = high = k_scales_at(cache, tile_start + t, head_dim);
      }
      for (std::int64_t group = 0; group < groups; ++group, low += cache.block_size, high += cache.block_size) {
        const Lanes scale = kHalved ? Lanes::load_f16_halves(low, high) : Lanes::load_f16(low);
        scale.store(scales + group * kTileTokens + t);
      }
    }
    float* v_scales = scales + groups * kTileTokens;
    const std::int64_t step = smaller(cache.block_size, kTileTokens);
    for (std::int64_t t = seen.begin / step * step; t < seen.end; t += step) {
      const std::uint16_t* from = v_scales_at(cache, tile_start + t, head_dim);
      // In order of position, so that what is written too far is overwritten.
      for (std::int64_t i = 0; i < step * groups; i += 16) Lanes::load_f16(from + i).store(v_scales + t * groups + i);
    }
  }

  /// Sixteen keys of dimension d, without their scales.
  template <class T, bool kHalved>
  static QUIRE_INLINE Lanes load_keys(const Tile<T, kHalved>& tile, int vector, std::int64_t d) {
    if constexpr (kHalved) {
      return load(tile.k[2 * vector] + d * tile.k_stride, tile.k[2 * vector + 1] + d * tile.k_stride);
    } else {
      return load(tile.k[vector] + d * tile.k_stride);
    }
  }

  /// Decodes the seen tokens of a tile to f32: area.k [head_dim, 64] and area.v [64, padded_dim].
  template <class T, bool kHalved>
  static void decode(const Tile<T, kHalved>& tile, std::int64_t head_dim, Range seen, const WorkArea& area) {
    constexpr bool kScaled = Tile<T, kHalved>::kScaled;
    constexpr int kVectorsAFetch = Fetch::template vectors_a_fetch<T>();
    std::int64_t num_read = 0;  // vectors
    const auto fetch = [&](const std::byte* const* fetches) {
      if (num_read % kVectorsAFetch == 0) Fetch::ask(fetches + num_read / kVectorsAFetch);
      ++num_read;
    };
    for (int vector = static_cast<int>(seen.begin >> 4); vector <= (seen.end - 1) >> 4; ++vector) {
      float* out = area.k + vector * 16;
      for (std::int64_t d = 0; d < head_dim;) {
        std::int64_t end = head_dim;
        Lanes scale;
        if constexpr (kScaled) {
          scale = Lanes::load(tile.k_scales + d / kScaleGroup * kTileTokens + vector * 16);
          end = smaller(d + kScaleGroup, head_dim);
        }
        for (; d < end; ++d, out += kTileTokens) {
          fetch(tile.key_fetches);
          Lanes keys = load_keys(tile, vector, d);
          if constexpr (kScaled) keys = keys * scale;
          keys.store(out);
        }
      }
    }
    const std::int64_t stride = padded_dim(head_dim);
    num_read = 0;
    for (std::int64_t t = seen.begin; t < seen.end; ++t) {
      const std::int64_t piece = t >> tile.piece_shift, offset = (t - (piece << tile.piece_shift)) * tile.v_stride;
      const T* values = tile.v[piece] + offset;
      for (std::int64_t d = 0; d < stride; d += 16) {
        fetch(tile.value_fetches);
        Lanes value = load(values + d);
        if constexpr (kScaled) value = value * Lanes::broadcast(tile.v_scales[t * tile.num_groups + d / kScaleGroup]);
        value.store(area.v + t * stride + d);
      }
    }
  }

  /// What decode() has made, as a tile.
  static QUIRE_INLINE Tile<Decoded, false> decoded(std::int64_t head_dim, const WorkArea& area) {
    Tile<Decoded, false> tile;
    for (int v = 0; v < kTileVectors; ++v) tile.k[v] = reinterpret_cast<const Decoded*>(area.k) + v * 16;
    tile.v[0] = reinterpret_cast<const Decoded*>(area.v);
    tile.k_stride = kTileTokens;
    tile.v_stride = padded_dim(head_dim);
    tile.piece_shift = kTileShift;
    return tile;
  }
};

}  // namespace quire::attention
