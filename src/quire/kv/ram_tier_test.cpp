#include "quire/kv/ram_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "quire/base/rng.h"

namespace quire {
namespace {

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  key.bytes[0] = static_cast<std::byte>(number);
  return key;
}

NumberedContent content_of(std::uint64_t number, std::uint64_t parent = 0) {
  return {key_of(number), key_of(parent), number, parent, "salt", {TokenId{static_cast<std::int32_t>(number)}}};
}

FrameId find(const RamTier& ram, const NumberedContent& content) {
  return ram.find({content.key, content.parent_key, {content.parent_number, kNullBlock}, content.salt, content.tokens},
                  0);
}

TEST(RamTier, EvictsTheLeastRecentlyUsedAndNeverWhatIsPinnedOrPrivate) {
  RamTier ram(3);
  const FrameId first = ram.store(content_of(1)).frame;
  const FrameId second = ram.store(content_of(2)).frame;
  const FrameId tail = ram.take();
  ram.touch(first);
  EXPECT_EQ(ram.store(content_of(3)).frame, second);
  ram.pin(first);
  ram.pin(first);
  EXPECT_EQ(ram.num_available(), 1);
  EXPECT_EQ(ram.store(content_of(4)).frame, second);
  ram.pin(second);
  EXPECT_EQ(ram.num_available(), 0);
  EXPECT_EQ(ram.store(content_of(5)).frame, kNoFrame);
  EXPECT_EQ(ram.take(), kNoFrame);
  ram.unpin(first);
  EXPECT_EQ(ram.num_available(), 0);
  ram.unpin(first);
  EXPECT_EQ(ram.store(content_of(5)).frame, first);
  ram.give_back(tail);
  EXPECT_EQ(ram.take(), tail);
  EXPECT_EQ(ram.validate(), std::nullopt);
}

TEST(RamTier, FindsContentByTokensParentAndSaltAndNotByItsKey) {
  RamTier ram(4);
  const NumberedContent content = content_of(2, 1);
  const FrameId frame = ram.store(content).frame;
  EXPECT_EQ(find(ram, content), frame);
  NumberedContent other = content;
  other.tokens[0].value += 256;
  EXPECT_EQ(find(ram, other), kNoFrame);
  other = content;
  other.parent_number = 9;
  EXPECT_EQ(find(ram, other), kNoFrame);
  const NumberedContent root = content_of(3);
  ram.store(root);
  other = root;
  other.salt = "other";
  EXPECT_EQ(find(ram, other), kNoFrame);
}

TEST(RamTier, StoringWhatIsThereTakesNoFrameAndAnotherContentOfTheKeyGivesWayUnlessItIsPinned) {
  RamTier ram(2);
  const FrameId frame = ram.store(content_of(1)).frame;
  const RamTier::Stored again = ram.store(content_of(1));
  EXPECT_EQ(again.frame, frame);
  EXPECT_FALSE(again.is_new);
  NumberedContent other = content_of(7);
  other.key = key_of(1);
  ram.pin(frame);
  EXPECT_EQ(ram.store(other).frame, kNoFrame);
  ram.unpin(frame);
  const RamTier::Stored stored = ram.store(other);
  EXPECT_TRUE(stored.is_new);
  EXPECT_EQ(find(ram, content_of(1)), kNoFrame);
  EXPECT_EQ(find(ram, other), stored.frame);
  EXPECT_EQ(ram.num_keyed(), 1);
}

TEST(RamTier, AReadThatBringsWhatIsThereAlreadyGivesItsFrameBack) {
  RamTier ram(3);
  ram.store(content_of(1));
  const FrameId target = ram.take();
  NumberedContent same = content_of(1);
  same.number = 50;
  ram.publish(target, same);
  EXPECT_EQ(ram.num_keyed(), 1);
  EXPECT_EQ(ram.num_private(), 0);
  const FrameId second = ram.take();
  ram.publish(second, content_of(2));
  EXPECT_EQ(find(ram, content_of(2)), second);
  EXPECT_EQ(ram.validate(), std::nullopt);
}

/// Against lists that are walked: who is keyed, with how many pins, in which order of use.
TEST(RamTier, AnyOperationsAgreeWithAModel) {
  struct Known {
    std::uint64_t number;
    FrameId frame;
    int pins;
  };
  Rng rng(5);
  for (int run = 0; run < 200; ++run) {
    const auto num_frames = static_cast<std::int32_t>(rng.between(1, 12));
    RamTier ram(num_frames);
    std::vector<Known> known;  // the least recently used first
    std::vector<FrameId> privates;
    const auto evict = [&] {
      const auto oldest = std::ranges::find(known, 0, &Known::pins);
      if (oldest == known.end()) return false;
      known.erase(oldest);
      return true;
    };
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t number = static_cast<std::uint64_t>(rng.between(1, 20));
      const auto at = std::ranges::find(known, number, &Known::number);
      const bool is_full = static_cast<std::int32_t>(known.size() + privates.size()) == num_frames;
      switch (rng.between(0, 5)) {
        case 0: {
          const RamTier::Stored stored = ram.store(content_of(number));
          if (at != known.end()) {
            ASSERT_EQ(stored.frame, at->frame);
            if (at->pins == 0) std::rotate(at, at + 1, known.end());
          } else {
            const bool has_room = !is_full || evict();
            ASSERT_EQ(stored.frame != kNoFrame, has_room);
            if (has_room) known.push_back({number, stored.frame, 0});
          }
          break;
        }
        case 1: {
          const bool has_room = !is_full || evict();
          const FrameId frame = ram.take();
          ASSERT_EQ(frame != kNoFrame, has_room);
          if (has_room) privates.push_back(frame);
          break;
        }
        case 2:
          if (privates.empty()) break;
          if (at == known.end() && rng.chance(0.5)) {
            ram.publish(privates.back(), content_of(number));
            known.push_back({number, privates.back(), 0});
          } else {
            ram.give_back(privates.back());
          }
          privates.pop_back();
          break;
        case 3:
          if (at == known.end()) break;
          ram.pin(at->frame);
          ++at->pins;
          break;
        case 4:
          if (at == known.end() || at->pins == 0) break;
          ram.unpin(at->frame);
          if (--at->pins == 0) std::rotate(at, at + 1, known.end());
          break;
        default:
          ASSERT_EQ(find(ram, content_of(number)), at == known.end() ? kNoFrame : at->frame);
      }
      ASSERT_EQ(ram.validate(), std::nullopt);
      ASSERT_EQ(ram.num_keyed(), static_cast<std::int32_t>(known.size()));
      ASSERT_EQ(ram.num_private(), static_cast<std::int32_t>(privates.size()));
    }
  }
}

}  // namespace
}  // namespace quire
