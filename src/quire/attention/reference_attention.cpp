#include "quire/attention/reference_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quire/base/check.h"
#include "quire/quant/dequantize.h"

namespace quire::attention {
namespace {

constexpr std::int64_t kTile = 64, kSpan = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 2^x (rule 13).
float exp2_reference(float x) {
  if (x < -125.0f) return 0.0f;
  float n = std::nearbyint(x);
  float f = x - n;
  float p = 0x1.41fbbcp-13f;
  for (float c : {0x1.5f3e54p-10f, 0x1.3b2d4cp-7f, 0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e43p-1f, 1.0f}) {
    p = std::fma(p, f, c);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (static_cast<std::uint32_t>(static_cast<int>(n)) << 23));
}

/// The sum over sixteen virtual lanes, folded 8, 4, 2, 1 (rule 8). Positions count from the tile's start.
float sum_in_lanes(const float (&values)[kTile]) {
  float lanes[16] = {};
  for (std::int64_t i = 0; i < kTile; ++i) lanes[i % 16] += values[i];
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// Softmax state of one row.
struct State {
  float m = -kInfinity, l = 0;
  std::vector<float> o;
};

/// The cached keys and values of one sequence, layer and head.
class Cache {
 public:
  Cache(const KvStore& store, std::int64_t layer, std::int64_t head, std::span<const BlockId> blocks)
      : store_(store), layer_(layer), head_(head), blocks_(blocks) {}

  float key(std::int64_t position, std::int64_t d) const {
    auto size = store_.layout().block_size;
    return read(store_.k_panel(layer_, block(position), head_), d * size + position % size,
                d / kScaleGroup * size + position % size);
  }
  float value(std::int64_t position, std::int64_t d) const {
    const KvLayout& layout = store_.layout();
    auto slot = position % layout.block_size;
    return read(store_.v_panel(layer_, block(position), head_), slot * layout.head_dim + d,
                slot * scale_groups(layout.head_dim) + d / kScaleGroup);
  }

 private:
  BlockId block(std::int64_t position) const {
    return blocks_[static_cast<std::size_t>(position / store_.layout().block_size)];
  }
  /// `scale` is the index of the element's scale, where the format has scales.
  float read(const std::byte* panel, std::int64_t index, std::int64_t scale) const {
    const KvLayout& layout = store_.layout();
    switch (layout.type) {
      case KvType::f32:
        return reinterpret_cast<const float*>(panel)[index];
      case KvType::f16:
        return quant::f16_to_f32(reinterpret_cast<const std::uint16_t*>(panel)[index]);
      case KvType::bf16:
        return quant::bf16_to_f32(reinterpret_cast<const std::uint16_t*>(panel)[index]);
      case KvType::int8: {
        auto* scales = reinterpret_cast<const std::uint16_t*>(panel + layout.block_size * layout.head_dim);
        return static_cast<float>(reinterpret_cast<const std::int8_t*>(panel)[index]) *
               quant::f16_to_f32(scales[scale]);
      }
    }
    QUIRE_CHECK(false, "unknown KV type");
  }
  const KvStore& store_;
  std::int64_t layer_, head_;
  std::span<const BlockId> blocks_;
};

/// One tile (rule 9), of which the positions [begin, end) are seen.
void attend_tile(const std::vector<float>& q, const Cache& cache, std::int64_t begin, std::int64_t end, State& state) {
  float scores[kTile] = {}, weights[kTile] = {};
  float m = state.m;
  for (std::int64_t t = begin; t < end; ++t) {
    float score = 0;
    for (std::size_t d = 0; d < q.size(); ++d)
      score = std::fma(q[d], cache.key(t, static_cast<std::int64_t>(d)), score);
    scores[t % kTile] = score;
    m = std::max(m, score);
  }
  for (std::int64_t t = begin; t < end; ++t) weights[t % kTile] = exp2_reference(scores[t % kTile] - m);
  float factor = exp2_reference(state.m - m);
  state.l = std::fma(state.l, factor, sum_in_lanes(weights));
  state.m = m;
  for (std::size_t d = 0; d < q.size(); ++d) {
    float o = state.o[d] * factor;
    for (std::int64_t t = begin; t < end; ++t)
      o = std::fma(weights[t % kTile], cache.value(t, static_cast<std::int64_t>(d)), o);
    state.o[d] = o;
  }
}

/// Folds a later span into the state (rule 10).
void fold(State& sum, const State& next) {
  float m = std::max(sum.m, next.m);
  float sum_factor = exp2_reference(sum.m - m), next_factor = exp2_reference(next.m - m);
  sum.m = m;
  sum.l = std::fma(next.l, next_factor, sum.l * sum_factor);
  for (std::size_t d = 0; d < sum.o.size(); ++d) sum.o[d] = std::fma(next.o[d], next_factor, sum.o[d] * sum_factor);
}

/// Positions [first, end) for one row.
void attend_row(const std::vector<float>& q, const Cache& cache, std::int64_t first, std::int64_t end, float* out) {
  State sum;
  for (std::int64_t span = first / kSpan; span * kSpan < end; ++span) {
    State next;
    next.o.resize(q.size());
    for (std::int64_t tile = span * kSpan; tile < (span + 1) * kSpan; tile += kTile) {
      std::int64_t begin = std::max(first, tile), stop = std::min(end, tile + kTile);
      if (begin < stop) attend_tile(q, cache, begin, stop, next);
    }
    if (span == first / kSpan) {
      sum = next;
    } else {
      fold(sum, next);
    }
  }
  float inverse = 1.0f / sum.l;
  for (std::size_t d = 0; d < q.size(); ++d) out[d] = sum.o[d] * inverse;
}

}  // namespace

void reference_attention(const KvStore& store, std::int64_t layer, const AttentionCall& call) {
  const std::int64_t dim = store.layout().head_dim, group = call.num_heads / store.layout().num_kv_heads;
  const float factor = call.scale * 1.4426950408889634f;
  std::vector<float> q(static_cast<std::size_t>(dim));
  for (const SequenceChunk& chunk : call.chunks) {
    for (std::int64_t token = 0; token < chunk.num_tokens; ++token) {
      std::int64_t end = chunk.first_position + token + 1;
      std::int64_t first = call.window > 0 ? std::max<std::int64_t>(0, end - call.window) : 0;
      for (std::int64_t head = 0; head < call.num_heads; ++head) {
        const float* source = call.q + (chunk.first_row + token) * call.q_stride + head * dim;
        for (std::int64_t d = 0; d < dim; ++d) q[static_cast<std::size_t>(d)] = source[d] * factor;
        attend_row(q, Cache(store, layer, head / group, chunk.blocks), first, end,
                   call.out + (chunk.first_row + token) * call.out_stride + head * dim);
      }
    }
  }
}

}  // namespace quire::attention
