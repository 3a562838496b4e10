#include "quire/sched/beam_search.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/elementary.h"

namespace quire {
namespace {

bool ranks_before(const BeamChild& a, const BeamChild& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.token < b.token;
}

}  // namespace

std::optional<std::string> find_fault(const BeamParams& params) {
  if (params.width < 1 || params.width > kMaxBranches)
    return cat("the beam width is ", params.width, "; 1 to ", kMaxBranches, " are allowed");
  if (params.num_returned < 1 || params.num_returned > params.width)
    return cat("num_returned is ", params.num_returned, "; 1 to the beam width, ", params.width, ", are allowed");
  if (!(params.length_penalty >= -kMaxLengthPenalty && params.length_penalty <= kMaxLengthPenalty))
    return cat("length_penalty is ", params.length_penalty, "; -", kMaxLengthPenalty, " to ", kMaxLengthPenalty,
               " are allowed");
  return std::nullopt;
}

bool BeamSearch::is_stop_token(TokenId token) const {
  return std::binary_search(limits_.stop_tokens.begin(), limits_.stop_tokens.end(), token);
}

double BeamSearch::score(double sum, std::int32_t length) const {
  if (params_.length_penalty == 0 || length == 0) return sum;
  if (params_.length_penalty == 1) return sum / length;
  return sum / pow_f64(length, params_.length_penalty);
}

void BeamSearch::keep(std::span<const TokenId> generated, std::optional<TokenId> last, double score,
                      FinishReason reason, TokenId stop_token) {
  const auto place = std::upper_bound(finished_.begin(), finished_.end(), score,
                                      [](double s, const Hypothesis& hypothesis) { return s > hypothesis.score; });
  if (place == finished_.end() && finished_.size() == static_cast<std::size_t>(params_.width)) return;
  Hypothesis hypothesis{{generated.begin(), generated.end()}, score, reason, stop_token};
  if (last) hypothesis.tokens.push_back(*last);
  finished_.insert(place, std::move(hypothesis));
  if (finished_.size() > static_cast<std::size_t>(params_.width)) finished_.pop_back();
}

void BeamSearch::finish(const LiveBeam& beam, FinishReason reason) {
  keep(beam.generated, std::nullopt, score(beam.sum, static_cast<std::int32_t>(beam.generated.size())), reason,
       TokenId{-1});
}

std::vector<BeamChild> BeamSearch::advance(std::span<const LiveBeam> beams) {
  std::vector<BeamChild> ranked;
  for (std::size_t b = 0; b < beams.size(); ++b)
    for (const Candidate& candidate : beams[b].candidates)
      ranked.push_back({static_cast<std::int32_t>(b), candidate.token, beams[b].sum + double{candidate.logprob}});
  std::sort(ranked.begin(), ranked.end(), ranks_before);

  const auto width = static_cast<std::size_t>(params_.width);
  const std::int32_t length = beams.empty() ? 0 : static_cast<std::int32_t>(beams.front().generated.size()) + 1;
  const bool is_last = length >= limits_.max_tokens;
  std::vector<BeamChild> children;
  for (std::size_t rank = 0; rank < ranked.size() && children.size() < width; ++rank) {
    const BeamChild& child = ranked[rank];
    const std::span<const TokenId> generated = beams[static_cast<std::size_t>(child.parent)].generated;
    if (is_stop_token(child.token) && length > limits_.min_tokens) {
      if (rank < width) keep(generated, std::nullopt, score(child.sum, length), FinishReason::stop_token, child.token);
    } else if (!is_last) {
      children.push_back(child);
    } else if (rank < width) {
      keep(generated, child.token, score(child.sum, length), FinishReason::length, TokenId{-1});
    }
  }
  const auto best = children.empty() ? std::nullopt : std::optional(children.front().sum);
  if (is_over(best, length)) children.clear();
  return children;
}

bool BeamSearch::is_over(std::optional<double> best_sum, std::int32_t length) const {
  if (!best_sum) return true;
  if (finished_.size() < static_cast<std::size_t>(params_.width)) return false;
  if (params_.early_stopping == EarlyStopping::when_full) return true;
  const bool hopes = params_.early_stopping == EarlyStopping::never && params_.length_penalty > 0;
  return !(score(*best_sum, hopes ? limits_.max_tokens : length) > finished_.back().score);
}

}  // namespace quire
