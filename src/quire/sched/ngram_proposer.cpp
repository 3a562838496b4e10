#include "quire/sched/ngram_proposer.h"

#include <algorithm>

namespace quire {

/// Of the tokens before the place `end`; last_ is not empty.
std::size_t NgramProposer::slot_of(std::span<const TokenId> tokens, std::size_t end) const {
  std::uint64_t hash = 0;
  for (TokenId token :
       tokens.subspan(end - static_cast<std::size_t>(match_.min_match), static_cast<std::size_t>(match_.min_match)))
    hash = (hash ^ static_cast<std::uint32_t>(token.value)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
  return static_cast<std::size_t>(hash >> 32) & (last_.size() - 1);
}

void NgramProposer::add(std::span<const TokenId> tokens, std::size_t end) {
  std::uint32_t& last = last_[slot_of(tokens, end)];
  previous_[end] = last;
  last = static_cast<std::uint32_t>(end);
}

/// All places but the one at the end, which nothing follows.
void NgramProposer::index(std::span<const TokenId> tokens) {
  std::size_t begin = std::max<std::size_t>(previous_.size(), static_cast<std::size_t>(match_.min_match));
  if (tokens.size() > last_.size()) {
    std::size_t size = 64;
    while (size < 2 * tokens.size()) size *= 2;
    last_.assign(size, 0);
    begin = static_cast<std::size_t>(match_.min_match);
  }
  previous_.resize(std::max(previous_.size(), tokens.size()), 0);
  for (std::size_t end = begin; end < tokens.size(); ++end) add(tokens, end);
}

/// The place whose tokens before it match those at the end best; 0: none.
std::size_t NgramProposer::find(std::span<const TokenId> tokens) const {
  const auto least = static_cast<std::size_t>(match_.min_match), most = static_cast<std::size_t>(match_.max_match);
  std::size_t best = 0, longest = least - 1;
  std::size_t place = last_[slot_of(tokens, tokens.size())];
  for (int tried = 0; place != 0 && tried < kMaxTried && longest < most; ++tried, place = previous_[place]) {
    std::size_t length = 0;
    while (length < std::min(most, place) && tokens[place - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
    if (length <= longest) continue;
    best = place;
    longest = length;
  }
  return best;
}

std::span<const TokenId> NgramProposer::propose(std::span<const TokenId> tokens, std::int32_t count) {
  proposal_.clear();
  if (count < 1 || tokens.size() <= static_cast<std::size_t>(match_.min_match)) return proposal_;
  index(tokens);
  const std::size_t place = find(tokens);
  if (place == 0) return proposal_;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t from = place + i;
    proposal_.push_back(from < tokens.size() ? tokens[from] : proposal_[from - tokens.size()]);
  }
  return proposal_;
}

}  // namespace quire
