#pragma once
// The kernels of attention_kernels.h as a template over a tier's Lanes. Rules 9 to 12 of the arithmetic fix the order
// of every operation; what is free is how many rows share a load.
// Register blocks: up to six rows by one to four vectors of sixteen tokens (scores) or dimensions (weighted sums).
//
// Few rows (decode) read a tile in place from f16, bf16 or f32 blocks; else, and from int8, it is decoded to f32 once.

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/ops/inline.h"
#include "quire/ops/lanes_exp.h"

namespace quire::attention {

template <class Lanes>
struct TileKernels {
  /// An element of a bf16 panel.
  struct Bf16 {
    std::uint16_t bits;
  };

  static constexpr int kBlockRows = 6;
  static constexpr int kTileVectors = kTileTokens / 16;
  static constexpr int kTileShift = 6;
  static_assert(1 << kTileShift == kTileTokens);
  /// Vectors of a register block of so many rows: enough sums to hide the latency of fma, few enough for the registers.
  static constexpr int block_vectors(int rows) {
    if (Lanes::kRegisters >= 32 || rows == 1) return 4;
    return rows <= 3 ? 2 : 1;
  }
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
    std::int64_t k_stride, v_stride;
    int piece_shift;                ///< a piece of V is 1 << piece_shift tokens
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
  static QUIRE_INLINE Lanes load(const Bf16* p) { return Lanes::load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
  static QUIRE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static QUIRE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  /// a / b for numbers of rows and tokens: a division of 32 bits takes half the time.
  static QUIRE_INLINE std::int64_t quotient(std::int64_t a, std::int64_t b) {
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  }

  static QUIRE_INLINE Range visible(const QueryRows& rows, std::int64_t token, std::int64_t tile_start) {
    return {larger(rows.visible_begin(token) - tile_start, 0),
            smaller(rows.visible_end(token) - tile_start, kTileTokens)};
  }

  /// Blocks of nearly equal size.
  static QUIRE_INLINE std::int64_t num_blocks(std::int64_t num_rows) {
    return (num_rows + kBlockRows - 1) / kBlockRows;
  }
  static QUIRE_INLINE int block_rows(std::int64_t num_rows, std::int64_t block) {
    std::int64_t count = num_blocks(num_rows), least = quotient(num_rows, count);
    return static_cast<int>(least + (block < num_rows - least * count ? 1 : 0));
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
      case 4:
        return body.template operator()<4>();
      case 5:
        return body.template operator()<5>();
      case 6:
        return body.template operator()<6>();
    }
  }

  /// Per block of rows: [head_dim][rows of the block].
  static void pack_queries(const QueryRows& rows, float* packed) {
    // Short pieces far apart: the hardware does not foresee them.
    for (std::int64_t token = 0; token < rows.num_tokens; ++token) {
      const float* q = rows.token_q(token);
      for (std::int64_t d = 0; d < rows.group * rows.head_dim; d += 16) __builtin_prefetch(q + d);
    }
    const float factor = rows.q_factor;
    std::int64_t row = 0;
    for (std::int64_t b = 0; b < num_blocks(rows.num_rows()); ++b) {
      float* out = packed + row * rows.head_dim;
      with_rows(block_rows(rows.num_rows(), b), [&]<int kRows>() {
        const float* q[kRows];
        for (int r = 0; r < kRows; ++r, ++row) {
          std::int64_t token = quotient(row, rows.group), head = row - token * rows.group;
          q[r] = rows.token_q(token) + head * rows.head_dim;
        }
        for (std::int64_t d = 0, dim = rows.head_dim; d < dim; ++d) {
          for (int r = 0; r < kRows; ++r) out[d * kRows + r] = q[r][d] * factor;
        }
      });
    }
  }

  // --- scores -------------------------------------------------------------------------------------------------------

  /// With few registers, values that are broadcast are loaded again for each vector: the compiler would keep them and
  /// spill a sum instead.
  static QUIRE_INLINE const float* reread(const float* p) {
    if constexpr (Lanes::kRegisters < 32) asm volatile("" : "+r"(p));
    return p;
  }

