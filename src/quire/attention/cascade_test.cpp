// Attention of sequences that share blocks gives the bits that it gives when every sequence walks its own table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quire/attention/attention_plan.h"
#include "quire/attention/paged_attention.h"
#include "quire/attention/reference_attention.h"
#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire::attention {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::int64_t num_kv_heads = 2, group = 3, head_dim = 32;
  std::int64_t block_size = 16;
  KvType type = KvType::f16;
  std::int64_t window = 0;
  std::int64_t num_heads() const { return num_kv_heads * group; }
};

std::vector<CpuTier> supported_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

/// One sequence: its first `shared` tokens are those of every other one, as far as whole blocks go.
struct Member {
  std::int64_t shared = 0, own = 0;
  std::int64_t tokens = 1;  ///< of which are computed in the step
};

Floats random_floats(std::uint64_t kind, std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(4 * unit_interval(random_at(kind, i)) - 2);
  return values;
}

/// A step of sequences over a store whose blocks are all written.
class Step {
 public:
  Step(const Shape& shape, const std::vector<Member>& members)
      : shape_(shape), store_(layout(), count_blocks(members)) {
    fill_store();
    std::vector<BlockId> free;
    for (std::int64_t id = store_.num_blocks() - 1; id > 0; --id)
      free.push_back(BlockId{static_cast<std::uint32_t>(id)});
    std::vector<BlockId> trunk;
    tables_.reserve(members.size());
    std::int64_t row = 0;
    for (const Member& member : members) {
      const std::int64_t length = member.shared + member.own;
      auto& table = tables_.emplace_back();
      for (std::int64_t begin = 0; begin < length; begin += shape.block_size) {
        const auto at = static_cast<std::size_t>(begin / shape.block_size);
        const bool is_common = begin + shape.block_size <= member.shared;
        if (is_common && at < trunk.size()) {
          table.push_back(trunk[at]);
          continue;
        }
        table.push_back(free.back());
        free.pop_back();
        if (is_common) trunk.push_back(table.back());
      }
      chunks_.push_back({table, length - member.tokens, member.tokens, row});
      row += member.tokens;
    }
    q_ = random_floats(1, static_cast<std::size_t>(row * width()));
  }

  Floats compute(CpuTier tier, int threads, Cascade cascade) {
    AttentionPlan plan;
    plan.make(store_.layout(), {chunks_, shape_.num_heads(), shape_.window, threads, cascade});
    shared_positions_ = plan.shared_positions();
    Floats out(q_.size(), std::nanf(""));
    AttentionCall call = this->call(out);
    call.plan = &plan;
    AttentionScratch scratch;
    ThreadPool pool(threads);
    pool.run([&](Worker& worker) { paged_attention(worker, tier, store_, 0, call, scratch); });
    return out;
  }

  Floats reference() {
    Floats out(q_.size());
    reference_attention(store_, 0, call(out));
    return out;
  }

  /// Of the last compute().
  std::int64_t shared_positions() const { return shared_positions_; }

 private:
  KvLayout layout() const { return {1, shape_.num_kv_heads, shape_.head_dim, shape_.block_size, shape_.type}; }
  std::int64_t width() const { return shape_.num_heads() * shape_.head_dim; }

  std::int64_t count_blocks(const std::vector<Member>& members) const {
    std::int64_t count = 1, trunk = 0;
    for (const Member& member : members) {
      count += ceil_div(member.own, shape_.block_size) + 1;
      trunk = std::max(trunk, ceil_div(member.shared, shape_.block_size));
    }
    return count + trunk;
  }

  void fill_store() {
    std::vector<BlockId> all;
    for (std::int64_t id = 1; id < store_.num_blocks(); ++id) all.push_back(BlockId{static_cast<std::uint32_t>(id)});
    const auto tokens = static_cast<std::int64_t>(all.size()) * shape_.block_size;
    const std::int64_t width = shape_.num_kv_heads * shape_.head_dim;
    const Floats k = random_floats(2, static_cast<std::size_t>(tokens * width));
    const Floats v = random_floats(3, static_cast<std::size_t>(tokens * width));
    std::vector<std::uint8_t> failed(static_cast<std::size_t>(tokens));
    const SequenceChunk chunk = {all, 0, tokens, 0};
    ThreadPool pool(1);
    pool.run([&](Worker& worker) {
      write_kv(worker, supported_tiers().back(), store_, 0,
               {{&chunk, 1}, k.data(), v.data(), width, width, failed.data()});
    });
  }

  AttentionCall call(Floats& out) const {
    return {chunks_, q_.data(), out.data(), width(), width(), shape_.num_heads(), 0.125f, shape_.window};
  }

  Shape shape_;
  KvStore store_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<SequenceChunk> chunks_;
  Floats q_;
  std::int64_t shared_positions_ = 0;
};

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// `count` decodes with a common prefix and suffixes of different lengths.
std::vector<Member> decodes(std::int64_t count, std::int64_t prefix) {
  std::vector<Member> members;
  for (std::int64_t i = 0; i < count; ++i) members.push_back({prefix, 1 + (i * 37) % 90});
  return members;
}

