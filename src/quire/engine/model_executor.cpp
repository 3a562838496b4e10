#include "quire/engine/model_executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::engine {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

std::vector<TokenLogprob> best_logprobs(const sampling::RowLogprobs& logprobs, std::int32_t n,
                                        sampling::SamplerScratch& scratch) {
  std::vector<TokenLogprob> best;
  for (const auto& ranked : logprobs.best(n, scratch.candidates)) best.push_back({ranked.token, ranked.logprob});
  return best;
}

}  // namespace

ModelExecutor::ModelExecutor(const ExecutorParts& parts)
    : model_(parts.model),
      memory_(parts.memory),
      tiers_(parts.tiers),
      pool_(parts.pool),
      ops_(ops::vector_ops(parts.tier)),
      grouping_(parts.grouping),
      tables_(parts.geometry) {
  if (memory_.contiguous()) places_.emplace(*memory_.contiguous());
  scratch_.resize(static_cast<std::size_t>(pool_.num_threads()));
}

void ModelExecutor::add(RequestId id, const GenerateRequest& request, std::vector<TokenId> end_tokens) {
  RequestState state{
      .samplers = {},
      .end_tokens = std::move(end_tokens),
      .prompt = request.scoring ? request.prompt : std::vector<TokenId>{},
      .prompt_tokens = static_cast<std::int32_t>(request.prompt.size()),
      .min_tokens = request.min_tokens,
      .top_logprobs = request.top_logprobs,
      .scoring = request.scoring,
  };
  sampling::SamplingParams params = request.sampling;
  for (std::int32_t k = 0; k < request.num_branches && !request.beams; ++k) {
    params.seed = sampling::branch_seed(request.sampling.seed, static_cast<std::uint64_t>(k));
    state.samplers.emplace_back(params, request.prompt);
  }
  requests_.insert_or_assign(id, std::move(state));
}

void ModelExecutor::remove(RequestId id) { requests_.erase(id); }

void ModelExecutor::lay_out(const BatchPlan& plan) {
  chunks_.clear();
  for (std::size_t group = 0; group < tables_.geometry().num_groups(); ++group)
    for (const PlanRow& row : plan.rows)
      chunks_.push_back({tables_.table(row.sequence, group), row.begin, row.num_tokens, row.token_offset, row.place});
  logit_rows_.clear();
  logit_row_infos_.clear();
  row_requests_.clear();
  results_.assign(plan.rows.size(), RowResult{});
  outputs_.resize(plan.rows.size());
  for (RowOutput& output : outputs_) {
    output.tokens.clear();
    output.scores.clear();
  }
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    RequestState& request = requests_.at(row.request);
    row_requests_.push_back(&request);
    for (std::int32_t position = row.first_logits(); position < row.end(); ++position) {
      const bool scored = request.scoring && position >= request.scoring->from &&
                          position < static_cast<std::int32_t>(request.prompt.size());
      const std::int32_t first_drawn = row.end() - 1 - row.num_proposed;
      const bool samples = row.samples && position >= first_drawn;
      if (!scored && !samples) continue;
      auto& scores = outputs_[r].scores;
      if (scored) scores.push_back({.position = position});
      logit_rows_.push_back(row.token_offset + (position - row.begin));
      logit_row_infos_.push_back({r, position, scored ? scores.size() - 1 : kNone,
                                  samples ? static_cast<std::size_t>(position - first_drawn) : kNone});
    }
    if (row.samples && !row.ranked)
      outputs_[r].tokens.resize(static_cast<std::size_t>(row.num_outputs + row.num_proposed));
  }
}

StepResult ModelExecutor::execute(const BatchPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  apply(plan);
  std::vector<bool> is_refused(plan.rows.size(), false);
  for (std::size_t r = 0; places_ && r < plan.rows.size(); ++r) is_refused[r] = !places_->is_ready(plan.rows[r]);
  if (std::find(is_refused.begin(), is_refused.end(), true) == is_refused.end()) {
    compute(plan);
  } else {
    compute_without(plan, is_refused);
  }
  if (!places_) tables_.end_step(plan, results_);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return {results_, static_cast<std::uint64_t>(std::chrono::nanoseconds(elapsed).count())};
}

