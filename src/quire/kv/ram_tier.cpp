#include "quire/kv/ram_tier.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

RamTier::RamTier(std::int32_t num_frames) : frames_(static_cast<std::size_t>(num_frames) + 1) {
  QUIRE_CHECK(num_frames >= 1, num_frames);
  for (auto id = static_cast<std::uint32_t>(num_frames); id >= 1; --id) free_.push_back(FrameId{id});
}

FrameId RamTier::find(const BlockContent& asked, std::size_t group) const {
  const auto found = frame_of_.find(in_group(asked.key, group));
  return found != frame_of_.end() && is_same(content(found->second), asked) ? found->second : kNoFrame;
}

FrameId RamTier::find_number(const BlockKey& key, std::uint64_t number) const {
  const auto found = frame_of_.find(key);
  return found != frame_of_.end() && content(found->second).number == number ? found->second : kNoFrame;
}

// -- the eviction list --

void RamTier::append(FrameId id) {
  Frame& frame = frames_[id.value];
  frame.next = kNoFrame;
  frame.previous = latest_;
  (latest_ == kNoFrame ? oldest_ : frames_[latest_.value].next) = id;
  latest_ = id;
  ++num_evictable_;
}

void RamTier::remove(FrameId id) {
  const Frame& frame = frames_[id.value];
  (frame.previous == kNoFrame ? oldest_ : frames_[frame.previous.value].next) = frame.next;
  (frame.next == kNoFrame ? latest_ : frames_[frame.next.value].previous) = frame.previous;
  --num_evictable_;
}

void RamTier::touch(FrameId id) {
  if (num_pins(id) > 0) return;
  remove(id);
  append(id);
}

void RamTier::pin(FrameId id) {
  QUIRE_CHECK(frames_[id.value].state == State::keyed, "frame ", id, " is not keyed");
  if (frames_[id.value].pins++ == 0) remove(id);
}

void RamTier::unpin(FrameId id) {
  QUIRE_CHECK(frames_[id.value].pins > 0, "frame ", id, " has no pin");
  if (--frames_[id.value].pins == 0) append(id);
}

// -- frames --

FrameId RamTier::take() {
  if (free_.empty() && oldest_ != kNoFrame) {
    forget(oldest_);
    ++num_evicted_;
  }
  if (free_.empty()) return kNoFrame;
  const FrameId id = free_.back();
  free_.pop_back();
  frames_[id.value].state = State::is_private;
  return id;
}

void RamTier::give_back(FrameId id) {
  QUIRE_CHECK(frames_[id.value].state == State::is_private, "frame ", id, " is not private");
  frames_[id.value].state = State::free;
  free_.push_back(id);
}

/// A keyed frame without pins becomes free.
void RamTier::forget(FrameId id) {
  Frame& frame = frames_[id.value];
  remove(id);
  frame_of_.erase(frame.content.key);
  frame.content = {};
  frame.state = State::free;
  free_.push_back(id);
}

void RamTier::set_content(FrameId id, NumberedContent content) {
  Frame& frame = frames_[id.value];
  frame.state = State::keyed;
  frame_of_.emplace(content.key, id);
  frame.content = std::move(content);
  append(id);
}

RamTier::Stored RamTier::store(const NumberedContent& content) {
  const auto found = frame_of_.find(content.key);
  if (found != frame_of_.end()) {
    const FrameId holder = found->second;
    if (frames_[holder.value].content.number == content.number) return touch(holder), Stored{holder, false};
    if (num_pins(holder) > 0) return {kNoFrame, false};
    forget(holder);
  }
  const FrameId id = take();
  if (id != kNoFrame) set_content(id, content);
  return {id, true};
}

void RamTier::publish(FrameId id, NumberedContent content) {
  QUIRE_CHECK(frames_[id.value].state == State::is_private, "frame ", id, " is not private");
  const auto found = frame_of_.find(content.key);
  if (found != frame_of_.end()) {
    const FrameId holder = found->second;
    const NumberedContent& held = frames_[holder.value].content;
    const bool is_known =
        held.parent_number == content.parent_number && held.salt == content.salt && held.tokens == content.tokens;
    if (is_known || num_pins(holder) > 0) return give_back(id);
    forget(holder);
  }
  set_content(id, std::move(content));
}

// -- invariants --

std::optional<std::string> RamTier::validate_list() const {
  std::int32_t num_listed = 0;
  FrameId previous = kNoFrame;
  for (FrameId id = oldest_; id != kNoFrame; previous = id, id = frames_[id.value].next) {
    const Frame& frame = frames_.at(id.value);
    if (frame.previous != previous) return cat("T3: frame ", id, " has a wrong link back");
    if (frame.state != State::keyed || frame.pins > 0) return cat("T3: frame ", id, " may not be evicted");
    if (++num_listed > num_frames()) return "T3: the eviction list has a cycle";
  }
  std::int32_t num_evictable = 0;
  for (const Frame& frame : frames_) num_evictable += frame.state == State::keyed && frame.pins == 0 ? 1 : 0;
  if (previous != latest_ || num_listed != num_evictable_ || num_listed != num_evictable)
    return cat("T3: ", num_listed, " frames are listed for eviction, ", num_evictable, " may be evicted");
  return std::nullopt;
}

std::optional<std::string> RamTier::validate() const {
  std::size_t num_keyed = 0;
  std::size_t num_free = 0;
  for (std::uint32_t id = 1; id < frames_.size(); ++id) {
    const Frame& frame = frames_[id];
    num_free += frame.state == State::free ? 1 : 0;
    if (frame.pins < 0 || (frame.pins > 0 && frame.state != State::keyed)) return cat("T1: frame ", id, " has pins");
    if (frame.state != State::keyed) continue;
    ++num_keyed;
    const auto found = frame_of_.find(frame.content.key);
    if (found == frame_of_.end() || found->second != FrameId{id}) return cat("T2: frame ", id, " is not found");
  }
  if (num_keyed != frame_of_.size()) return cat("T2: ", num_keyed, " keyed frames, ", frame_of_.size(), " keys");
  if (num_free != free_.size()) return cat("T1: ", num_free, " free frames, ", free_.size(), " listed");
  for (FrameId id : free_)
    if (frames_[id.value].state != State::free) return cat("T1: frame ", id, " is listed as free");
  return validate_list();
}

}  // namespace quire
