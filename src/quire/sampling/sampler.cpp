#include "quire/sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "quire/base/elementary.h"
#include "quire/base/rng.h"

namespace quire::sampling {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

Sampler::Sampler(SamplingParams params, std::span<const TokenId> prompt) : params_(std::move(params)) {
  has_penalties_ =
      params_.repetition_penalty != 1.0 || params_.presence_penalty != 0.0 || params_.frequency_penalty != 0.0;
  if (!has_penalties_) return;
  for (TokenId token : prompt) seen_[token].in_prompt = true;
}

void Sampler::observe(TokenId token) {
  if (has_penalties_) ++seen_[token].output_count;
}

bool Sampler::changes_logits() const { return has_penalties_ || !params_.logit_bias.empty(); }

float Sampler::penalised(float logit, std::int32_t output_count) const {
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  logit = logit > 0 ? logit / repetition : logit * repetition;
  if (output_count == 0) return logit;
  logit = logit - static_cast<float>(params_.frequency_penalty) * static_cast<float>(output_count);
  return logit - static_cast<float>(params_.presence_penalty);
}

void Sampler::apply_penalties(std::span<float> logits, std::span<const TokenId> assumed) const {
  const auto count_in = [](std::span<const TokenId> tokens, TokenId token) {
    return static_cast<std::int32_t>(std::count(tokens.begin(), tokens.end(), token));
  };
  for (const auto& [token, seen] : seen_) {
    float& logit = logits[static_cast<std::size_t>(token.value)];
    logit = penalised(logit, seen.output_count + count_in(assumed, token));
  }
  for (std::size_t i = 0; i < assumed.size(); ++i) {
    if (seen_.contains(assumed[i]) || count_in(assumed.first(i), assumed[i]) > 0) continue;
    float& logit = logits[static_cast<std::size_t>(assumed[i].value)];
    logit = penalised(logit, count_in(assumed, assumed[i]));
  }
}

TokenId Sampler::sample(const ops::VectorOps& ops, std::span<const float> logits, const DrawAt& at,
                        SamplerScratch& scratch) const {
  const bool greedy = params_.temperature == 0.0 || params_.top_k == 1;
  const auto n = static_cast<std::int64_t>(logits.size());
  if (greedy && !changes_logits() && at.banned.empty()) {
    return TokenId{static_cast<std::int32_t>(ops.argmax(logits.data(), n))};
  }
  scratch.logits.assign(logits.begin(), logits.end());
  for (const LogitBias& bias : params_.logit_bias)
    scratch.logits[static_cast<std::size_t>(bias.token.value)] += bias.bias;
  for (TokenId token : at.banned) scratch.logits[static_cast<std::size_t>(token.value)] = kNever;
  if (has_penalties_) apply_penalties(scratch.logits, at.assumed);
  if (greedy) return TokenId{static_cast<std::int32_t>(ops.argmax(scratch.logits.data(), n))};
  // Division, not a product with 1 / temperature: a tiny temperature has no finite inverse. What overflows is capped,
  // so that differences stay defined; ties are then broken by id.
  const auto temperature = static_cast<float>(params_.temperature);
  for (float& logit : scratch.logits) {
    if (logit == kNever) continue;
    const float scaled = temperature > 0 ? logit / temperature : logit * std::numeric_limits<float>::max();
    constexpr float kCap = 1e30f;
    logit = scaled > kCap ? kCap : scaled < -kCap ? -kCap : scaled;
  }
  return draw(ops, scratch.logits, at.position, scratch.candidates);
}

TokenId Sampler::draw(const ops::VectorOps& ops, std::span<const float> scaled, std::uint64_t position,
                      std::vector<Candidate>& buffer) const {
  const auto n = static_cast<std::int64_t>(scaled.size());
  const float max = scaled[static_cast<std::size_t>(ops.argmax(scaled.data(), n))];
  const auto mass = [max](float logit) { return exp_f64(static_cast<double>(logit) - static_cast<double>(max)); };
  const bool keep_all = params_.top_k <= 0 || params_.top_k >= n;
  const bool narrowed = !keep_all || params_.min_p > 0.0;

  // The total mass after min-p and top-k: of everything in closed form, else by walking what is kept.
  double total = 0;
  std::int64_t kept = n;
  if (narrowed) {
    BestFirst all(scaled, max, buffer);
    kept = 0;
    for (const Candidate* best; (keep_all || kept < params_.top_k) && (best = all.next()) != nullptr; ++kept) {
      const double m = mass(best->logit);
      if (m < params_.min_p) break;
      total += m;
    }
  } else {
    total = exp_f64(ops.log_sum_exp(scaled.data(), n) - static_cast<double>(max));
  }

  // Top-p keeps the smallest prefix that reaches its share; drawing over the prefix needs the prefix's own mass first.
  if (params_.top_p < 1.0) {
    BestFirst walk(scaled, max, buffer);
    const double wanted = params_.top_p * total;
    double sum = 0;
    std::int64_t count = 0;
    for (const Candidate* best; count < kept && sum < wanted && (best = walk.next()) != nullptr; ++count) {
      sum += mass(best->logit);
    }
    total = sum;
    kept = count;
  }

  const double target = unit_interval(random_at(params_.seed, position)) * total;
  BestFirst walk(scaled, max, buffer);
  double sum = 0;
  std::int32_t chosen = 0;
  std::int64_t count = 0;
  for (const Candidate* best; count < kept && (best = walk.next()) != nullptr; ++count) {
    chosen = best->id;
    sum += mass(best->logit);
    if (sum > target) break;
  }
  return TokenId{chosen};
}

RowLogprobs::RowLogprobs(const ops::VectorOps& ops, std::span<const float> logits) : logits_(logits) {
  const auto n = static_cast<std::int64_t>(logits.size());
  max_ = logits[static_cast<std::size_t>(ops.argmax(logits.data(), n))];
  log_sum_exp_ = ops.log_sum_exp(logits.data(), n);
}

float RowLogprobs::of(TokenId token) const {
  return static_cast<float>(static_cast<double>(logits_[static_cast<std::size_t>(token.value)]) - log_sum_exp_);
}

std::vector<RankedLogprob> RowLogprobs::best(std::int32_t n, std::vector<Candidate>& buffer) const {
  std::vector<RankedLogprob> ranked;
  BestFirst walk(logits_, max_, buffer);
  while (static_cast<std::int32_t>(ranked.size()) < n) {
    const Candidate* best = walk.next();
    if (best == nullptr) break;
    ranked.push_back({TokenId{best->id}, of(TokenId{best->id})});
  }
  return ranked;
}

}  // namespace quire::sampling