  template <class T, int kRows>
  [[gnu::noinline]] static void block_scores(const Tile<T>& tile, Range seen, std::int64_t head_dim, const float* q,
                                             float* scores) {
    constexpr int kVectors = block_vectors(kRows);
    for (int first = 0; first < kTileVectors; first += kVectors) {
      if (seen.end <= first * 16 || seen.begin >= (first + kVectors) * 16) continue;
      Lanes sums[kRows][kVectors];
      for (auto& row : sums) {
        for (auto& sum : row) sum = Lanes::zero();
      }
      const T* k[kVectors];
      for (int v = 0; v < kVectors; ++v) k[v] = tile.k[first + v];
      for (std::int64_t d = 0; d < head_dim; ++d) {
        for (int v = 0; v < kVectors; ++v) {
          if constexpr (sizeof(T) == 2) __builtin_prefetch(tile.next_k[first + v] + d * tile.k_stride);
        }
        for (int v = 0; v < kVectors; ++v) {
          Lanes keys = load(k[v] + d * tile.k_stride);
          const float* column = reread(q + d * kRows);
          for (int r = 0; r < kRows; ++r) sums[r][v] = fma(Lanes::broadcast(column[r]), keys, sums[r][v]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) sums[r][v].store(scores + r * kTileTokens + (first + v) * 16);
      }
    }
  }

  // --- softmax ------------------------------------------------------------------------------------------------------

  /// Sets the scores of what is not seen to -infinity.
  static QUIRE_INLINE void mask_scores(float* scores, int num_rows, Range seen) {
    if (seen.begin == 0 && seen.end == kTileTokens) return;
    for (int v = 0; v < kTileVectors; ++v) {
      auto mask = Lanes::between(seen.begin - v * 16, seen.end - v * 16);
      for (int r = 0; r < num_rows; ++r) {
        float* at = scores + r * kTileTokens + v * 16;
        select(mask, Lanes::load(at), Lanes::broadcast(-__builtin_inff())).store(at);
      }
    }
  }

  /// Turns the scores of rows that see the same of the tile into weights, updates their m and l, and gives the factors
  /// for their o.
  static QUIRE_INLINE void softmax(float* scores, int num_rows, Range seen, float* m, float* l, float* factors) {
    mask_scores(scores, num_rows, seen);
    float steps[16] = {};
    for (int r = 0; r < num_rows; ++r) {
      const float* row = scores + r * kTileTokens;
      Lanes top = max(max(Lanes::load(row), Lanes::load(row + 16)), max(Lanes::load(row + 32), Lanes::load(row + 48)));
      float best = largest(top);
      float new_m = best > m[r] ? best : m[r];
      steps[r] = m[r] - new_m;
      m[r] = new_m;
    }
    ops::exp2(Lanes::load(steps)).store(factors);
    for (int r = 0; r < num_rows; ++r) {
      Lanes total = Lanes::zero(), shift = Lanes::broadcast(m[r]);
      for (int v = 0; v < kTileVectors; ++v) {
        float* at = scores + r * kTileTokens + v * 16;
        Lanes p = ops::exp2(Lanes::load(at) - shift);
        p.store(at);
        total = total + p;
      }
      l[r] = __builtin_fmaf(l[r], factors[r], sum(total));
    }
  }

  // --- weighted sums ------------------------------------------------------------------------------------------------

  /// o = o * factor, then one fma a token in order, for kVectors vectors of dimensions from `dim` on.
  template <class T, int kRows, int kVectors>
  [[gnu::noinline]] static void add_values(const Tile<T>& tile, Range seen, std::int64_t dim, const float* weights,
                                           const float* factors, float* o, std::int64_t o_stride) {
    Lanes sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      Lanes factor = Lanes::broadcast(factors[r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::load(o + r * o_stride + v * 16) * factor;
    }
    for (std::int64_t t = seen.begin; t < seen.end;) {
      std::int64_t piece = t >> tile.piece_shift, begin = piece << tile.piece_shift;
      std::int64_t end = smaller(seen.end, begin + (1 << tile.piece_shift));
      const T* values = tile.v[piece] + (t - begin) * tile.v_stride + dim;
      std::int64_t ahead = tile.next_v[piece] - tile.v[piece];
      for (; t < end; ++t, values += tile.v_stride) {
        if constexpr (sizeof(T) == 2) {
          for (int v = 0; v < kVectors; v += 2) __builtin_prefetch(values + ahead + v * 16);
        }
        for (int v = 0; v < kVectors; ++v) {
          Lanes value = load(values + v * 16);
          const float* column = reread(weights + t);
          for (int r = 0; r < kRows; ++r) {
            sums[r][v] = fma(Lanes::broadcast(column[r * kTileTokens]), value, sums[r][v]);
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
    constexpr int kVectors = block_vectors(kRows);
    std::int64_t stride = padded_dim(head_dim), dim = 0;
    for (; dim + kVectors * 16 <= stride; dim += kVectors * 16) {
      add_values<T, kRows, kVectors>(tile, seen, dim, weights, factors, o + dim, stride);
    }
    for (; dim < stride; dim += 16) add_values<T, kRows, 1>(tile, seen, dim, weights, factors, o + dim, stride);
  }

  // --- tiles --------------------------------------------------------------------------------------------------------

  /// Rows that see the same of the tile, from their scores on. A row that sees none of it keeps its state.
  template <class T>
  static void attend_run(const QueryRows& rows, const Tile<T>& tile, Range seen, Block run, float* scores,
                         const PartialRows& out) {
    if (seen.empty()) return;
    float factors[16];
    softmax(scores, run.num_rows, seen, out.m + run.first_row, out.l + run.first_row, factors);
    with_rows(run.num_rows, [&]<int kRows>() {
      add_values_all<T, kRows>(tile, seen, rows.head_dim, scores, factors,
                               out.o + run.first_row * padded_dim(rows.head_dim));
    });
  }

  template <class T>
  static void attend_block(const QueryRows& rows, const Tile<T>& tile, std::int64_t tile_start, Block block,
                           const WorkArea& area, const PartialRows& out) {
    std::int64_t last_row = block.first_row + block.num_rows - 1;
    std::int64_t first_token = quotient(block.first_row, rows.group), last_token = quotient(last_row, rows.group);
    Range seen = {visible(rows, first_token, tile_start).begin, visible(rows, last_token, tile_start).end};
    if (seen.empty()) return;
    with_rows(block.num_rows, [&]<int kRows>() {
      block_scores<T, kRows>(tile, seen, rows.head_dim, area.q + block.first_row * rows.head_dim, area.scores);
    });

    Block run = {block.first_row, 0};
    Range run_range = visible(rows, first_token, tile_start);
    for (std::int64_t token = first_token; token <= last_token; ++token) {
      Range range = visible(rows, token, tile_start);
      std::int64_t begin = larger(block.first_row, token * rows.group);
      std::int64_t end = smaller(last_row + 1, (token + 1) * rows.group);
      if (!(range == run_range)) {
        attend_run(rows, tile, run_range, run, area.scores + (run.first_row - block.first_row) * kTileTokens, out);
        run = {begin, 0};
        run_range = range;
      }
      run.num_rows += static_cast<int>(end - begin);
    }
    attend_run(rows, tile, run_range, run, area.scores + (run.first_row - block.first_row) * kTileTokens, out);
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

  // Where things lie. For contiguous memory all of it is constant but the tile's address.

  static QUIRE_INLINE std::int64_t panel_tokens(const CachedHead& cache) { return cache.block_size; }
  static QUIRE_INLINE std::int64_t panel_tokens(const ContiguousHead&) { return kTileTokens; }

  static QUIRE_INLINE int piece_shift(const CachedHead& cache) {
    return cache.block_shift < kTileShift ? cache.block_shift : kTileShift;
  }
  static QUIRE_INLINE int piece_shift(const ContiguousHead&) { return kTileShift; }

  template <class T>
  static QUIRE_INLINE const T* k_at(const CachedHead& cache, std::int64_t position) {
    auto block = cache.base + cache.blocks[position >> cache.block_shift] * cache.block_stride;
    return reinterpret_cast<const T*>(block) + (position & (cache.block_size - 1));
  }
  template <class T>
  static QUIRE_INLINE const T* k_at(const ContiguousHead& cache, std::int64_t position) {
    auto tile = cache.k + (position >> kTileShift) * cache.tile_stride;
    return reinterpret_cast<const T*>(tile) + (position & (kTileTokens - 1));
  }
  template <class T>
  static QUIRE_INLINE const T* v_at(const CachedHead& cache, std::int64_t position, std::int64_t head_dim) {
    auto block = cache.base + cache.blocks[position >> cache.block_shift] * cache.block_stride + cache.panel_bytes;
    return reinterpret_cast<const T*>(block) + (position & (cache.block_size - 1)) * head_dim;
  }
  template <class T>
  static QUIRE_INLINE const T* v_at(const ContiguousHead& cache, std::int64_t position, std::int64_t head_dim) {
    auto tile = cache.v + (position >> kTileShift) * cache.tile_stride;
    return reinterpret_cast<const T*>(tile) + (position & (kTileTokens - 1)) * head_dim;
  }

  /// Addresses of a tile of which the positions `seen` are seen. Blocks without a seen position are not looked up.
  template <class T, class Head>
  static QUIRE_INLINE void locate(const Head& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                                  const T** k, const T** v) {
    std::int64_t first = seen.begin >> 4, last = (seen.end - 1) >> 4;
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      k[i] = k_at<T>(cache, tile_start + 16 * larger(first, smaller(i, last)));
    }
    int shift = piece_shift(cache);
    first = seen.begin >> shift, last = (seen.end - 1) >> shift;
    for (std::int64_t i = 0; i < kTileTokens >> shift; ++i) {
      v[i] = v_at<T>(cache, tile_start + (larger(first, smaller(i, last)) << shift), head_dim);
    }
  }

  static QUIRE_INLINE Range seen_by_any(const QueryRows& rows, std::int64_t tile_start) {
    return {visible(rows, 0, tile_start).begin, visible(rows, rows.num_tokens - 1, tile_start).end};
  }

  template <class T, class Head>
  static void attend_in_place(const QueryRows& rows, const Head& cache, std::int64_t tile_start, const WorkArea& area,
                              const PartialRows& out) {
    Tile<T> tile;
    tile.k_stride = panel_tokens(cache);
    tile.v_stride = rows.head_dim;
    tile.piece_shift = piece_shift(cache);
    locate<T>(cache, rows.head_dim, tile_start, seen_by_any(rows, tile_start), tile.k, tile.v);
    std::int64_t next = tile_start + kTileTokens;
    Range next_seen = seen_by_any(rows, next);
    if (next_seen.empty()) next = tile_start, next_seen = seen_by_any(rows, tile_start);
    locate<T>(cache, rows.head_dim, next, next_seen, tile.next_k, tile.next_v);
    attend_tile(rows, tile, tile_start, area, out);
  }

  /// Decodes the seen tokens of a tile to f32: area.k [head_dim, 64] and area.v [64, padded_dim].
  template <class T, class Head>
  static void decode_tile(const Head& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                          const WorkArea& area) {
    std::int64_t run = smaller(panel_tokens(cache), 16);
    for (std::int64_t t = seen.begin / run * run; t < seen.end; t += run) {
      const T* k = k_at<T>(cache, tile_start + t);
      for (std::int64_t d = 0; d < head_dim; ++d, k += panel_tokens(cache)) {
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

  /// decode_tile for int8. Meanwhile fetches the tokens `next_seen` of the next tile.
  static void decode_tile_int8(const CachedHead& cache, std::int64_t head_dim, std::int64_t tile_start, Range seen,
                               Range next_seen, const WorkArea& area) {
    std::int64_t run = smaller(cache.block_size, 16), codes = cache.block_size * head_dim;
    for (std::int64_t t = seen.begin / run * run; t < seen.end; t += run) {
      std::int64_t slot = (tile_start + t) & (cache.block_size - 1);
      const auto* panel = k_at<std::int8_t>(cache, tile_start + t) - slot;
      const auto* scales = reinterpret_cast<const std::uint16_t*>(panel + codes) + slot;
      const std::int8_t* k = panel + slot;
      std::int64_t next = tile_start + kTileTokens + t;
      bool fetch = t + run > next_seen.begin && t < next_seen.end;
      const std::int8_t* next_k = fetch ? k_at<std::int8_t>(cache, next) : k;
      const std::int8_t* next_v = fetch ? v_at<std::int8_t>(cache, next, head_dim) : k;
      for (std::int64_t first = 0; first < head_dim; first += kScaleGroup, scales += cache.block_size) {
        Lanes scale = Lanes::load_f16(scales);
        std::int64_t end = smaller(first + kScaleGroup, head_dim);
        for (std::int64_t d = first; d < end; ++d, k += cache.block_size) {
          __builtin_prefetch(next_k + d * cache.block_size);
          __builtin_prefetch(next_v + d * run);
          Lanes keys = Lanes::load_int8(k) * scale;
          float* to = area.k + d * kTileTokens + t;
          run == 16 ? keys.store(to) : keys.store_partial(to, run);
        }
      }
    }
    std::int64_t stride = padded_dim(head_dim), groups = scale_groups(head_dim);
    for (std::int64_t t = seen.begin; t < seen.end; ++t) {
      std::int64_t slot = (tile_start + t) & (cache.block_size - 1);
      const auto* v = v_at<std::int8_t>(cache, tile_start + t, head_dim);
      const auto* scales = reinterpret_cast<const std::uint16_t*>(v - slot * head_dim + codes) + slot * groups;
      for (std::int64_t group = 0; group < groups; group += 16) {
        float values[16];
        Lanes::load_f16(scales + group).store(values);
        std::int64_t end = smaller((group + 16) * kScaleGroup, stride);
        for (std::int64_t d = group * kScaleGroup; d < end; d += 16) {
          Lanes scale = Lanes::broadcast(values[d / kScaleGroup - group]);
          (Lanes::load_int8(v + d) * scale).store(area.v + t * stride + d);
        }
      }
    }
  }

  template <class T, class Head>
  static void attend_decoded(const QueryRows& rows, const Head& cache, std::int64_t tile_start, const WorkArea& area,
                             const PartialRows& out) {
    Range seen = seen_by_any(rows, tile_start);
    if constexpr (sizeof(T) == 1) {
      decode_tile_int8(cache, rows.head_dim, tile_start, seen, seen_by_any(rows, tile_start + kTileTokens), area);
    } else {
      decode_tile<T>(cache, rows.head_dim, tile_start, seen, area);
    }
    Tile<float> tile;
    for (int v = 0; v < kTileVectors; ++v) tile.k[v] = tile.next_k[v] = area.k + v * 16;
    tile.v[0] = tile.next_v[0] = area.v;
    tile.k_stride = kTileTokens;
    tile.v_stride = padded_dim(rows.head_dim);
    tile.piece_shift = kTileShift;
    attend_tile(rows, tile, tile_start, area, out);
  }

  template <class T, class Head>
  static QUIRE_INLINE void attend(const QueryRows& rows, const Head& cache, std::int64_t tile_start, bool in_place,
                                  const WorkArea& area, const PartialRows& out) {
    in_place ? attend_in_place<T>(rows, cache, tile_start, area, out)
             : attend_decoded<T>(rows, cache, tile_start, area, out);
  }

  static void begin_state(const QueryRows& rows, const PartialRows& out) {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) out.m[row] = -__builtin_inff(), out.l[row] = 0.0f;
    std::int64_t elements = rows.num_rows() * padded_dim(rows.head_dim);
    for (std::int64_t i = 0; i < elements; i += 16) Lanes::zero().store(out.o + i);
  }

  template <class Head>
  static void attend_span(const QueryRows& rows, const Head& cache, const SpanPart& part, const WorkArea& area,
                          const PartialRows& out) {
    if (part.first_tile == 0) begin_state(rows, out);
    bool in_place = rows.num_rows() <= 2 * kBlockRows && panel_tokens(cache) % 16 == 0 && rows.head_dim % 16 == 0;
    for (std::int64_t tile = part.first_tile; tile < part.end_tile; ++tile) {
      std::int64_t start = part.span * kSpanTokens + tile * kTileTokens;
      if (seen_by_any(rows, start).empty()) continue;
      switch (cache.type) {
        case KvType::f16:
          attend<std::uint16_t>(rows, cache, start, in_place, area, out);
          break;
        case KvType::bf16:
          attend<Bf16>(rows, cache, start, in_place, area, out);
          break;
        case KvType::f32:
          attend<float>(rows, cache, start, in_place, area, out);
          break;
        case KvType::int8:
          if constexpr (Head::kHoldsInt8) attend_decoded<std::int8_t>(rows, cache, start, area, out);
          break;
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

  /// Rounds to nearest even on the bits: a carry out of the fraction is the next exponent, the last of them infinity.
  static bool store_bf16(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride) {
    bool fits = true;
    for (std::int64_t i = 0; i < n; ++i) {
      auto word = __builtin_bit_cast(std::uint32_t, x[i]);
      std::uint32_t rounded = word + 0x7FFFu + (word >> 16 & 1u);
      // Of a NaN the rounding may leave anything; what it was shows in the bits before.
      fits &= (word & 0x7FFFFFFFu) < 0x7F7F8000u;
      out[i * stride] = static_cast<std::uint16_t>(rounded >> 16);
    }
    return fits;
  }

  /// The largest magnitude; a NaN counts as larger than infinity.
  static QUIRE_INLINE float largest_magnitude(const float* x, std::int64_t n) {
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFu;
      most = magnitude > most ? magnitude : most;
    }
    return __builtin_bit_cast(float, most);
  }

  /// One group of int8; true if it fits.
  static QUIRE_INLINE bool quantize_group(const float* x, std::int64_t n, std::int8_t* codes, std::int64_t stride,
                                          std::uint16_t* scale) {
    float amax = largest_magnitude(x, n);
    std::uint16_t halves[16];
    Lanes::broadcast(amax / 127.0f).store_f16(halves);
    bool fits = halves[0] < 0x7C00;  // neither infinite nor NaN
    *scale = fits ? halves[0] : 0;
    if (*scale == 0) {
      for (std::int64_t i = 0; i < n; ++i) codes[i * stride] = 0;
      return fits;
    }
    // Adding 1.5 * 2^23 leaves a last place of 1, so that the addition rounds to the nearest, ties to even.
    const Lanes d = Lanes::load_f16(halves), shift = Lanes::broadcast(0x1.8p23f);
    for (std::int64_t i = 0; i < n; i += 16) {
      std::int64_t count = smaller(16, n - i);
      float rounded[16];
      (((count == 16 ? Lanes::load(x + i) : Lanes::load_partial(x + i, count)) / d + shift) - shift).store(rounded);
      for (std::int64_t j = 0; j < count; ++j) {
        int q = static_cast<int>(rounded[j]);
        codes[(i + j) * stride] = static_cast<std::int8_t>(q > 127 ? 127 : q < -127 ? -127 : q);
      }
    }
    return fits;
  }

  static bool store_int8(const float* x, std::int64_t n, const Int8Out& out) {
    bool fits = true;
    for (std::int64_t first = 0, group = 0; first < n; first += kScaleGroup, ++group) {
      fits &= quantize_group(x + first, smaller(kScaleGroup, n - first), out.codes + first * out.code_stride,
                             out.code_stride, out.scales + group * out.scale_stride);
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
    return {pack_queries,
            attend_span<CachedHead>,
            attend_span<ContiguousHead>,
            fold_row,
            finish_row,
            store_f16,
            store_bf16,
            store_int8,
            store_f32};
  }
};

}  // namespace quire::attention
