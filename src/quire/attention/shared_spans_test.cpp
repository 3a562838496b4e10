#include "quire/attention/shared_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "quire/attention/attention_kernels.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire::attention {
namespace {

using Table = std::vector<BlockId>;

Table blocks(std::uint32_t first, std::int64_t count) {
  Table table;
  for (std::int64_t i = 0; i < count; ++i) table.push_back(BlockId{first + static_cast<std::uint32_t>(i)});
  return table;
}

Table joined(Table begin, const Table& end) {
  begin.insert(begin.end(), end.begin(), end.end());
  return begin;
}

/// What a run is, in words that can be compared: span, tiles, members in order.
struct Found {
  std::int64_t span, num_tiles;
  std::vector<std::int32_t> members;
  bool operator==(const Found&) const = default;
};
void PrintTo(const Found& found, std::ostream* out) {
  *out << "span " << found.span << ", " << found.num_tiles << " tiles of";
  for (auto member : found.members) *out << ' ' << member;
}

std::vector<Found> find(std::span<const SequenceChunk> chunks, std::int64_t block_size, std::int64_t window = 0) {
  SharedSpans shared;
  shared.find({chunks, block_size, window, 16});
  std::vector<Found> found;
  for (const SharedRun& run : shared.runs()) {
    const auto members = shared.members(run);
    found.push_back({run.span, run.num_tiles, {members.begin(), members.end()}});
    std::sort(found.back().members.begin(), found.back().members.end());
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.span != b.span ? a.span < b.span : a.members < b.members; });
  return found;
}

TEST(SharedSpans, APrefixOfOneThousandTokensIsSharedByWholeTiles) {
  const Table prefix = blocks(1, 62);  // 992 tokens in blocks of 16
  const Table a = joined(prefix, blocks(100, 5)), b = joined(prefix, blocks(200, 5)),
              c = joined(prefix, blocks(300, 5));
  const SequenceChunk chunks[] = {{a, 1040, 1, 0}, {b, 1050, 1, 1}, {c, 1064, 1, 2}};
  EXPECT_EQ(find(chunks, 16),
            (std::vector<Found>{{0, 4, {0, 1, 2}}, {1, 4, {0, 1, 2}}, {2, 4, {0, 1, 2}}, {3, 3, {0, 1, 2}}}));
}

TEST(SharedSpans, SequencesWithBlocksOfTheirOwnShareNothing) {
  const Table a = blocks(1, 64), b = blocks(101, 64);
  const SequenceChunk chunks[] = {{a, 1000, 1, 0}, {b, 1000, 1, 1}};
  EXPECT_TRUE(find(chunks, 16).empty());
}

TEST(SharedSpans, ATreeOfBranchesIsSharedAtEachOfItsForks) {
  // 0 and 1 part after two spans, 2 after one, 3 after one tile.
  const Table trunk = blocks(1, 32);
  const Table a = joined(trunk, blocks(100, 9)), b = joined(trunk, blocks(200, 9));
  const Table c = joined({trunk.begin(), trunk.begin() + 16}, blocks(300, 25));
  const Table d = joined({trunk.begin(), trunk.begin() + 4}, blocks(400, 37));
  const SequenceChunk chunks[] = {{a, 600, 1, 0}, {b, 600, 1, 1}, {c, 600, 1, 2}, {d, 600, 1, 3}};
  EXPECT_EQ(find(chunks, 16), (std::vector<Found>{{0, 4, {0, 1, 2}}, {1, 4, {0, 1}}}));
  const SequenceChunk two[] = {{a, 600, 1, 0}, {d, 600, 1, 1}};
  EXPECT_EQ(find(two, 16), (std::vector<Found>{{0, 1, {0, 1}}}));
}

TEST(SharedSpans, NothingIsSharedThatOneOfTheRowsDoesNotSee) {
  const Table table = blocks(1, 40);
  // The token at position 127 sees two tiles in full, the one at 126 one.
  const SequenceChunk chunks[] = {{table, 126, 1, 0}, {table, 639, 1, 1}};
  EXPECT_EQ(find(chunks, 16), (std::vector<Found>{{0, 1, {0, 1}}}));
  const SequenceChunk later[] = {{table, 127, 1, 0}, {table, 639, 1, 1}};
  EXPECT_EQ(find(later, 16), (std::vector<Found>{{0, 2, {0, 1}}}));
  const SequenceChunk early[] = {{table, 62, 4, 0}, {table, 639, 1, 1}};
  EXPECT_TRUE(find(early, 16).empty());
}

