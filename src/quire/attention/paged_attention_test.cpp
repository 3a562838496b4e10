#include "quire/attention/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "quire/attention/reference_attention.h"
#include "quire/base/checked.h"
#include "quire/base/hash.h"
#include "quire/base/rng.h"

namespace quire::attention {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::int64_t num_kv_heads = 2, group = 3, head_dim = 64;
  std::int64_t block_size = 16;
  KvType type = KvType::f16;
  std::int64_t window = 0;
  std::int64_t num_heads() const { return num_kv_heads * group; }
};

/// How a test runs the sequences; none of it may change a bit.
struct Manner {
  CpuTier tier = CpuTier::scalar;
  int threads = 1;
  std::vector<std::int64_t> chunks = {1 << 20};  ///< tokens a step, in turn
  std::uint64_t block_order = 1;                 ///< seed of the assignment of physical blocks
  bool reference = false;
  bool forget_behind_window = false;  ///< null the table entries that no later token sees
};

std::vector<CpuTier> supported_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

/// The value of element i of a token's row: the same however the test is run.
float element(std::uint64_t kind, std::uint64_t sequence, std::int64_t position, std::int64_t i) {
  auto key = static_cast<std::uint64_t>(position) << 20 | static_cast<std::uint64_t>(i);
  auto bits = random_at(kind * 1000 + sequence, key);
  return static_cast<float>(3 * (unit_interval(bits) + unit_interval(mix64(bits)) - 1));
}

/// Sequences of given lengths, run through write_kv and paged_attention from their first token to their last.
class Sequences {
 public:
  Sequences(const Shape& shape, std::vector<std::int64_t> lengths, std::vector<std::uint64_t> names,
            const Manner& manner)
      : shape_(shape), manner_(manner), lengths_(std::move(lengths)), names_(std::move(names)), pool_(manner.threads) {
    std::int64_t num_blocks = 1;
    for (auto length : lengths_) num_blocks += ceil_div(length, shape.block_size);
    KvLayout layout = {1, shape.num_kv_heads, shape.head_dim, shape.block_size, shape.type};
    store_ = std::make_unique<KvStore>(layout, num_blocks);
    // Every byte is a NaN until written.
    std::memset(store_->k_panel(0, kNullBlock, 0), 0xFF, static_cast<std::size_t>(num_blocks * layout.block_bytes()));
    assign_blocks(num_blocks);
    outputs_.resize(lengths_.size());
    done_.resize(lengths_.size());
  }

  /// [sequence][position, num_heads, head_dim]
  const std::vector<Floats>& compute() {
    for (std::size_t step = 0; run_step(manner_.chunks[step % manner_.chunks.size()]); ++step) {
    }
    return outputs_;
  }

  const KvStore& store() const { return *store_; }
  const std::vector<BlockId>& table(std::size_t sequence) const { return tables_[sequence]; }

