#pragma once
// Strong ids: they compare and hash, and never mix. `.value` is the number.

#include <compare>
#include <cstdint>
#include <functional>

namespace quire {

template <class Tag, class Number>
struct StrongId {
  Number value{};
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

/// A physical KV block; an index into the pool. 0 is the null block, which is never given out.
using BlockId = StrongId<struct BlockTag, std::uint32_t>;
/// One sequence with KV of its own (a branch of a request).
using SequenceId = StrongId<struct SequenceTag, std::uint64_t>;
/// One request of a client; never reused within a process.
using RequestId = StrongId<struct RequestTag, std::uint64_t>;
/// An entry of the vocabulary. Negative values are never valid.
using TokenId = StrongId<struct TokenTag, std::int32_t>;

inline constexpr BlockId kNullBlock{0};

}  // namespace quire

template <class Tag, class Number>
struct std::hash<quire::StrongId<Tag, Number>> {
  std::size_t operator()(const quire::StrongId<Tag, Number>& id) const noexcept {
    return static_cast<std::size_t>(id.value) * 0x9E3779B97F4A7C15ull;
  }
};
