#pragma once
// NgramProposer: guesses the next tokens of a sequence from its own earlier ones (prompt lookup). What followed the
// last occurrence of the tokens at its end is proposed to follow again. Text that is copied, edited, quoted or repeated
// from the prompt comes true often; elsewhere a proposal costs a little and changes nothing:
//
// Speculative decoding with proposals. A row in decode computes its one token and k proposed ones behind it in one
// step. The model's logits behind each of them are bit for bit those of plain decoding, as long as the tokens before it
// are, since a row's result does not depend on how many are computed at once. At each position the token is drawn that
// plain decoding draws there: randomness is keyed by position, and penalties count the proposed tokens before it as
// drawn. As long as what is drawn is what was proposed, the next position counts; the first that differs counts too,
// since all before it is right. What was computed behind it does not count and its slots are given back
// (KvManager::truncate). So a step yields 1 to 1 + k tokens, always those of plain decoding.
//
// The longest match wins, of at most `max_match` tokens, at least `min_match`; of equally long ones the latest. It is
// sought among the kMaxTried latest places that end in the same min_match tokens (or share their hash slot), so that a
// lookup is O(kMaxTried) whatever the length; indexing is O(1) a token, amortised, and 12 to 20 bytes of memory.
// Where what followed runs into the end of the sequence, the proposal itself is read on: a sequence in a loop of p
// tokens is proposed to stay in it.
//
// Deterministic. Thread-safety: none.

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

inline constexpr std::int32_t kMaxSpeculativeTokens = 64;  ///< proposed for a row in a step
inline constexpr std::int32_t kMaxNgram = 64;              ///< tokens of a match

/// How long a match is; 1 <= min_match <= max_match <= kMaxNgram.
struct NgramMatch {
  std::int32_t min_match = 2;
  std::int32_t max_match = 4;
  friend bool operator==(const NgramMatch&, const NgramMatch&) = default;
};

class NgramProposer {
 public:
  static constexpr int kMaxTried = 32;

  explicit NgramProposer(NgramMatch match) : match_(match) {}

  /// What may follow `tokens`: `count` tokens, or none. `tokens` are those of the last call and more behind them. Valid
  /// until the next call.
  std::span<const TokenId> propose(std::span<const TokenId> tokens, std::int32_t count);

 private:
  std::size_t slot_of(std::span<const TokenId> tokens, std::size_t end) const;
  void index(std::span<const TokenId> tokens);
  void add(std::span<const TokenId> tokens, std::size_t end);
  std::size_t find(std::span<const TokenId> tokens) const;

  NgramMatch match_;
  // A place is named by the number of tokens before it; 0: none.
  std::vector<std::uint32_t> last_;      ///< [power of two], by hash of the min_match tokens before a place
  std::vector<std::uint32_t> previous_;  ///< [places]: the one before it in the same slot
  std::vector<TokenId> proposal_;
};

}  // namespace quire
