#include "quire/attention/contiguous_attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "quire/attention/paged_attention.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire::attention {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::int64_t num_kv_heads = 2, group = 3, head_dim = 64;
  KvType type = KvType::f16;
  std::int64_t window = 0;
};

struct Manner {
  CpuTier tier = CpuTier::scalar;
  int threads = 1;
  std::vector<std::int64_t> chunks = {1 << 20};  ///< tokens a step, in turn
};

std::vector<CpuTier> supported_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

/// The values of a token's row: the same for paged and contiguous memory.
Floats row_values(std::uint64_t kind, std::size_t sequence, std::int64_t position, std::int64_t count) {
  Floats values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto key = static_cast<std::uint64_t>(position) << 20 | static_cast<std::uint64_t>(i);
    values.push_back(static_cast<float>(4 * unit_interval(random_at(kind * 100 + sequence, key)) - 2));
  }
  return values;
}

void append(Floats& to, const Floats& values) { to.insert(to.end(), values.begin(), values.end()); }

/// K, V and Q of one step, and which tokens it has.
struct Step {
  std::vector<SequenceChunk> chunks;
  std::vector<std::size_t> sequence_of;  ///< as chunks
  Floats q, k, v, out;
};

/// Runs sequences of these lengths through one of the two memories, layer 1 of 2, and gathers what each token gets.
class Runner {
 public:
  Runner(const Shape& shape, std::vector<std::int64_t> lengths, const Manner& manner)
      : shape_(shape),
        manner_(manner),
        lengths_(std::move(lengths)),
        pool_(manner.threads),
        done_(lengths_.size(), 0) {}

  std::vector<Floats> run_paged() {
    const std::int64_t size = 16;
    std::int64_t num_blocks = 1;
    for (auto length : lengths_) num_blocks += ceil_div(length, size);
    KvStore store({2, shape_.num_kv_heads, shape_.head_dim, size, shape_.type}, num_blocks);
    std::vector<std::vector<BlockId>> tables;
    auto next = static_cast<std::uint32_t>(num_blocks - 1);
    for (auto length : lengths_) {
      tables.emplace_back();
      for (std::int64_t i = 0; i < ceil_div(length, size); ++i) tables.back().push_back(BlockId{next--});
    }
    return run([&](Worker& worker, Step& step) {
      for (std::size_t i = 0; i < step.chunks.size(); ++i) {
        if (worker.index() == 0) step.chunks[i].blocks = tables[step.sequence_of[i]];
      }
      worker.barrier();
      write_kv(worker, manner_.tier, store, 1, write_of(step));
      paged_attention(worker, manner_.tier, store, 1, call_of(step), scratch_);
    });
  }

  /// Groups of 4 KiB, so that tiles straddle them; in descending order, so that none are neighbours in the pool.
  std::vector<Floats> run_contiguous() {
    const KvLayout layout{2, shape_.num_kv_heads, shape_.head_dim, kTileTokens, shape_.type};
    const std::int64_t group_bytes = 4096;
    std::int64_t num_groups = 0, longest = 0;
    const auto groups_for = [&](std::int64_t tokens) {
      return ceil_div(ceil_div(tokens, kTileTokens) * VirtualKvStore::tile_bytes(layout), group_bytes);
    };
    for (auto length : lengths_) num_groups += groups_for(length), longest = std::max(longest, length);
    auto created = VirtualKvStore::create({.layout = layout,
                                           .group_bytes = group_bytes,
                                           .num_groups = num_groups,
                                           .num_places = static_cast<std::int64_t>(lengths_.size()),
                                           .context_tokens = longest});
    EXPECT_TRUE(created.ok()) << created.error().message;
    VirtualKvStore& store = **created;
    std::int64_t next = num_groups;
    std::vector<std::int64_t> mapped(lengths_.size(), 0);
    return run([&](Worker& worker, Step& step) {
      for (std::size_t i = 0; worker.index() == 0 && i < step.chunks.size(); ++i) {
        const std::size_t sequence = step.sequence_of[i];
        SequenceChunk& chunk = step.chunks[i];
        chunk.place = static_cast<std::int64_t>(sequence);
        for (; mapped[sequence] < groups_for(chunk.first_position + chunk.num_tokens); ++mapped[sequence]) {
          store.map({chunk.place, mapped[sequence], 1, --next});
          // Every byte is a NaN until written.
          std::memset(group_at(store, chunk.place, mapped[sequence], group_bytes), 0xFF, 4096);
        }
      }
      worker.barrier();
      write_kv(worker, manner_.tier, store, 1, write_of(step));
      contiguous_attention(worker, manner_.tier, store, 1, call_of(step), scratch_);
    });
  }

 private:
  static std::byte* group_at(VirtualKvStore& store, std::int64_t place, std::int64_t index, std::int64_t bytes) {
    return store.k_panel(0, place, 0, 0) + index * bytes;
  }

  std::int64_t kv_floats() const { return shape_.num_kv_heads * shape_.head_dim; }
  std::int64_t q_floats() const { return kv_floats() * shape_.group; }

  KvWrite write_of(const Step& step) {
    return {step.chunks, step.k.data(), step.v.data(), kv_floats(), kv_floats(), failed_.data()};
  }
  AttentionCall call_of(Step& step) {
    AttentionCall call;
    call.chunks = step.chunks;
    call.q = step.q.data();
    call.out = step.out.data();
    call.q_stride = call.out_stride = q_floats();
    call.num_heads = shape_.num_kv_heads * shape_.group;
    call.scale = 0.17f;
    call.window = shape_.window;
    return call;
  }

