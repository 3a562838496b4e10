#pragma once
// RamTier: which content lies in which frame of the RAM tier, and which frame may be taken for another. Bookkeeping
// only: whoever moves the bytes is told by TierChanges.
//
// A frame is one of
//     free     nothing in it
//     keyed    content with a key, to be found; as long as nobody pins it, it may be evicted: least recently used first
//     private  somebody's alone: the unfilled tail of a preempted sequence, or the target of a transfer in flight
//
// Truth as in PrefixIndex: content is accepted by its tokens and the number of the content before it, never by its
// hash. A content keeps its number when it moves between pool and frames. The layer group is part of its key
// (kv/block_key.h).
//
// All operations are O(1), but for the comparison of one block's tokens.
//
// Invariants (validate):
//  T1  every frame of 1..num_frames() is exactly one of free, keyed, private; the counts add up
//  T2  the map names a frame under a key if and only if the frame is keyed with it
//  T3  the eviction list is acyclic, linked both ways, and holds exactly the keyed frames without pins
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/kv/prefix_index.h"
#include "quire/kv/tier_changes.h"

namespace quire {

class RamTier {
 public:
  /// num_frames >= 1, all of them free.
  explicit RamTier(std::int32_t num_frames);

  std::int32_t num_frames() const { return static_cast<std::int32_t>(frames_.size()) - 1; }
  std::int32_t num_keyed() const { return static_cast<std::int32_t>(frame_of_.size()); }
  std::int32_t num_private() const { return num_frames() - num_keyed() - static_cast<std::int32_t>(free_.size()); }
  /// Frames that can be had at once: free ones and those that may be evicted.
  std::int32_t num_available() const { return static_cast<std::int32_t>(free_.size()) + num_evictable_; }
  std::uint64_t num_evicted() const { return num_evicted_; }

  /// The frame with this content of a layer group; kNoFrame if there is none, also if another content has the key.
  FrameId find(const BlockContent& content, std::size_t group) const;
  /// The frame that has the content with this key and number; kNoFrame: none.
  FrameId find_number(const BlockKey& key, std::uint64_t number) const;
  const NumberedContent& content(FrameId frame) const { return frames_[frame.value].content; }

  /// A private frame; kNoFrame if none can be had.
  FrameId take();
  /// The private frame becomes free.
  void give_back(FrameId frame);

  struct Stored {
    FrameId frame;  ///< kNoFrame: there is no room
    bool is_new;    ///< false: it was there already; its bytes need not be stored
  };
  /// A frame with this content. A content that has its key and is neither it nor pinned gives way.
  Stored store(const NumberedContent& content);
  /// The private frame gets this content, unless it is there already (or a pinned one has its key): then the frame
  /// becomes free.
  void publish(FrameId frame, NumberedContent content);

  /// It was used: others are evicted before it.
  void touch(FrameId frame);
  /// A pinned keyed frame is not evicted. Pins are counted.
  void pin(FrameId frame);
  void unpin(FrameId frame);
  std::int32_t num_pins(FrameId frame) const { return frames_[frame.value].pins; }
  bool is_private(FrameId frame) const { return frames_[frame.value].state == State::is_private; }

  /// The first violation of T1..T3, or nullopt.
  std::optional<std::string> validate() const;

 private:
  enum class State : std::uint8_t { free, keyed, is_private };
  struct Frame {
    State state = State::free;
    std::int32_t pins = 0;
    FrameId previous, next;  ///< in the eviction list
    NumberedContent content;
  };

  void set_content(FrameId frame, NumberedContent content);
  void forget(FrameId frame);
  void append(FrameId frame);
  void remove(FrameId frame);
  std::optional<std::string> validate_list() const;

  std::vector<Frame> frames_;  ///< [num_frames + 1]
  std::vector<FrameId> free_;  ///< the last one is taken first
  FrameId oldest_, latest_;    ///< of the eviction list
  std::int32_t num_evictable_ = 0;
  std::uint64_t num_evicted_ = 0;
  std::unordered_map<BlockKey, FrameId, BlockKeyHash> frame_of_;  ///< looked up, never walked
};

}  // namespace quire