 private:
  void assign_blocks(std::int64_t num_blocks) {
    std::vector<BlockId> free;
    for (std::int64_t id = 1; id < num_blocks; ++id) free.push_back(BlockId{static_cast<std::uint32_t>(id)});
    Rng rng(manner_.block_order);
    for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[static_cast<std::size_t>(rng() % i)]);
    for (auto length : lengths_) {
      auto count = ceil_div(length, shape_.block_size);
      tables_.emplace_back(free.end() - count, free.end());
      free.erase(free.end() - count, free.end());
    }
  }

  bool run_step(std::int64_t tokens) {
    std::vector<SequenceChunk> chunks;
    std::vector<std::size_t> sequence_of;
    std::int64_t num_rows = 0;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      auto count = std::min(tokens, lengths_[s] - done_[s]);
      if (count == 0) continue;
      if (manner_.forget_behind_window) forget(s);
      chunks.push_back({tables_[s], done_[s], count, num_rows});
      sequence_of.push_back(s);
      num_rows += count;
    }
    if (chunks.empty()) return false;
    auto q_width = shape_.num_heads() * shape_.head_dim, kv_width = shape_.num_kv_heads * shape_.head_dim;
    auto q = rows_of(0, chunks, sequence_of, q_width), k = rows_of(1, chunks, sequence_of, kv_width);
    auto v = rows_of(2, chunks, sequence_of, kv_width);
    Floats out(q.size(), std::nanf(""));
    std::vector<std::uint8_t> failed(static_cast<std::size_t>(num_rows));
    KvWrite write = {chunks, k.data(), v.data(), kv_width, kv_width, failed.data()};
    AttentionCall call = {chunks, q.data(), out.data(), q_width, q_width, shape_.num_heads(), 0.125f, shape_.window};
    pool_.run([&](Worker& worker) {
      write_kv(worker, manner_.tier, *store_, 0, write);
      if (!manner_.reference) paged_attention(worker, manner_.tier, *store_, 0, call, scratch_);
    });
    if (manner_.reference) reference_attention(*store_, 0, call);
    EXPECT_EQ(std::count(failed.begin(), failed.end(), 1), 0);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      auto* begin = out.data() + chunks[c].first_row * q_width;
      auto& kept = outputs_[sequence_of[c]];
      kept.insert(kept.end(), begin, begin + chunks[c].num_tokens * q_width);
      done_[sequence_of[c]] += chunks[c].num_tokens;
    }
    return true;
  }

  void forget(std::size_t s) {
    auto hidden = std::max<std::int64_t>(0, done_[s] + 1 - shape_.window) / shape_.block_size;
    std::fill_n(tables_[s].begin(), hidden, kNullBlock);
  }

  Floats rows_of(std::uint64_t kind, const std::vector<SequenceChunk>& chunks,
                 const std::vector<std::size_t>& sequence_of, std::int64_t width) {
    Floats rows;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      for (std::int64_t t = 0; t < chunks[c].num_tokens; ++t) {
        for (std::int64_t i = 0; i < width; ++i) {
          rows.push_back(element(kind, names_[sequence_of[c]], chunks[c].first_position + t, i));
        }
      }
    }
    return rows;
  }

  Shape shape_;
  Manner manner_;
  std::vector<std::int64_t> lengths_, done_;
  std::vector<std::uint64_t> names_;
  ThreadPool pool_;
  AttentionScratch scratch_;
  std::unique_ptr<KvStore> store_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<Floats> outputs_;
};

std::uint64_t digest_of(const Floats& values) {
  Digest digest;
  digest.add_floats(values);
  return digest.value();
}

std::uint64_t digest_of_one(const Shape& shape, std::int64_t length, const Manner& manner) {
  return digest_of(Sequences(shape, {length}, {1}, manner).compute()[0]);
}

std::string describe(const Shape& shape, const Manner& manner) {
  return cat("tier ", to_string(manner.tier), ", kv heads ", shape.num_kv_heads, ", group ", shape.group, ", dim ",
             shape.head_dim, ", block ", shape.block_size, ", ", to_string(shape.type), ", window ", shape.window,
             ", chunks of ", manner.chunks[0], ", threads ", manner.threads);
}

/// Shapes that reach every path: each group size and head size, in place and decoded, with and without windows.
std::vector<Shape> grid() {
  std::vector<Shape> shapes;
  for (std::int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14}) shapes.push_back({.num_kv_heads = 2, .group = group});
  for (std::int64_t dim : {2, 30, 34, 80, 96, 128, 256}) shapes.push_back({.num_kv_heads = 1, .head_dim = dim});
  for (std::int64_t size : {8, 16, 32, 64, 128}) {
    for (KvType type : {KvType::f16, KvType::f32}) {
      for (std::int64_t window : {0, 1, 17, 100}) {
        shapes.push_back(
            {.num_kv_heads = 1, .group = 2, .head_dim = 32, .block_size = size, .type = type, .window = window});
      }
    }
  }
  return shapes;
}

/// The shapes that differ in code for formats beside f16 and f32: in place and decoded, all block sizes, padded heads.
std::vector<Shape> grid_of(KvType type) {
  std::vector<Shape> shapes;
  for (std::int64_t group : {1, 3, 7, 14}) shapes.push_back({.num_kv_heads = 2, .group = group, .type = type});
  for (std::int64_t dim : {2, 30, 34, 80, 96, 128, 256}) {
    shapes.push_back({.num_kv_heads = 1, .head_dim = dim, .type = type});
  }
  for (std::int64_t size : {8, 16, 32, 64, 128}) {
    for (std::int64_t window : {0, 17}) {
      shapes.push_back(
          {.num_kv_heads = 1, .group = 2, .head_dim = 48, .block_size = size, .type = type, .window = window});
    }
  }
  return shapes;
}