TEST(SharedSpans, LongChunksShareNothing) {
  const Table table = blocks(1, 40);
  const SequenceChunk chunks[] = {{table, 600, 17, 0}, {table, 620, 1, 1}, {table, 600, 16, 2}};
  EXPECT_EQ(find(chunks, 16), (std::vector<Found>{{0, 4, {1, 2}}, {1, 4, {1, 2}}, {2, 1, {1, 2}}}));
}

TEST(SharedSpans, BehindAWindowTheTablesMayBeNullAndDiffer) {
  Table a = blocks(1, 80), b = blocks(1, 80);
  std::fill_n(a.begin(), 10, kNullBlock);
  std::fill_n(b.begin(), 20, kNullBlock);
  // Windows of 900: positions (200, 1100] and (350, 1250]: the spans from 256 and from 512 on.
  const SequenceChunk chunks[] = {{a, 1100, 1, 0}, {b, 1250, 1, 1}};
  EXPECT_EQ(find(chunks, 16, 900), (std::vector<Found>{{2, 4, {0, 1}}, {3, 4, {0, 1}}, {4, 1, {0, 1}}}));
}

TEST(SharedSpans, EveryBlockSizeFindsTheSameTiles) {
  for (std::int64_t size : {8, 16, 32, 64, 128}) {
    const Table prefix = blocks(1, 896 / size);
    const Table a = joined(prefix, blocks(1000, 200 / size + 2)), b = joined(prefix, blocks(2000, 200 / size + 2));
    const SequenceChunk chunks[] = {{a, 1000, 1, 0}, {b, 1001, 1, 1}};
    EXPECT_EQ(find(chunks, size), (std::vector<Found>{{0, 4, {0, 1}}, {1, 4, {0, 1}}, {2, 4, {0, 1}}, {3, 2, {0, 1}}}))
        << size;
  }
}

TEST(SharedSpans, RunsOfRandomTreesKeepTheInvariants) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const std::int64_t size = std::int64_t{8} << rng() % 5, window = rng() % 2 == 0 ? 0 : 1 + rng() % 700;
    std::vector<Table> tables;
    std::vector<SequenceChunk> chunks;
    std::uint32_t next = 1;
    const std::size_t count = 1 + rng() % 12;
    tables.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(rng() % 8),
                         position = static_cast<std::int64_t>(rng() % 1200);
      Table table;
      if (!tables.empty()) {
        const Table& other = tables[rng() % tables.size()];
        table.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(rng() % (other.size() + 1)));
      }
      while (static_cast<std::int64_t>(table.size()) * size < position + tokens) table.push_back(BlockId{next++});
      tables.push_back(table);
      chunks.push_back({tables.back(), position, tokens, 0});
    }
    std::set<std::pair<std::int64_t, std::int32_t>> placed;
    for (const Found& run : find(chunks, size, window)) {
      EXPECT_GE(run.members.size(), 2u);
      for (std::int32_t member : run.members) {
        EXPECT_TRUE(placed.insert({run.span, member}).second) << "seed " << seed;
        const SequenceChunk& chunk = chunks[static_cast<std::size_t>(member)];
        const std::int64_t begin = run.span * kSpanTokens, end = begin + run.num_tiles * kTileTokens;
        EXPECT_LE(end, chunk.first_position + 1) << "seed " << seed;
        EXPECT_TRUE(window == 0 || begin >= chunk.first_position + chunk.num_tokens - window) << "seed " << seed;
        const auto& first = chunks[static_cast<std::size_t>(run.members.front())];
        for (std::int64_t position = begin; position < end; position += 8)
          EXPECT_EQ(chunk.blocks[static_cast<std::size_t>(position / size)],
                    first.blocks[static_cast<std::size_t>(position / size)])
              << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace quire::attention