  Step next_step(std::int64_t most) {
    Step step;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      const std::int64_t count = std::min(most, lengths_[s] - done_[s]);
      if (count == 0) continue;
      SequenceChunk chunk;
      chunk.first_position = done_[s];
      chunk.num_tokens = count;
      chunk.first_row = static_cast<std::int64_t>(step.q.size()) / q_floats();
      step.chunks.push_back(chunk);
      step.sequence_of.push_back(s);
      for (std::int64_t p = done_[s]; p < done_[s] + count; ++p) {
        append(step.q, row_values(1, s, p, q_floats()));
        append(step.k, row_values(2, s, p, kv_floats()));
        append(step.v, row_values(3, s, p, kv_floats()));
      }
      done_[s] += count;
    }
    step.out.resize(step.q.size());
    failed_.assign(step.q.size(), 0);
    return step;
  }

  template <class Compute>
  std::vector<Floats> run(Compute compute) {
    std::vector<Floats> outputs(lengths_.size());
    std::fill(done_.begin(), done_.end(), 0);
    for (std::size_t n = 0;; ++n) {
      Step step = next_step(manner_.chunks[n % manner_.chunks.size()]);
      if (step.chunks.empty()) return outputs;
      pool_.run([&](Worker& worker) { compute(worker, step); });
      for (std::size_t i = 0; i < step.chunks.size(); ++i) {
        const auto* from = step.out.data() + step.chunks[i].first_row * q_floats();
        outputs[step.sequence_of[i]].insert(outputs[step.sequence_of[i]].end(), from,
                                            from + step.chunks[i].num_tokens * q_floats());
      }
    }
  }

  Shape shape_;
  Manner manner_;
  std::vector<std::int64_t> lengths_;
  ThreadPool pool_;
  AttentionScratch scratch_;
  std::vector<std::int64_t> done_;
  std::vector<std::uint8_t> failed_;
};

void expect_same_bits(const Shape& shape, const std::vector<std::int64_t>& lengths, const Manner& manner) {
  SCOPED_TRACE(testing::Message() << shape.num_kv_heads << " x " << shape.group << " heads of " << shape.head_dim
                                  << ", type " << to_string(shape.type) << ", window " << shape.window << ", tier "
                                  << to_string(manner.tier));
  Runner runner(shape, lengths, manner);
  const auto paged = runner.run_paged(), contiguous = runner.run_contiguous();
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    ASSERT_EQ(paged[s].size(), contiguous[s].size());
    EXPECT_EQ(std::memcmp(paged[s].data(), contiguous[s].data(), paged[s].size() * sizeof(float)), 0)
        << "sequence " << s;
  }
}

const std::vector<std::int64_t> kLengths = {1, 63, 64, 65, 300, 130};

TEST(ContiguousAttention, HasTheBitsOfPagedAttentionForEveryTypeAndShapeOnEveryTier) {
  for (CpuTier tier : supported_tiers()) {
    for (KvType type : {KvType::f16, KvType::f32, KvType::bf16}) {
      expect_same_bits({2, 3, 64, type, 0}, kLengths, {tier});
      expect_same_bits({1, 1, 18, type, 0}, kLengths, {tier});  // no multiple of sixteen
      expect_same_bits({3, 7, 32, type, 0}, {70, 5}, {tier});
    }
  }
}

TEST(ContiguousAttention, HasThemInDecodesAndChunksAndWithAnyNumberOfThreads) {
  for (CpuTier tier : supported_tiers()) {
    expect_same_bits({2, 3, 64, KvType::f16, 0}, kLengths, {tier, 3, {1, 17, 40, 1, 1}});
    expect_same_bits({2, 1, 80, KvType::bf16, 0}, {90, 7}, {tier, 2, {1}});
  }
}

TEST(ContiguousAttention, HasThemBehindASlidingWindow) {
  for (CpuTier tier : supported_tiers()) {
    expect_same_bits({2, 2, 64, KvType::f16, 20}, kLengths, {tier, 2, {33, 1, 1}});
    expect_same_bits({1, 4, 48, KvType::f32, 200}, {600}, {tier, 1, {250, 1}});
  }
}

TEST(ContiguousAttention, ATooLargeValueFailsItsRowAlone) {
  const KvLayout layout{1, 1, 16, kTileTokens, KvType::f16};
  auto store = VirtualKvStore::create({layout, 4096, 4, 1, 64});
  ASSERT_TRUE(store.ok()) << store.error().message;
  (*store)->map({0, 0, 1, 3});
  Floats k(32, 1.0f), v(32, 1.0f);
  k[20] = 1e6f;
  std::vector<std::uint8_t> failed(2, 0);
  SequenceChunk chunk;
  chunk.num_tokens = 2;
  ThreadPool pool(1);
  pool.run([&](Worker& worker) {
    write_kv(worker, CpuTier::scalar, **store, 0, {{&chunk, 1}, k.data(), v.data(), 16, 16, failed.data()});
  });
  EXPECT_EQ(failed, (std::vector<std::uint8_t>{0, 1}));
}

}  // namespace
}  // namespace quire::attention