constexpr KvType kMoreTypes[] = {KvType::bf16, KvType::int8};

const std::vector<std::vector<std::int64_t>> kChunkings = {{1 << 20}, {1}, {7}, {16}, {17, 1, 64, 3}};

TEST(PagedAttention, EveryTierGivesTheBitsOfTheReference) {
  auto shapes = grid();
  for (KvType type : kMoreTypes) {
    for (const Shape& shape : grid_of(type)) shapes.push_back(shape);
  }
  for (const Shape& shape : shapes) {
    auto expected = digest_of_one(shape, 290, {.chunks = {1 << 20}, .reference = true});
    for (CpuTier tier : supported_tiers()) {
      for (const auto& chunks : {kChunkings[0], kChunkings[4]}) {
        Manner manner = {.tier = tier, .chunks = chunks};
        EXPECT_EQ(digest_of_one(shape, 290, manner), expected) << describe(shape, manner);
      }
    }
  }
}

TEST(PagedAttention, BitsAreTheCommittedOnes) {
  for (CpuTier tier : supported_tiers()) {
    Digest digest;
    for (const Shape& shape : grid()) digest.add(digest_of_one(shape, 150, {.tier = tier, .chunks = {50, 1, 9}}));
    EXPECT_EQ(digest.value(), 3004193938354977410ull) << to_string(tier);
  }
}

TEST(PagedAttention, BitsOfTheOtherFormatsAreTheCommittedOnes) {
  const std::pair<KvType, std::uint64_t> committed[] = {{KvType::bf16, 10678622942804596669ull},
                                                        {KvType::int8, 12165431892795502284ull}};
  for (auto [type, expected] : committed) {
    for (CpuTier tier : supported_tiers()) {
      Digest digest;
      for (const Shape& shape : grid_of(type)) {
        digest.add(digest_of_one(shape, 150, {.tier = tier, .chunks = {50, 1, 9}}));
      }
      EXPECT_EQ(digest.value(), expected) << to_string(type) << ", " << to_string(tier);
    }
  }
}

TEST(PagedAttention, BlockSizeAndBlockIdsChangeNoBit) {
  for (CpuTier tier : supported_tiers()) {
    if (tier == CpuTier::scalar) continue;  // equal to the others by the tests above, and slow
    for (KvType type : kAllKvTypes) {
      Shape shape = {.type = type};
      auto expected = digest_of_one(shape, 700, {.tier = tier});
      for (std::int64_t size : {8, 16, 32, 64, 128}) {
        for (std::uint64_t order : {1, 2, 3}) {
          for (const auto& chunks : {kChunkings[0], kChunkings[2]}) {
            shape.block_size = size;
            Manner manner = {.tier = tier, .chunks = chunks, .block_order = order};
            EXPECT_EQ(digest_of_one(shape, 700, manner), expected) << describe(shape, manner);
          }
        }
      }
    }
  }
}

TEST(PagedAttention, ChunkingAndThreadsChangeNoBit) {
  for (CpuTier tier : supported_tiers()) {
    if (tier == CpuTier::scalar) continue;
    for (Shape shape :
         {Shape{}, Shape{.num_kv_heads = 1, .group = 4, .head_dim = 256}, Shape{.group = 7, .window = 300},
          Shape{.type = KvType::bf16, .window = 300}, Shape{.type = KvType::int8, .window = 300}}) {
      auto expected = digest_of_one(shape, 600, {.tier = tier});
      for (const auto& chunks : kChunkings) {
        Manner manner = {.tier = tier, .threads = 2, .chunks = chunks};
        EXPECT_EQ(digest_of_one(shape, 600, manner), expected) << describe(shape, manner);
      }
      for (int threads : {1, 3, 4}) {
        Manner manner = {.tier = tier, .threads = threads, .chunks = kChunkings[4]};
        EXPECT_EQ(digest_of_one(shape, 600, manner), expected) << describe(shape, manner);
      }
    }
  }
}