std::int64_t ModelExecutor::measure_token_ns(std::int32_t max_tokens) {
  constexpr std::int32_t kTokens = 64;
  constexpr RequestId kRequest{~std::uint64_t{0}};
  constexpr SequenceId kSequence{~std::uint64_t{0}};
  const auto block_size = static_cast<std::int32_t>(memory_.paged()->layout().block_size);
  const auto num_groups = static_cast<std::int32_t>(tables_.geometry().num_groups());
  const auto num_blocks = (static_cast<std::int32_t>(memory_.paged()->num_blocks()) - 1) / num_groups;  // of a group
  BatchPlan plan;
  plan.tokens.assign(static_cast<std::size_t>(std::min({kTokens, max_tokens, num_blocks * block_size})), TokenId{0});
  PlanRow row{.sequence = kSequence, .request = kRequest, .num_tokens = plan.num_tokens()};
  row.num_new_blocks = static_cast<std::int32_t>(ceil_div(row.num_tokens, block_size));
  row.logits_begin = row.num_tokens;
  row.is_prefill = true;
  plan.rows.push_back(row);
  for (std::int32_t i = 1; i <= row.num_new_blocks * num_groups; ++i)
    plan.new_blocks.push_back(BlockId{static_cast<std::uint32_t>(i)});
  add(kRequest, GenerateRequest{}, {});
  const StepResult result = execute(plan);
  BatchPlan end;
  end.dropped.push_back(kSequence);
  execute(end);
  remove(kRequest);
  return static_cast<std::int64_t>(result.elapsed_ns) / row.num_tokens;
}

/// Brings tables and memory to what the plan's rows expect.
void ModelExecutor::apply(const BatchPlan& plan) {
  if (places_) return places_->apply(plan);
  tables_.apply(plan);
  if (tiers_) tiers_->start(plan.tiers);
  for (const BlockCopy& copy : plan.copies) memory_.paged()->copy_block(copy.from, copy.to);
}

/// The step without the rows whose memory the kernel has refused.
void ModelExecutor::compute_without(const BatchPlan& plan, const std::vector<bool>& is_refused) {
  BatchPlan rest;
  rest.step = plan.step;
  std::vector<std::size_t> kept;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    if (is_refused[r]) continue;
    PlanRow row = plan.rows[r];
    const auto first = plan.tokens.begin() + row.token_offset;
    row.token_offset = rest.num_tokens();
    rest.tokens.insert(rest.tokens.end(), first, first + row.num_tokens);
    rest.rows.push_back(row);
    kept.push_back(r);
  }
  compute(rest);
  std::vector<RowResult> results(plan.rows.size());
  std::vector<RowOutput> outputs(plan.rows.size());
  for (std::size_t r = 0; r < plan.rows.size(); ++r) results[r].refused = is_refused[r];
  for (std::size_t i = 0; i < kept.size(); ++i) {
    results[kept[i]] = results_[i];
    outputs[kept[i]] = std::move(outputs_[i]);
  }
  results_ = std::move(results);
  outputs_ = std::move(outputs);
}

void ModelExecutor::compute(const BatchPlan& plan) {
  lay_out(plan);
  if (plan.rows.empty()) return;
  const model::ForwardInput input{
      .tokens = plan.tokens,
      .chunks = chunks_,
      .logit_rows = logit_rows_,
      .on_logits = [this, &plan](Worker& worker, const model::LogitsSlice& slice) { consume(worker, plan, slice); },
      .grouping = &grouping_,
  };
  const model::ForwardOutput output = model_.forward(pool_, memory_, input);
  cascade_.shared += output.cascade.shared;
  cascade_.unshared += output.cascade.unshared;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    const auto first = static_cast<std::size_t>(row.token_offset), count = static_cast<std::size_t>(row.num_tokens);
    take_drawn(plan, r, std::span(output.row_failed).subspan(first, count));
  }
}