void expect_same(const Shape& shape, const std::vector<Member>& members, int threads = 2) {
  Step step(shape, members);
  const Floats expected = step.compute(supported_tiers().back(), 1, Cascade::off);
  EXPECT_EQ(step.shared_positions(), 0);
  for (CpuTier tier : supported_tiers()) {
    const Floats shared = step.compute(tier, threads, Cascade::on);
    EXPECT_GT(step.shared_positions(), 0);
    EXPECT_TRUE(same_bits(shared, expected))
        << to_string(tier) << ", " << members.size() << " sequences, group " << shape.group << ", block "
        << shape.block_size << ", " << to_string(shape.type) << ", window " << shape.window << ", dim "
        << shape.head_dim;
  }
}

TEST(Cascade, AnyNumberOfRowsGivesTheBitsOfEachAlone) {
  for (std::int64_t rows = 2; rows <= 40; ++rows) expect_same({.num_kv_heads = 1}, decodes(rows, 330));
}

TEST(Cascade, AnyGroupSizeGivesTheBitsOfEachAlone) {
  for (std::int64_t group = 1; group <= 9; ++group) {
    expect_same({.num_kv_heads = 1, .group = group}, decodes(7, 450));
    expect_same({.group = group, .type = KvType::bf16}, decodes(2, 80));
  }
}

TEST(Cascade, EveryFormatAndBlockSizeGivesTheBitsOfEachAlone) {
  for (KvType type : kAllKvTypes) {
    for (std::int64_t size : {8, 16, 32, 64, 128}) {
      expect_same({.num_kv_heads = 1, .block_size = size, .type = type}, decodes(5, 400));
      expect_same({.num_kv_heads = 1, .group = 1, .head_dim = 34, .block_size = size, .type = type}, decodes(19, 300));
    }
  }
}

TEST(Cascade, WindowsGiveTheBitsOfEachAlone) {
  for (std::int64_t window : {400, 512, 700}) {
    for (std::int64_t size : {8, 16, 128})
      expect_same({.num_kv_heads = 1, .group = 2, .block_size = size, .window = window}, decodes(9, 800));
  }
}

TEST(Cascade, ATreeWithShortChunksAndAPromptBesidesGivesTheBitsOfEachAlone) {
  const std::vector<Member> members = {{700, 20, 1}, {700, 70, 5}, {300, 400, 8}, {130, 80, 2},  {700, 300, 100},
                                       {0, 300, 1},  {520, 9, 3},  {700, 20, 16}, {700, 20, 17}, {64, 1, 1}};
  for (KvType type : kAllKvTypes) {
    for (int threads : {1, 3}) expect_same({.type = type}, members, threads);
  }
}

TEST(Cascade, TheBitsAreThoseOfTheReference) {
  Step step({.group = 5, .type = KvType::int8, .window = 600}, decodes(6, 700));
  const Floats expected = step.reference();
  for (CpuTier tier : supported_tiers()) {
    EXPECT_TRUE(same_bits(step.compute(tier, 2, Cascade::on), expected)) << to_string(tier);
    EXPECT_GT(step.shared_positions(), 0);
  }
}

TEST(AttentionPlan, EverySpanOfEveryShortChunkIsInOneItem) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const std::int64_t window = seed % 3 == 0 ? 300 : 0;
    std::vector<std::vector<BlockId>> tables;
    std::vector<SequenceChunk> chunks;
    std::uint32_t next = 1;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(rng() % 40),
                         position = static_cast<std::int64_t>(rng() % 3000);
      std::vector<BlockId> table;
      if (i > 0)
        table.assign(tables[0].begin(), tables[0].begin() + static_cast<std::ptrdiff_t>(rng() % tables[0].size()));
      while (static_cast<std::int64_t>(table.size()) * 16 < position + tokens) table.push_back(BlockId{next++});
      tables.push_back(table);
      chunks.push_back({{}, position, tokens, 0});
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i].blocks = tables[i];
    AttentionPlan plan;
    plan.make({1, 2, 64, 16, KvType::f16}, {chunks, 6, window, 2, Cascade::on});
    std::vector<std::vector<int>> covered(chunks.size());
    std::vector<std::int64_t> row_tiles(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i)
      covered[i].resize(static_cast<std::size_t>(plan.split(static_cast<std::int64_t>(i)).num_spans));
    const auto cover = [&](std::int32_t chunk, std::int64_t span) {
      ++covered[static_cast<std::size_t>(chunk)].at(static_cast<std::size_t>(span - plan.split(chunk).first_span));
    };
    for (const AttentionItem& item : plan.items()) {
      switch (item.kind) {
        case AttentionItem::Kind::row_tile:
          row_tiles[static_cast<std::size_t>(item.chunk)] += item.count;
          break;
        case AttentionItem::Kind::shared: {
          std::int64_t tokens = 0;
          for (std::int32_t member : plan.members(item)) {
            cover(member, item.span);
            tokens += chunks[static_cast<std::size_t>(member)].num_tokens;
          }
          EXPECT_LE(tokens * plan.group(), plan.rows_per_item());
          EXPECT_LE(tokens, kSharedTokensPerItem);
          break;
        }
        case AttentionItem::Kind::spans:
          for (std::int64_t span = item.first; span < item.first + item.count; ++span) cover(item.chunk, span);
          break;
      }
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      for (int times : covered[i]) EXPECT_EQ(times, 1) << "seed " << seed << ", chunk " << i;
      EXPECT_EQ(row_tiles[i], covered[i].empty() ? chunks[i].num_tokens : 0) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace quire::attention