TEST(PagedAttention, SequencesInABatchGiveTheBitsTheyGiveAlone) {
  std::vector<std::int64_t> lengths = {1, 15, 16, 17, 64, 65, 255, 256, 257, 400, 513, 30};
  std::vector<std::uint64_t> names;
  for (std::uint64_t i = 0; i < lengths.size(); ++i) names.push_back(i);
  for (CpuTier tier : supported_tiers()) {
    if (tier == CpuTier::scalar) continue;
    for (const auto& chunks : {kChunkings[0], kChunkings[2], kChunkings[4]}) {
      Manner manner = {.tier = tier, .threads = 2, .chunks = chunks};
      Sequences batch({}, lengths, names, manner);
      const auto& together = batch.compute();
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        Manner alone = {.tier = tier, .block_order = 9};
        auto expected = Sequences({}, {lengths[i]}, {names[i]}, alone).compute()[0];
        EXPECT_EQ(digest_of(together[i]), digest_of(expected)) << describe({}, manner) << ", length " << lengths[i];
      }
    }
  }
}

TEST(PagedAttention, BlocksBehindTheWindowAreNotNeeded) {
  for (CpuTier tier : supported_tiers()) {
    if (tier == CpuTier::scalar) continue;
    for (KvType type : {KvType::f16, KvType::int8}) {
      for (std::int64_t size : {8, 16, 128}) {
        Shape shape = {.block_size = size, .type = type, .window = 70};
        auto expected = digest_of_one(shape, 500, {.tier = tier});
        for (const auto& chunks : {kChunkings[2], kChunkings[4]}) {
          Manner manner = {.tier = tier, .chunks = chunks, .forget_behind_window = true};
          EXPECT_EQ(digest_of_one(shape, 500, manner), expected) << describe(shape, manner);
        }
      }
    }
  }
}

TEST(PagedAttention, AWindowAsLongAsTheSequenceChangesNoBit) {
  auto tier = supported_tiers().back();
  auto expected = digest_of_one({}, 300, {.tier = tier});
  EXPECT_EQ(digest_of_one({.window = 300}, 300, {.tier = tier}), expected);
  EXPECT_NE(digest_of_one({.window = 299}, 300, {.tier = tier}), expected);
}

/// softmax(q k^T * scale) v in f64, from what the cache holds, with a bound on the error of f32 arithmetic.
void expect_near_softmax(const Shape& shape, std::int64_t length) {
  constexpr double kEpsilon = 0x1p-24;
  Manner manner = {.tier = supported_tiers().back()};
  auto out = Sequences(shape, {length}, {1}, manner).compute()[0];
  auto rounded = [&](std::uint64_t kind, std::int64_t position, std::int64_t i) {
    float x = element(kind, 1, position, i);
    if (shape.type == KvType::int8) {
      std::int64_t begin = i - i % shape.head_dim % kScaleGroup;
      float amax = 0;
      for (auto j = begin; j < std::min(begin + kScaleGroup, i - i % shape.head_dim + shape.head_dim); ++j) {
        amax = std::max(amax, std::fabs(element(kind, 1, position, j)));
      }
      float step = amax / 127.0f, scaled = step * 8193.0f;  // eleven bits
      step = scaled - (scaled - step);
      return double(std::nearbyint(x / step)) * double(step);
    }
    if (shape.type == KvType::f32) return double(x);
    // Eleven (f16) or eight (bf16) significant bits; the values used are not subnormal halves or too small to matter.
    float scaled = x * (shape.type == KvType::f16 ? 8193.0f : 65537.0f);
    return double(scaled - (scaled - x));
  };
  for (std::int64_t position : {std::int64_t{0}, length / 2, length - 1}) {
    for (std::int64_t head = 0; head < shape.num_heads(); ++head) {
      std::int64_t begin = shape.window > 0 ? std::max<std::int64_t>(0, position + 1 - shape.window) : 0;
      std::vector<double> scores;
      double top = -1e300, magnitude = 0, largest_value = 0;
      auto kv = head / shape.group * shape.head_dim;
      for (auto t = begin; t <= position; ++t) {
        double score = 0, absolute = 0;
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          double term = 0.125 * element(0, 1, position, head * shape.head_dim + d) * rounded(1, t, kv + d);
          score += term, absolute += std::fabs(term);
        }
        scores.push_back(score);
        top = std::max(top, score), magnitude = std::max(magnitude, absolute);
      }
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - top);
      // A score errs by (head_dim + 3) roundings of its terms' magnitude, and twice for the maximum; a weight by that
      // and 2 ulp; the sums by a rounding a token and a few a tile.
      double weight_error = 2 * (static_cast<double>(shape.head_dim) + 3) * magnitude * kEpsilon + 8 * kEpsilon;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        double sum = 0;
        for (std::size_t t = 0; t < scores.size(); ++t) {
          double value = rounded(2, begin + static_cast<std::int64_t>(t), kv + d);
          sum += scores[t] / total * value, largest_value = std::max(largest_value, std::fabs(value));
        }
        double bound = largest_value * (2 * weight_error + 2 * static_cast<double>(scores.size() + 16) * kEpsilon);
        auto at = static_cast<std::size_t>((position * shape.num_heads() + head) * shape.head_dim + d);
        ASSERT_NEAR(out[at], sum, bound) << describe(shape, manner) << ", position " << position;
      }
    }
  }
}