/// What was drawn, as far as it counts: behind proposals, while they come true and their values are finite.
void ModelExecutor::take_drawn(const BatchPlan& plan, std::size_t r, std::span<const std::uint8_t> token_failed) {
  const PlanRow& row = plan.rows[r];
  RowResult& result = results_[r];
  std::vector<OutputToken>& tokens = outputs_[r].tokens;
  const auto num_given = static_cast<std::size_t>(row.num_tokens - row.num_proposed);
  const auto given = token_failed.first(num_given);
  result.failed = std::find(given.begin(), given.end(), 1) != given.end();
  if (!row.samples || row.ranked || result.failed) return;
  std::vector<sampling::Sampler>& samplers = row_requests_[r]->samplers;
  const auto branch = static_cast<std::size_t>(row.branch);
  result.token = tokens.front().token;
  if (row.num_outputs > 1) {
    for (const OutputToken& token : tokens) result.candidates.push_back({token.token});
    for (std::size_t k = 0; k < tokens.size(); ++k) samplers[branch + k].observe(tokens[k].token);
    return;
  }
  const TokenId* proposed = plan.tokens.data() + static_cast<std::size_t>(row.token_offset) + num_given;
  std::size_t num_accepted = 0;
  while (num_accepted + 1 < tokens.size() && tokens[num_accepted].token == proposed[num_accepted] &&
         token_failed[num_given + num_accepted] == 0)
    result.more.push_back(tokens[++num_accepted].token);
  tokens.resize(num_accepted + 1);
  for (const OutputToken& token : tokens) samplers[branch].observe(token.token);
}

void ModelExecutor::consume(Worker& worker, const BatchPlan& plan, const model::LogitsSlice& slice) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  auto& scratch = scratch_[static_cast<std::size_t>(worker.index())];
  worker.for_each(slice.count, 1, [&](std::int64_t i) {
    const LogitRow& row = logit_row_infos_[static_cast<std::size_t>(slice.first + i)];
    consume_row(plan, row, {slice.logits + static_cast<std::size_t>(i) * vocab, vocab}, scratch);
  });
}

void ModelExecutor::consume_row(const BatchPlan& plan, const LogitRow& row, std::span<const float> logits,
                                sampling::SamplerScratch& scratch) {
  // Rows of one request may be consumed by different threads at once: each writes its own score and its own tokens, and
  // proposals are taken as drawn, so that no row waits for the one before it. The model flags a row whose logits are
  // not finite; nothing is read from it.
  if (!ops_.all_finite(logits.data(), static_cast<std::int64_t>(logits.size()))) return;
  const RequestState& request = *row_requests_[row.plan_row];
  RowOutput& output = outputs_[row.plan_row];
  std::optional<sampling::RowLogprobs> logprobs;
  const PlanRow& planned = plan.rows[row.plan_row];
  if (row.score != kNone || request.top_logprobs || planned.ranked) logprobs.emplace(ops_, logits);
  if (row.score != kNone) {
    ScoreRow& score = output.scores[row.score];
    const auto next = static_cast<std::size_t>(row.position) + 1;
    if (next < request.prompt.size()) score.next_logprob = logprobs->of(request.prompt[next]);
    score.top = best_logprobs(*logprobs, request.scoring->top, scratch);
  }
  if (row.draw == kNone) return;
  const std::int32_t next = row.position + 1;
  const bool may_end = next - request.prompt_tokens >= request.min_tokens;
  const std::span<const TokenId> banned = may_end ? std::span<const TokenId>{} : std::span(request.end_tokens);
  if (planned.ranked) return rank(planned, *logprobs, banned, scratch, results_[row.plan_row]);
  const auto first_proposal =
      static_cast<std::size_t>(planned.token_offset + planned.num_tokens - planned.num_proposed);
  const sampling::DrawAt at{static_cast<std::uint64_t>(next), banned,
                            std::span(plan.tokens).subspan(first_proposal, row.draw)};
  for (std::int32_t k = 0; k < planned.num_outputs; ++k) {
    const sampling::Sampler& sampler = request.samplers[static_cast<std::size_t>(planned.branch + k)];
    OutputToken& token = output.tokens[row.draw + static_cast<std::size_t>(k)];
    token.token = sampler.sample(ops_, logits, at, scratch);
    if (request.top_logprobs) {
      token.logprob = logprobs->of(token.token);
      token.top = best_logprobs(*logprobs, *request.top_logprobs, scratch);
    }
  }
}

/// A row of a beam search: its best tokens.
void ModelExecutor::rank(const PlanRow& row, const sampling::RowLogprobs& logprobs, std::span<const TokenId> banned,
                         sampling::SamplerScratch& scratch, RowResult& result) const {
  const auto wanted = static_cast<std::size_t>(row.num_outputs);
  const auto count = static_cast<std::int32_t>(wanted + banned.size());
  for (const auto& best : logprobs.best(count, scratch.candidates)) {
    if (result.candidates.size() == wanted) break;
    if (std::find(banned.begin(), banned.end(), best.token) != banned.end()) continue;
    result.candidates.push_back({best.token, best.logprob});
  }
}

}  // namespace quire::engine
