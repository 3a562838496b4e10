#pragma once
// The inner functions of attention, one table a tier, all written once (tile_kernels.h). They see plain memory and
// positions; which rows and spans are computed by whom is decided in attention_work.h. Free of standard headers
// with inline code, so that files compiled for one instruction set may include it.

#include <cstddef>
#include <cstdint>

#include "quire/attention/kv_type.h"

namespace quire::attention {

inline constexpr std::int64_t kTileTokens = 64;   ///< positions whose softmax state changes at once
inline constexpr std::int64_t kSpanTokens = 256;  ///< positions that one partial result covers

inline constexpr std::int64_t kSpanTiles = kSpanTokens / kTileTokens;

constexpr std::int64_t padded_dim(std::int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// The query rows of one KV head: in consecutive tokens of a sequence, or in tokens of several sequences over positions
/// that all of them see in the same memory. Row r is head r % group of token r / group.
struct QueryRows {
  const float* q = nullptr;                    ///< the first token's first head of the group; heads lie head_dim apart
  std::int64_t q_stride = 0;                   ///< floats between tokens
  const std::int32_t* token_places = nullptr;  ///< token t lies q_stride * token_places[t] behind q; null: t
  float q_factor = 0;                          ///< f32(scale * log2 e)
  std::int64_t num_tokens = 0, group = 0, head_dim = 0;
  std::int64_t first_position = 0;
  std::int64_t window = 0;
  std::int64_t common_end = 0;  ///< not 0: every token sees [0, common_end)

  std::int64_t num_rows() const { return num_tokens * group; }
  const float* token_q(std::int64_t token) const { return q + (token_places ? token_places[token] : token) * q_stride; }
  /// The positions that a token sees: [visible_begin, visible_end).
  std::int64_t visible_end(std::int64_t token) const {
    return common_end != 0 ? common_end : first_position + token + 1;
  }
  std::int64_t visible_begin(std::int64_t token) const {
    return window > 0 && visible_end(token) > window ? visible_end(token) - window : 0;
  }
};

/// Where the K and V of one sequence, layer and KV head lie: block b at base + b * block_stride, K then V.
struct CachedHead {
  const std::byte* base = nullptr;
  std::int64_t block_stride = 0, panel_bytes = 0;
  std::int64_t block_size = 0;  ///< 1 << block_shift
  int block_shift = 0;
  KvType type = KvType::f16;
  const std::uint32_t* blocks = nullptr;  ///< block ids in order of position
  static constexpr bool kHoldsInt8 = true, kHasSmallBlocks = true;
};

/// The same in contiguous memory: tile t at k + t * tile_stride, [head_dim][kTileTokens], and at v + t * tile_stride,
/// [kTileTokens][head_dim]. f32, f16 or bf16.
struct ContiguousHead {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::int64_t tile_stride = 0;
  KvType type = KvType::f16;
  static constexpr bool kHoldsInt8 = false, kHasSmallBlocks = false;
};

/// Softmax state of rows: maximum, denominator and weighted sum of V. A row that has seen no key is not defined.
struct PartialRows {
  float* m = nullptr;  ///< [num_rows]
  float* l = nullptr;  ///< [num_rows]
  float* o = nullptr;  ///< [num_rows, padded_dim]
};

/// What its worker computes after a part: prefetched while the part's last tile is computed.
template <class Head>
struct UpcomingTile {
  Head cache;
  std::int64_t tile_start = 0;
  std::int64_t begin = 0, end = 0;  ///< the tile's tokens that are seen; at least one
};

/// Tiles [first_tile, end_tile) of a span. From tile 0 on a state begins; else it goes on from what `out` holds.
template <class Head>
struct SpanPart {
  std::int64_t span = 0;
  std::int64_t first_tile = 0, end_tile = kSpanTiles;
  const UpcomingTile<Head>* upcoming = nullptr;  ///< null: the tile that follows, if a row sees it

  std::int64_t end_position() const { return span * kSpanTokens + end_tile * kTileTokens; }
};

/// Memory is fetched ahead in pieces of so many bytes (tile_fetch.h), when these many pieces before one are being read.
inline constexpr std::int64_t kFetchBytes = 256;
inline constexpr std::int64_t kFetchAhead[] = {12, 24, 48};
inline constexpr std::int64_t kMostFetchesAhead = 48;

/// The most pieces of a tile, and steps of reading them.
constexpr std::int64_t most_fetches(std::int64_t head_dim, std::int64_t block_size, std::int64_t element_bytes) {
  const std::int64_t key_tokens = block_size > kTileTokens ? block_size : kTileTokens;
  return padded_dim(head_dim) * (key_tokens + kTileTokens) * element_bytes / kFetchBytes + 2 * kTileTokens / 8;
}

/// The pieces of the tile that is being computed and, behind them, of the one after it.
struct FetchList {
  const std::byte** pieces = nullptr;     ///< [2 * most_fetches + kMostFetchesAhead]
  std::int64_t next = 0, end = 0;         ///< where the next tile's begin, and where they end
  std::int64_t next_keys = 0;             ///< how many of these are keys
  const std::byte* next_block = nullptr;  ///< with its position: which tile it is; null: none
  std::int64_t next_tile_start = 0;
};

/// Working memory of one thread.
struct WorkArea {
  float* q = nullptr;       ///< [num_rows, head_dim], as pack_queries leaves it
  float* k = nullptr;       ///< [head_dim, kTileTokens]
  float* v = nullptr;       ///< [kTileTokens, padded_dim]
  float* scores = nullptr;  ///< [kMaxBlockRows, kTileTokens]
  float* scales = nullptr;  ///< [2, scale_groups, kTileTokens] and a vector more
  FetchList* fetches = nullptr;
};
inline constexpr std::int64_t kMaxBlockRows = 8;

/// Where the codes and scales of one token of a head go, `stride` elements apart.
struct Int8Out {
  std::int8_t* codes = nullptr;  ///< [head_dim]
  std::int64_t code_stride = 0;
  std::uint16_t* scales = nullptr;  ///< [scale_groups(head_dim)], f16
  std::int64_t scale_stride = 0;
};

struct AttentionKernels {
  /// Multiplies the queries by q_factor and arranges them for attend_span. Once for any number of spans.
  void (*pack_queries)(const QueryRows& rows, float* packed);
  /// Computes the state of all rows over the positions of one span, or of a part of it.
  void (*attend_span)(const QueryRows& rows, const CachedHead& cache, const SpanPart<CachedHead>& part,
                      const WorkArea& area, const PartialRows& out);
  /// The same, bit for bit, over contiguous memory.
  void (*attend_span_contiguous)(const QueryRows& rows, const ContiguousHead& cache,
                                 const SpanPart<ContiguousHead>& part, const WorkArea& area, const PartialRows& out);
  /// Folds row `row` of `next` into the same row of `sum`, which covers the positions before (rule 10).
  void (*fold_row)(const PartialRows& sum, const PartialRows& next, std::int64_t row, std::int64_t head_dim);
  /// out[d] = o[d] * (1 / l)
  void (*finish_row)(const PartialRows& sum, std::int64_t row, std::int64_t head_dim, float* out);
  /// Stores n values as f16, `stride` elements apart. False if one is NaN or too large for the format.
  bool (*store_f16)(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride);
  /// The same as bf16. False if one is NaN or rounds to infinity.
  bool (*store_bf16)(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride);
  /// The same as int8 (see kv_store.h). False if one is not finite or a scale is too large for f16.
  bool (*store_int8)(const float* x, std::int64_t n, const Int8Out& out);
  /// The same as f32. False if one is not finite.
  bool (*store_f32)(const float* x, std::int64_t n, float* out, std::int64_t stride);
};

extern const AttentionKernels kAttentionKernelsScalar;
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;

}  // namespace quire::attention
