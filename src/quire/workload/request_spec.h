#pragma once
// RequestSpec: one request of a workload: when it comes, how long its prompt and its answer are, and what of the prompt
// other requests share. Lengths only, no text.
//
// RequestSource: requests one after another, in the order of arrival, so that a million of them never lie in memory at
// once.

#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

/// What would come later comes now, 292 years after the start: so late that no simulation goes on until then.
inline constexpr std::uint64_t kLateNs = std::uint64_t{1} << 63;

struct RequestSpec {
  std::uint64_t arrival_ns = 0;    ///< since the start; never less than that of the request before
  std::int32_t prompt_tokens = 1;  ///< >= 1
  std::int32_t output_tokens = 1;  ///< >= 1
  /// Conversation; 0: none. Names of blocks count within it. Without names its content is a function of the position
  /// alone: a later turn's prompt extends what an earlier one had, answers included.
  std::uint64_t session = 0;
  std::int32_t prefix_block_tokens = 0;  ///< tokens a named block; 0: none is named
  /// Names of the prompt's first blocks in order; equal names have equal content up to the end of that block. The last
  /// one may be partly filled. At most ceil(prompt_tokens / prefix_block_tokens).
  std::vector<std::uint64_t> prefix_blocks;
  friend bool operator==(const RequestSpec&, const RequestSpec&) = default;
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// The next request; nullopt once there are no more.
  virtual std::optional<RequestSpec> next() = 0;
  /// How many there are in all, if that is known; for progress only.
  virtual std::optional<std::uint64_t> num_requests() const { return std::nullopt; }
};

/// Requests of a list, as they are. The list is the caller's and outlives the source.
class ListSource final : public RequestSource {
 public:
  explicit ListSource(const std::vector<RequestSpec>& requests) : requests_(requests) {}
  std::optional<RequestSpec> next() override {
    if (next_ == requests_.size()) return std::nullopt;
    return requests_[next_++];
  }
  std::optional<std::uint64_t> num_requests() const override { return requests_.size(); }

 private:
  const std::vector<RequestSpec>& requests_;
  std::size_t next_ = 0;
};

/// The longest prompt or answer that a workload may have, tokens: 2^24. A bound against nonsense in files and flags.
inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 24;

}  // namespace quire
