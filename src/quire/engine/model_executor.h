#pragma once
// ModelExecutor: carries out batch plans with a real model. It mirrors the block tables, runs the forward pass, and
// samples inside the step, on the pool's threads. What a step produced beyond the plan's results (logprobs, scores) is
// left in outputs() for the engine. Owned and used by the engine's thread.
// A pass allocates nothing once warm (model/step_allocations_test.cpp). Around it what an answer gets has vectors and
// strings of its own, about four for each token.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/attention/kv_memory.h"
#include "quire/base/thread_pool.h"
#include "quire/core/executor.h"
#include "quire/core/table_mirror.h"
#include "quire/engine/place_mirror.h"
#include "quire/engine/request.h"
#include "quire/engine/tier_store.h"
#include "quire/model/model.h"
#include "quire/ops/vector_ops.h"
#include "quire/sampling/sampler.h"

namespace quire::engine {

/// What one plan row produced.
struct RowOutput {
  /// Drawn ones, as many as the row has outputs, or behind proposals as many as RowResult has; meaningful if the row
  /// has not failed.
  std::vector<OutputToken> tokens;
  std::vector<ScoreRow> scores;  ///< rising positions
};

/// What an executor works with; all referred-to objects outlive it.
struct ExecutorParts {
  model::Model& model;
  attention::KvMemory memory;
  ThreadPool& pool;
  CpuTier tier;
  const model::LayerGrouping& grouping;
  GroupGeometry geometry;  ///< of the same groups
  TierStore* tiers;        ///< may be null; needs paged memory
};

class ModelExecutor final : public Executor {
 public:
  explicit ModelExecutor(const ExecutorParts& parts);

  /// Before the request's first row. `end_tokens` are those that end it; none is sampled before min_tokens.
  void add(RequestId id, const GenerateRequest& request, std::vector<TokenId> end_tokens);
  void remove(RequestId id);

  StepResult execute(const BatchPlan& plan) override;

  /// Time to compute a token of a prefill, by a short one in the pool's first blocks. Before the first plan.
  std::int64_t measure_token_ns(std::int32_t max_tokens);

  /// One for each row of the last plan.
  std::span<RowOutput> outputs() { return outputs_; }

  /// Of all plans so far.
  const model::CascadeCount& cascade() const { return cascade_; }

 private:
  struct RequestState {
    std::vector<sampling::Sampler> samplers;  ///< of each branch; none for a beam search
    std::vector<TokenId> end_tokens;
    std::vector<TokenId> prompt;  ///< for scoring; empty otherwise
    std::int32_t prompt_tokens = 0;
    std::int32_t min_tokens = 0;
    std::optional<std::int32_t> top_logprobs;
    std::optional<PromptScoring> scoring;
  };
  /// One row of logits of the step.
  struct LogitRow {
    std::size_t plan_row;
    std::int32_t position;
    std::size_t score;  ///< index into RowOutput::scores, or kNone
    std::size_t draw;   ///< if it samples: proposals before it; else kNone
  };

  void apply(const BatchPlan& plan);
  void compute(const BatchPlan& plan);
  void compute_without(const BatchPlan& plan, const std::vector<bool>& is_refused);
  void lay_out(const BatchPlan& plan);
  void consume(Worker& worker, const BatchPlan& plan, const model::LogitsSlice& slice);
  void take_drawn(const BatchPlan& plan, std::size_t r, std::span<const std::uint8_t> token_failed);
  void consume_row(const BatchPlan& plan, const LogitRow& row, std::span<const float> logits,
                   sampling::SamplerScratch& scratch);

  void rank(const PlanRow& row, const sampling::RowLogprobs& logprobs, std::span<const TokenId> banned,
            sampling::SamplerScratch& scratch, RowResult& result) const;

  model::Model& model_;
  attention::KvMemory memory_;
  TierStore* tiers_;
  ThreadPool& pool_;
  const ops::VectorOps& ops_;
  const model::LayerGrouping& grouping_;
  TableMirror tables_;                 ///< of paged memory
  std::optional<PlaceMirror> places_;  ///< of contiguous memory
  std::unordered_map<RequestId, RequestState> requests_;
  std::vector<sampling::SamplerScratch> scratch_;  ///< one for each worker
  model::CascadeCount cascade_;

  // The step's arrays; kept for their memory.
  std::vector<attention::SequenceChunk> chunks_;  ///< [num_groups, num_rows]
  std::vector<std::int64_t> logit_rows_;
  std::vector<LogitRow> logit_row_infos_;
  std::vector<RequestState*> row_requests_;
  std::vector<RowResult> results_;
  std::vector<RowOutput> outputs_;
};

}  // namespace quire::engine
