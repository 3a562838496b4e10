#pragma once
// The kernels of attention_kernels.h as a template over a tier's Lanes. Rules 9 to 12 of the arithmetic fix the order
// of every operation; what is free is how many rows share a load. Register blocks: up to kBlockRows rows by
// kBlockVectors vectors of sixteen tokens (scores) or sixteen dimensions (weighted sums).
//
// A tile is read in place from f16 or f32 blocks when few rows share it (decode), else decoded once to f32 (prefill).

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/ops/inline.h"
#include "quire/ops/lanes_exp.h"

namespace quire::attention {

template <class Lanes>
struct TileKernels {
  static constexpr int kBlockRows = Lanes::kRegisters >= 32 ? 6 : 3;
  static constexpr int kBlockVectors = Lanes::kRegisters >= 32 ? 4 : 2;
  static constexpr int kTileVectors = kTileTokens / 16;
  static_assert(kBlockRows <= kMaxBlockRows);

  /// Tokens [begin, end) of a tile.
  struct Range {
    std::int64_t begin, end;
    bool empty() const { return begin >= end; }
    bool operator==(const Range& other) const { return begin == other.begin && end == other.end; }
  };

  /// One tile of K and V. Only what some row sees is ever dereferenced as a value; the rest may hold anything.
  template <class T>
  struct Tile {
    const T* k[kTileVectors];  ///< sixteen tokens each; where none is seen, the address of a vector that is
    const T* v[kTileVectors];  ///< first token of each piece
    std::int64_t k_stride, v_stride, piece_tokens;
    const T* next_k[kTileVectors];  ///< prefetched while this tile is computed
    const T* next_v[kTileVectors];
  };

  /// A run of rows that one register block computes.
  struct Block {
    std::int64_t first_row;
    int num_rows;
  };

  static QUIRE_INLINE Lanes load(const float* p) { return Lanes::load(p); }
  static QUIRE_INLINE Lanes load(const std::uint16_t* p) { return Lanes::load_f16(p); }
  static QUIRE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static QUIRE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  static QUIRE_INLINE Range visible(const QueryRows& rows, std::int64_t token, std::int64_t tile_start) {
    return {larger(rows.visible_begin(token) - tile_start, 0),
            smaller(rows.visible_end(token) - tile_start, kTileTokens)};
  }

  /// Blocks of nearly equal size.
  static QUIRE_INLINE std::int64_t num_blocks(std::int64_t num_rows) {
    return (num_rows + kBlockRows - 1) / kBlockRows;
  }
  static QUIRE_INLINE int block_rows(std::int64_t num_rows, std::int64_t block) {
    std::int64_t count = num_blocks(num_rows);
    return static_cast<int>(num_rows / count + (block < num_rows % count ? 1 : 0));
  }

  /// Per block of rows: [head_dim][rows of the block].
  static void pack_queries(const QueryRows& rows, float* packed) {
    std::int64_t row = 0;
    for (std::int64_t b = 0; b < num_blocks(rows.num_rows()); ++b) {
      int n = block_rows(rows.num_rows(), b);
      float* out = packed + row * rows.head_dim;
      for (int r = 0; r < n; ++r, ++row) {
        const float* q = rows.q + row / rows.group * rows.q_stride + row % rows.group * rows.head_dim;
        for (std::int64_t d = 0; d < rows.head_dim; ++d) out[d * n + r] = q[d] * rows.q_factor;
      }
    }
  }

  // --- scores -------------------------------------------------------------------------------------------------------