TEST(PagedAttention, IsTheSoftmaxWithinTheErrorOfItsArithmetic) {
  for (std::int64_t length : {1, 50, 300, 1000}) {
    expect_near_softmax({}, length);
    expect_near_softmax({.type = KvType::f32}, length);
    expect_near_softmax({.type = KvType::bf16}, length);
    expect_near_softmax({.type = KvType::int8}, length);
    expect_near_softmax({.num_kv_heads = 2, .group = 4, .head_dim = 80, .type = KvType::int8, .window = 120}, length);
    expect_near_softmax({.num_kv_heads = 1, .group = 4, .head_dim = 80, .type = KvType::bf16, .window = 120}, length);
    expect_near_softmax({.num_kv_heads = 1, .group = 4, .head_dim = 256, .window = 120}, length);
    expect_near_softmax({.num_kv_heads = 3, .group = 1, .head_dim = 80, .block_size = 8}, length);
  }
}

TEST(PagedAttention, UnwrittenSlotsNeverReachAResult) {
  // The pool starts as NaN, so one value read too many would show.
  for (CpuTier tier : supported_tiers()) {
    for (std::int64_t size : {8, 16, 64, 128}) {
      for (const auto& chunks : kChunkings) {
        if (tier == CpuTier::scalar && chunks != kChunkings[4]) continue;
        for (KvType type : kAllKvTypes) {
          Manner manner = {.tier = tier, .chunks = chunks};
          Shape shape = {.num_kv_heads = 1, .block_size = size, .type = type};
          Sequences sequences(shape, {75}, {1}, manner);
          for (float x : sequences.compute()[0]) ASSERT_TRUE(std::isfinite(x)) << describe(shape, manner);
        }
      }
    }
  }
}

TEST(PagedAttention, ScratchServesCallsOfAnyShapeInTurn) {
  auto tier = supported_tiers().back();
  KvLayout layout = {1, 2, 64, 16, KvType::f16};
  KvStore store(layout, 100);
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 1; i < 100; ++i) blocks.push_back(BlockId{i});
  Floats rows(static_cast<std::size_t>(300 * 18 * 64), 0.25f), out(rows.size());
  AttentionScratch scratch;
  ThreadPool small(1), large(3);
  auto run = [&](ThreadPool& pool, std::int64_t position, std::int64_t tokens, std::int64_t heads) {
    SequenceChunk chunk = {blocks, position, tokens, 0};
    AttentionCall call = {{&chunk, 1}, rows.data(), out.data(), heads * 64, heads * 64, heads, 0.125f, 0};
    pool.run([&](Worker& worker) { paged_attention(worker, tier, store, 0, call, scratch); });
    return digest_of(Floats(out.begin(), out.begin() + tokens * heads * 64));
  };
  auto first = run(small, 5, 1, 2);
  EXPECT_EQ(run(large, 1000, 300, 18), run(small, 1000, 300, 18));
  EXPECT_EQ(run(large, 5, 1, 2), first);
  EXPECT_EQ(run(large, 1500, 1, 6), run(small, 1500, 1, 6));
  EXPECT_EQ(run(small, 5, 1, 2), first);
}

}  // namespace
}  // namespace quire::attention
