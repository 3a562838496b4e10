#pragma once
// The kernels of attention_kernels.h as a template over a tier's Lanes. Rules 9 to 12 of the arithmetic fix the order
// of every operation; what is free is how many rows share a load.
// Register blocks: up to six rows by one to four vectors of sixteen tokens (scores) or dimensions (weighted sums).
//
// Few rows (decode) read a tile in place (tile_memory.h); for more it is decoded to f32 once.

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/attention/store_kernels.h"
#include "quire/attention/tile_memory.h"
#include "quire/ops/inline.h"
#include "quire/ops/lanes_exp.h"
#include "quire/ops/matmul_unroll.h"

namespace quire::attention {

template <class Lanes>
struct TileKernels {
  using Memory = TileMemory<Lanes>;
  using Store = StoreKernels<Lanes>;
  using Fetch = typename Memory::Fetch;
  using Range = typename Memory::Range;
  template <class T, bool kHalved>
  using Tile = typename Memory::template Tile<T, kHalved>;

  static constexpr int kBlockRows = 6;
  static constexpr int kTileVectors = Memory::kTileVectors;
  /// Vectors of a register block of so many rows: enough sums to hide the latency of fma, few enough for the registers.
  static constexpr int block_vectors(int rows) {
    if (Lanes::kRegisters >= 32 || rows == 1) return 4;
    return rows <= 3 ? 2 : 1;
  }
  static_assert(kBlockRows <= kMaxBlockRows);

  /// A run of rows that one register block computes.
  struct Block {
    std::int64_t first_row;
    int num_rows;
  };

  static QUIRE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static QUIRE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

