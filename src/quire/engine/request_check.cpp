#include "quire/engine/request_check.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/sched/live_request.h"

namespace quire::engine {
namespace {

Refusal invalid(std::string field, std::string message) {
  return {Refusal::Kind::invalid, std::move(message), std::move(field)};
}

std::int32_t num_branches(const GenerateRequest& request) {
  return request.beams ? request.beams->width : request.num_branches;
}

bool changes_logits(const sampling::SamplingParams& s) {
  return s.top_k != 0 || s.top_p != 1 || s.min_p != 0 || s.repetition_penalty != 1 || s.presence_penalty != 0 ||
         s.frequency_penalty != 0 || !s.logit_bias.empty() || (s.temperature != 0 && s.temperature != 1);
}

/// How many of the best tokens are listed.
std::optional<Refusal> find_bad_top(std::string field, std::int32_t top, std::int64_t vocab) {
  if (top >= 0 && top <= vocab) return std::nullopt;
  return invalid(std::move(field), cat("found ", top, " of the best tokens, wanted 0 to ", vocab, ", the vocabulary"));
}

std::optional<Refusal> find_bad_end(const GenerateRequest& request) {
  if (request.max_tokens && *request.max_tokens < 0)
    return invalid("max_tokens", cat("found ", *request.max_tokens, ", wanted 0 or more"));
  if (request.min_tokens < 0) return invalid("min_tokens", cat("found ", request.min_tokens, ", wanted 0 or more"));
  if (std::find(request.stop.begin(), request.stop.end(), "") != request.stop.end())
    return invalid("stop", "found an empty stop string, wanted at least one character");
  return std::nullopt;
}

std::optional<Refusal> find_bad_search(const GenerateRequest& request) {
  if (auto fault = find_fault(*request.beams)) return invalid("beams", std::move(*fault));
  if (request.num_branches != 1)
    return invalid("num_branches", cat("found ", request.num_branches, ", wanted 1 with a beam search"));
  if (changes_logits(request.sampling))
    return invalid("sampling",
                   "a beam search takes the model's own probabilities: no penalties, biases or cuts, and a "
                   "temperature of 0 or 1");
  if (request.top_logprobs) return invalid("top_logprobs", "a beam search gives no logprobs of tokens");
  if (request.max_tokens == 0) return invalid("max_tokens", "found 0, wanted 1 or more with a beam search");
  return std::nullopt;
}

std::optional<Refusal> find_bad_branches(const GenerateRequest& request, const EngineInfo& info, const KvManager& kv) {
  if (request.num_branches < 1 || request.num_branches > kMaxBranches)
    return invalid("num_branches", cat("found ", request.num_branches, ", wanted 1 to ", kMaxBranches));
  if (request.beams) {
    if (auto refusal = find_bad_search(request)) return refusal;
  }
  const std::string field = request.beams ? "beams" : "num_branches";
  if (num_branches(request) > 1 && !kv.can_fork())
    return invalid(field, cat("found ", num_branches(request), ", wanted 1: --kv-manager ", info.kv_manager,
                              " does not share memory between answers"));
  const std::int64_t rows = std::min(info.max_batch_rows, info.max_batch_tokens);
  if (num_branches(request) > rows)
    return invalid(field, cat("found ", num_branches(request), ", but a step has at most ", rows,
                              " rows (--max-batch-rows, --max-batch-tokens)"));
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> find_fault(const GenerateRequest& request, const EngineInfo& info, const KvManager& kv) {
  const std::int64_t vocab = info.vocab_size;
  const auto is_token = [vocab](TokenId token) { return token.value >= 0 && token.value < vocab; };
  if (request.prompt.empty()) return invalid("prompt", "the prompt is empty; wanted at least one token");
  for (TokenId token : request.prompt) {
    if (!is_token(token)) {
      return invalid("prompt", cat("token id ", token, " is outside the vocabulary [0, ", vocab, ")"));
    }
  }
  for (TokenId token : request.stop_tokens) {
    if (!is_token(token)) {
      return invalid("stop_token_ids", cat("token id ", token, " is outside the vocabulary [0, ", vocab, ")"));
    }
  }
  for (const auto& bias : request.sampling.logit_bias) {
    if (!is_token(bias.token)) {
      return invalid("logit_bias", cat("token id ", bias.token, " is outside the vocabulary [0, ", vocab, ")"));
    }
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (auto refusal = find_bad_end(request)) return refusal;
  if (request.top_logprobs)
    if (auto refusal = find_bad_top("top_logprobs", *request.top_logprobs, vocab)) return refusal;
  if (request.scoring && (request.scoring->from < 0 || request.scoring->from >= prompt)) {
    return invalid("from", cat("found ", request.scoring->from, ", wanted a position in [0, ", prompt, ")"));
  }
  if (request.scoring)
    if (auto refusal = find_bad_top("top", request.scoring->top, vocab)) return refusal;
  if (auto refusal = find_bad_branches(request, info, kv)) return refusal;
  const std::int64_t answer = request.max_tokens.value_or(1);
  const std::int64_t pool = info.kv_tokens;
  if (prompt + answer > info.context) {
    return invalid(
        prompt + 1 > info.context ? "prompt" : "max_tokens",
        cat("the context is ", info.context, " tokens; the prompt has ", prompt, " and ",
            request.max_tokens ? cat("max_tokens is ", answer) : "one more must fit", ", together ", prompt + answer));
  }
  const std::int64_t branches = num_branches(request);
  const std::int64_t blocks = blocks_needed(kv, prompt, answer, branches);
  const std::int64_t entries = entries_needed(kv, prompt, answer, branches);
  const bool fits_pool = prompt + answer <= pool && blocks <= info.num_blocks;
  if (fits_pool && entries <= kv.most_entries()) return std::nullopt;
  if (fits_pool)
    return invalid(request.beams ? "beams" : "num_branches",
                   cat("found ", branches, ": with ", prompt + answer, " tokens each they take ", entries,
                       " memory mappings, and there are ", kv.most_entries(),
                       "; start with larger --kv-page-group or more --kv-max-mappings"));
  const std::string more = branches > 1 ? cat(" by each of ", branches, " branches, ", blocks, " blocks in all") : "";
  return invalid(prompt + 1 > pool ? "prompt" : "max_tokens",
                 cat("the KV cache holds ", pool, " tokens; the prompt has ", prompt, " and ",
                     request.max_tokens ? cat("max_tokens is ", answer) : "one more must fit", ", together ",
                     prompt + answer, more, "; start with more --kv-memory"));
}

}  // namespace quire::engine