  template <class T, int kRows>
  static void block_scores(const Tile<T>& tile, Range seen, std::int64_t head_dim, const float* q, float* scores) {
    for (int first = 0; first < kTileVectors; first += kBlockVectors) {
      if (seen.end <= first * 16 || seen.begin >= (first + kBlockVectors) * 16) continue;
      Lanes sums[kRows][kBlockVectors];
      for (auto& row : sums) {
        for (auto& sum : row) sum = Lanes::zero();
      }
      const T* k[kBlockVectors];
      for (int v = 0; v < kBlockVectors; ++v) k[v] = tile.k[first + v];
      for (std::int64_t d = 0; d < head_dim; ++d) {
        for (int v = 0; v < kBlockVectors; ++v) {
          if constexpr (sizeof(T) == 2) __builtin_prefetch(tile.next_k[first + v] + d * tile.k_stride);
        }
        for (int v = 0; v < kBlockVectors; ++v) {
          Lanes keys = load(k[v] + d * tile.k_stride);
          for (int r = 0; r < kRows; ++r) sums[r][v] = fma(Lanes::broadcast(q[d * kRows + r]), keys, sums[r][v]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kBlockVectors; ++v) sums[r][v].store(scores + r * kTileTokens + (first + v) * 16);
      }
    }
  }

  // --- softmax ------------------------------------------------------------------------------------------------------

  /// Turns the scores of one row into weights and updates its m and l. Returns the factor for its o.
  static QUIRE_INLINE float softmax_row(float* scores, Range seen, float& m, float& l) {
    Lanes s[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) {
      Lanes raw = Lanes::load(scores + v * 16);
      auto mask = Lanes::between(seen.begin - v * 16, seen.end - v * 16);
      s[v] = select(mask, raw, Lanes::broadcast(-__builtin_inff()));
    }
    Lanes top = s[0];
    for (int v = 1; v < kTileVectors; ++v) top = max(s[v], top);
    float best = largest(top);
    float new_m = best > m ? best : m;
    Lanes total = Lanes::zero();
    for (int v = 0; v < kTileVectors; ++v) {
      Lanes p = ops::exp2(s[v] - Lanes::broadcast(new_m));
      p.store(scores + v * 16);
      total = total + p;
    }
    float factor = ops::exp2(Lanes::broadcast(m - new_m)).first();
    l = __builtin_fmaf(l, factor, sum(total));
    m = new_m;
    return factor;
  }

  // --- weighted sums ------------------------------------------------------------------------------------------------

  /// o = o * factor, then one fma a token in order, for kVectors vectors of dimensions from `dim` on.
  template <class T, int kRows, int kVectors>
  static void add_values(const Tile<T>& tile, Range seen, std::int64_t dim, const float* weights, const float* factors,
                         float* o, std::int64_t o_stride) {
    Lanes sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      Lanes factor = Lanes::broadcast(factors[r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::load(o + r * o_stride + v * 16) * factor;
    }
    for (std::int64_t t = seen.begin; t < seen.end;) {
      std::int64_t piece = t / tile.piece_tokens, begin = piece * tile.piece_tokens;
      std::int64_t end = smaller(seen.end, begin + tile.piece_tokens);
      const T* values = tile.v[piece] + (t - begin) * tile.v_stride + dim;
      std::int64_t ahead = tile.next_v[piece] - tile.v[piece];
      for (; t < end; ++t, values += tile.v_stride) {
        if constexpr (sizeof(T) == 2) {
          for (int v = 0; v < kVectors; v += 2) __builtin_prefetch(values + ahead + v * 16);
        }
        for (int v = 0; v < kVectors; ++v) {
          Lanes value = load(values + v * 16);
          for (int r = 0; r < kRows; ++r) {
            sums[r][v] = fma(Lanes::broadcast(weights[r * kTileTokens + t]), value, sums[r][v]);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v].store(o + r * o_stride + v * 16);
    }
  }

  template <class T, int kRows>
  static void add_values_all(const Tile<T>& tile, Range seen, std::int64_t head_dim, const float* weights,
                             const float* factors, float* o) {
    std::int64_t stride = padded_dim(head_dim), dim = 0;
    for (; dim + kBlockVectors * 16 <= stride; dim += kBlockVectors * 16) {
      add_values<T, kRows, kBlockVectors>(tile, seen, dim, weights, factors, o + dim, stride);
    }
    if constexpr (kBlockVectors > 2) {
      for (; dim + 32 <= stride; dim += 32) {
        add_values<T, kRows, 2>(tile, seen, dim, weights, factors, o + dim, stride);
      }
    }
    for (; dim < stride; dim += 16) add_values<T, kRows, 1>(tile, seen, dim, weights, factors, o + dim, stride);
  }

  /// Calls body with the number of rows as a constant.
  template <class Body>
  static QUIRE_INLINE void with_rows(int rows, Body&& body) {
    switch (rows) {
      case 1:
        return body.template operator()<1>();
      case 2:
        return body.template operator()<2>();
      case 3:
        return body.template operator()<3>();
    }
    if constexpr (kBlockRows > 3) {
      switch (rows) {
        case 4:
          return body.template operator()<4>();
        case 5:
          return body.template operator()<5>();
        case 6:
          return body.template operator()<6>();
      }
    }
  }

  // --- tiles --------------------------------------------------------------------------------------------------------

  /// Rows of a block whose tokens see the same part of the tile take it together.
  template <class T>
  static void attend_block(const QueryRows& rows, const Tile<T>& tile, std::int64_t tile_start, Block block,
                           const WorkArea& area, const PartialRows& out) {
    std::int64_t last_row = block.first_row + block.num_rows - 1;
    std::int64_t first_token = block.first_row / rows.group, last_token = last_row / rows.group;
    Range seen = {visible(rows, first_token, tile_start).begin, visible(rows, last_token, tile_start).end};
    if (seen.empty()) return;
    with_rows(block.num_rows, [&]<int kRows>() {
      block_scores<T, kRows>(tile, seen, rows.head_dim, area.q + block.first_row * rows.head_dim, area.scores);
    });

    float factors[kBlockRows];
    auto add_run = [&](std::int64_t begin, std::int64_t end, Range range) {
      if (range.empty() || begin == end) return;
      std::int64_t at = begin - block.first_row;
      with_rows(static_cast<int>(end - begin), [&]<int kRows>() {
        add_values_all<T, kRows>(tile, range, rows.head_dim, area.scores + at * kTileTokens, factors + at,
                                 out.o + begin * padded_dim(rows.head_dim));
      });
    };
    std::int64_t run_begin = block.first_row;
    Range run_range = visible(rows, first_token, tile_start);
    for (std::int64_t token = first_token; token <= last_token; ++token) {
      Range range = visible(rows, token, tile_start);
      std::int64_t begin = larger(block.first_row, token * rows.group);
      std::int64_t end = smaller(last_row + 1, (token + 1) * rows.group);
      if (!(range == run_range)) {
        add_run(run_begin, begin, run_range);
        run_begin = begin;
        run_range = range;
      }
      if (range.empty()) continue;
      for (std::int64_t row = begin; row < end; ++row) {
        std::int64_t at = row - block.first_row;
        factors[at] = softmax_row(area.scores + at * kTileTokens, range, out.m[row], out.l[row]);
      }
    }
    add_run(run_begin, last_row + 1, run_range);
  }

  template <class T>
  static void attend_tile(const QueryRows& rows, const Tile<T>& tile, std::int64_t tile_start, const WorkArea& area,
                          const PartialRows& out) {
    Block block = {0, 0};
    for (std::int64_t b = 0; b < num_blocks(rows.num_rows()); ++b, block.first_row += block.num_rows) {
      block.num_rows = block_rows(rows.num_rows(), b);
      attend_block(rows, tile, tile_start, block, area, out);
    }
  }

  template <class T>
  static QUIRE_INLINE const T* k_at(const CachedHead& cache, std::int64_t position) {
    auto block = cache.base + cache.blocks[position / cache.block_size] * cache.block_stride;
    return reinterpret_cast<const T*>(block) + position % cache.block_size;
  }
  template <class T>
  static QUIRE_INLINE const T* v_at(const CachedHead& cache, std::int64_t position, std::int64_t head_dim) {
    auto block = cache.base + cache.blocks[position / cache.block_size] * cache.block_stride + cache.panel_bytes;
    return reinterpret_cast<const T*>(block) + position % cache.block_size * head_dim;
  }

  /// Addresses of a tile of which the positions `seen` are seen. Blocks without a seen position are not looked up.
  template <class T>
  static QUIRE_INLINE void locate(const CachedHead& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                                  const T** k, const T** v) {
    std::int64_t first = seen.begin / 16, last = (seen.end - 1) / 16;
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      k[i] = k_at<T>(cache, tile_start + 16 * larger(first, smaller(i, last)));
    }
    std::int64_t piece = smaller(cache.block_size, kTileTokens);
    first = seen.begin / piece, last = (seen.end - 1) / piece;
    for (std::int64_t i = 0; i < kTileTokens / piece; ++i) {
      v[i] = v_at<T>(cache, tile_start + piece * larger(first, smaller(i, last)), head_dim);
    }
  }

  static QUIRE_INLINE Range seen_by_any(const QueryRows& rows, std::int64_t tile_start) {
    return {visible(rows, 0, tile_start).begin, visible(rows, rows.num_tokens - 1, tile_start).end};
  }

  template <class T>
  static void attend_in_place(const QueryRows& rows, const CachedHead& cache, std::int64_t tile_start,
                              const WorkArea& area, const PartialRows& out) {
    Tile<T> tile;
    tile.k_stride = cache.block_size;
    tile.v_stride = rows.head_dim;
    tile.piece_tokens = smaller(cache.block_size, kTileTokens);
    locate<T>(cache, rows.head_dim, tile_start, seen_by_any(rows, tile_start), tile.k, tile.v);
    std::int64_t next = tile_start + kTileTokens;
    Range next_seen = seen_by_any(rows, next);
    if (next_seen.empty()) next = tile_start, next_seen = seen_by_any(rows, tile_start);
    locate<T>(cache, rows.head_dim, next, next_seen, tile.next_k, tile.next_v);
    attend_tile(rows, tile, tile_start, area, out);
  }

  /// Decodes the seen tokens of a tile to f32: area.k [head_dim, 64] and area.v [64, padded_dim].
  template <class T>
  static void decode_tile(const CachedHead& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                          const WorkArea& area) {
    std::int64_t run = smaller(cache.block_size, 16);
    for (std::int64_t t = seen.begin / run * run; t < seen.end; t += run) {
      const T* k = k_at<T>(cache, tile_start + t);
      for (std::int64_t d = 0; d < head_dim; ++d, k += cache.block_size) {
        Lanes keys = load(k);
        run == 16 ? keys.store(area.k + d * kTileTokens + t) : keys.store_partial(area.k + d * kTileTokens + t, run);
      }
    }
    std::int64_t stride = padded_dim(head_dim);
    for (std::int64_t t = seen.begin; t < seen.end; ++t) {
      const T* v = v_at<T>(cache, tile_start + t, head_dim);
      for (std::int64_t d = 0; d < stride; d += 16) load(v + d).store(area.v + t * stride + d);
    }
  }

  template <class T>
  static void attend_decoded(const QueryRows& rows, const CachedHead& cache, std::int64_t tile_start,
                             const WorkArea& area, const PartialRows& out) {
    decode_tile<T>(cache, rows.head_dim, tile_start, seen_by_any(rows, tile_start), area);
    Tile<float> tile;
    for (int v = 0; v < kTileVectors; ++v) tile.k[v] = tile.next_k[v] = area.k + v * 16;
    tile.v[0] = tile.next_v[0] = area.v;
    tile.k_stride = kTileTokens;
    tile.v_stride = padded_dim(rows.head_dim);
    tile.piece_tokens = kTileTokens;
    attend_tile(rows, tile, tile_start, area, out);
  }

  static void attend_span(const QueryRows& rows, const CachedHead& cache, std::int64_t span, const WorkArea& area,
                          const PartialRows& out) {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) out.m[row] = -__builtin_inff(), out.l[row] = 0.0f;
    std::int64_t elements = rows.num_rows() * padded_dim(rows.head_dim);
    for (std::int64_t i = 0; i < elements; i += 16) Lanes::zero().store(out.o + i);
    bool in_place = rows.num_rows() <= 2 * kBlockRows && cache.block_size % 16 == 0 && rows.head_dim % 16 == 0;
    for (std::int64_t tile = 0; tile < kSpanTokens / kTileTokens; ++tile) {
      std::int64_t start = span * kSpanTokens + tile * kTileTokens;
      if (seen_by_any(rows, start).empty()) continue;
      if (in_place) {
        cache.is_f16 ? attend_in_place<std::uint16_t>(rows, cache, start, area, out)
                     : attend_in_place<float>(rows, cache, start, area, out);
      } else {
        cache.is_f16 ? attend_decoded<std::uint16_t>(rows, cache, start, area, out)
                     : attend_decoded<float>(rows, cache, start, area, out);
      }
    }
  }

  // --- merging ------------------------------------------------------------------------------------------------------

  static void fold_row(const PartialRows& sum, const PartialRows& next, std::int64_t row, std::int64_t head_dim) {
    float m = next.m[row] > sum.m[row] ? next.m[row] : sum.m[row];
    float sum_factor = ops::exp2(Lanes::broadcast(sum.m[row] - m)).first();
    float next_factor = ops::exp2(Lanes::broadcast(next.m[row] - m)).first();
    sum.m[row] = m;
    sum.l[row] = __builtin_fmaf(next.l[row], next_factor, sum.l[row] * sum_factor);
    Lanes a = Lanes::broadcast(sum_factor), b = Lanes::broadcast(next_factor);
    std::int64_t stride = padded_dim(head_dim);
    float* o = sum.o + row * stride;
    for (std::int64_t d = 0; d < stride; d += 16) {
      fma(Lanes::load(next.o + row * stride + d), b, Lanes::load(o + d) * a).store(o + d);
    }
  }

  static void finish_row(const PartialRows& sum, std::int64_t row, std::int64_t head_dim, float* out) {
    Lanes inverse = Lanes::broadcast(1.0f / sum.l[row]);
    const float* o = sum.o + row * padded_dim(head_dim);
    std::int64_t d = 0;
    for (; d + 16 <= head_dim; d += 16) (Lanes::load(o + d) * inverse).store(out + d);
    if (d < head_dim) (Lanes::load(o + d) * inverse).store_partial(out + d, head_dim - d);
  }

  // --- storing ------------------------------------------------------------------------------------------------------

  static bool store_f16(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride) {
    // From 65,520 on rounding to nearest gives infinity.
    const Lanes limit = Lanes::broadcast(65520.0f);
    bool fits = true;
    for (std::int64_t i = 0; i < n; i += 16) {
      std::int64_t count = smaller(16, n - i);
      Lanes value = count == 16 ? Lanes::load(x + i) : Lanes::load_partial(x + i, count);
      fits &= bits(less(abs(value), limit)) == 0xFFFF;
      std::uint16_t halves[16];
      value.store_f16(halves);
      for (std::int64_t j = 0; j < count; ++j) out[(i + j) * stride] = halves[j];
    }
    return fits;
  }

  static bool store_f32(const float* x, std::int64_t n, float* out, std::int64_t stride) {
    bool fits = true;
    for (std::int64_t i = 0; i < n; ++i) {
      fits &= __builtin_fabsf(x[i]) < __builtin_inff();
      out[i * stride] = x[i];
    }
    return fits;
  }

  static constexpr AttentionKernels table() {
    return {pack_queries, attend_span, fold_row, finish_row, store_f16, store_f32};
  }
};

}  // namespace quire::attention