  /// a / b for numbers of rows and tokens: a division of 32 bits takes half the time.
  static QUIRE_INLINE std::int64_t quotient(std::int64_t a, std::int64_t b) {
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
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

  template <int kRows, class T, bool kHalved>
  [[gnu::noinline]] static void block_scores(const Tile<T, kHalved>& tile, Range seen, std::int64_t head_dim,
                                             const float* q, float* scores) {
    constexpr int kVectors = block_vectors(kRows);
    constexpr bool kScaled = Tile<T, kHalved>::kScaled;
    constexpr int kDimsAFetch = Fetch::template vectors_a_fetch<T>() / kVectors;
    for (int first = 0; first < kTileVectors; first += kVectors) {
      if (seen.end <= first * 16 || seen.begin >= (first + kVectors) * 16) continue;
      Lanes sums[kRows][kVectors];
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QUIRE_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::zero();
      }
      for (std::int64_t d = 0; d < head_dim;) {
        std::int64_t end = head_dim;
        Lanes scales[kVectors];
        if constexpr (kScaled) {
          end = smaller(d + kScaleGroup, head_dim);
          QUIRE_UNROLL
          for (int v = 0; v < kVectors; ++v)
            scales[v] = Lanes::load(tile.k_scales + d / kScaleGroup * kTileTokens + (first + v) * 16);
        }
        for (; d < end; ++d) {
          if constexpr (Tile<T, kHalved>::kFetches) {
            if (d % kDimsAFetch == 0) Fetch::ask(tile.key_fetches + (first * head_dim / kVectors + d) / kDimsAFetch);
          }
          QUIRE_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            Lanes keys = Memory::load_keys(tile, first + v, d);
            if constexpr (kScaled) keys = keys * scales[v];
            const float* column = reread(q + d * kRows);
            QUIRE_UNROLL
            for (int r = 0; r < kRows; ++r) sums[r][v] = fma(Lanes::broadcast(column[r]), keys, sums[r][v]);
          }
        }
      }
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QUIRE_UNROLL
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
  template <int kRows, int kVectors, class T, bool kHalved>
  [[gnu::noinline]] static void add_values(const Tile<T, kHalved>& tile, Range seen, std::int64_t dim,
                                           const float* weights, const float* factors, float* o,
                                           std::int64_t o_stride) {
    constexpr bool kScaled = Tile<T, kHalved>::kScaled;
    constexpr int kTokensAFetch = Fetch::template vectors_a_fetch<T>() / kVectors;
    Lanes sums[kRows][kVectors];
    QUIRE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Lanes factor = Lanes::broadcast(factors[r]);
      QUIRE_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::load(o + r * o_stride + v * 16) * factor;
    }
    const std::byte* const* fetches = nullptr;
    if constexpr (Tile<T, kHalved>::kFetches)
      fetches = tile.value_fetches + (seen.end - seen.begin) * dim / (16 * kVectors * kTokensAFetch);
    std::int64_t t = seen.begin;
    do {  // at least one is seen
      const std::int64_t piece = t >> tile.piece_shift, begin = piece << tile.piece_shift;
      const std::int64_t end = smaller(seen.end, begin + (1 << tile.piece_shift));
      const T* values = tile.v[piece] + (t - begin) * tile.v_stride + dim;
      for (; t < end; ++t, values += tile.v_stride) {
        if constexpr (Tile<T, kHalved>::kFetches) {
          if (t % kTokensAFetch == 0) Fetch::ask(fetches++);
        }
        QUIRE_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          Lanes value = Memory::load(values + v * 16);
          if constexpr (kScaled) {
            const float* scale = tile.v_scales + t * tile.num_groups + (dim + v * 16) / kScaleGroup;
            value = value * Lanes::broadcast(*scale);
          }
          const float* column = reread(weights + t);
          QUIRE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            sums[r][v] = fma(Lanes::broadcast(column[r * kTileTokens]), value, sums[r][v]);
          }
        }
      }
    } while (t < seen.end);
    QUIRE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      QUIRE_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v].store(o + r * o_stride + v * 16);
    }
  }

  template <int kRows, class T, bool kHalved>
  static void add_values_all(const Tile<T, kHalved>& tile, Range seen, std::int64_t head_dim, const float* weights,
                             const float* factors, float* o) {
    constexpr int kVectors = block_vectors(kRows);
    std::int64_t stride = padded_dim(head_dim), dim = 0;
    for (; dim + kVectors * 16 <= stride; dim += kVectors * 16) {
      add_values<kRows, kVectors>(tile, seen, dim, weights, factors, o + dim, stride);
    }
    for (; dim < stride; dim += 16) add_values<kRows, 1>(tile, seen, dim, weights, factors, o + dim, stride);
  }

  // --- tiles --------------------------------------------------------------------------------------------------------

  /// Rows that see the same of the tile, from their scores on. A row that sees none of it keeps its state.
  template <class Tile>
  static void attend_run(const QueryRows& rows, const Tile& tile, Range seen, Block run, float* scores,
                         const PartialRows& out) {
    if (seen.empty()) return;
    float factors[16];
    softmax(scores, run.num_rows, seen, out.m + run.first_row, out.l + run.first_row, factors);
    with_rows(run.num_rows, [&]<int kRows>() {
      add_values_all<kRows>(tile, seen, rows.head_dim, scores, factors,
                            out.o + run.first_row * padded_dim(rows.head_dim));
    });
  }

  template <class Tile>
  static void attend_block(const QueryRows& rows, const Tile& tile, std::int64_t tile_start, Block block,
                           const WorkArea& area, const PartialRows& out) {
    std::int64_t last_row = block.first_row + block.num_rows - 1;
    std::int64_t first_token = quotient(block.first_row, rows.group), last_token = quotient(last_row, rows.group);
    Range seen = {Memory::visible(rows, first_token, tile_start).begin,
                  Memory::visible(rows, last_token, tile_start).end};
    if (seen.empty()) return;
    with_rows(block.num_rows, [&]<int kRows>() {
      block_scores<kRows>(tile, seen, rows.head_dim, area.q + block.first_row * rows.head_dim, area.scores);
    });

    Block run = {block.first_row, 0};
    Range run_range = Memory::visible(rows, first_token, tile_start);
    for (std::int64_t token = first_token; token <= last_token; ++token) {
      Range range = Memory::visible(rows, token, tile_start);
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

  template <class Tile>
  static void attend_tile(const QueryRows& rows, const Tile& tile, std::int64_t tile_start, const WorkArea& area,
                          const PartialRows& out) {
    Block block = {0, 0};
    for (std::int64_t b = 0; b < num_blocks(rows.num_rows()); ++b, block.first_row += block.num_rows) {
      block.num_rows = block_rows(rows.num_rows(), b);
      attend_block(rows, tile, tile_start, block, area, out);
    }
  }

  template <class T, bool kHalved, class Head>
  static void attend_located(const QueryRows& rows, const Head& cache, const SpanPart<Head>& part,
                             std::int64_t tile_start, bool in_place, const WorkArea& area, const PartialRows& out) {
    Tile<T, kHalved> tile;
    Memory::locate(rows, cache, part, tile_start, area, tile);
    if (in_place) return attend_tile(rows, tile, tile_start, area, out);
    Memory::decode(tile, rows.head_dim, Memory::seen_by_any(rows, tile_start), area);
    attend_tile(rows, Memory::decoded(rows.head_dim, area), tile_start, area, out);
  }

  template <class T, class Head>
  static QUIRE_INLINE void attend(const QueryRows& rows, const Head& cache, const SpanPart<Head>& part,
                                  std::int64_t tile_start, bool in_place, const WorkArea& area,
                                  const PartialRows& out) {
    if constexpr (Head::kHasSmallBlocks) {
      if (cache.block_size == 8) return attend_located<T, true>(rows, cache, part, tile_start, in_place, area, out);
    }
    attend_located<T, false>(rows, cache, part, tile_start, in_place, area, out);
  }

  static void begin_state(const QueryRows& rows, const PartialRows& out) {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) out.m[row] = -__builtin_inff(), out.l[row] = 0.0f;
    std::int64_t elements = rows.num_rows() * padded_dim(rows.head_dim);
    for (std::int64_t i = 0; i < elements; i += 16) Lanes::zero().store(out.o + i);
  }

  template <class Head>
  static void attend_span(const QueryRows& rows, const Head& cache, const SpanPart<Head>& part, const WorkArea& area,
                          const PartialRows& out) {
    if (part.first_tile == 0) begin_state(rows, out);
    const bool in_place = rows.num_rows() <= 2 * kBlockRows && rows.head_dim % 16 == 0;
    for (std::int64_t tile = part.first_tile; tile < part.end_tile; ++tile) {
      std::int64_t start = part.span * kSpanTokens + tile * kTileTokens;
      if (Memory::seen_by_any(rows, start).empty()) continue;
      switch (cache.type) {
        case KvType::f16:
          attend<std::uint16_t>(rows, cache, part, start, in_place, area, out);
          break;
        case KvType::bf16:
          attend<typename Memory::Bf16>(rows, cache, part, start, in_place, area, out);
          break;
        case KvType::f32:
          attend<float>(rows, cache, part, start, in_place, area, out);
          break;
        case KvType::int8:
          if constexpr (Head::kHoldsInt8) attend<std::int8_t>(rows, cache, part, start, in_place, area, out);
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

  static constexpr AttentionKernels table() {
    return {pack_queries,     attend_span<CachedHead>, attend_span<ContiguousHead>, fold_row,        finish_row,
            Store::store_f16, Store::store_bf16,       Store::store_int8,           Store::store_f32};
  }
};

}  // namespace quire::attention
