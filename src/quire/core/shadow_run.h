#pragma once
// ShadowRun: for tests and ./dev simulate. Drives an EngineCore with a ShadowExecutor, checks every step and every
// event, and compares what each request got with the oracle: the same request alone, without paging, chunks, batches or
// preemption; each branch as a request of its own; a beam search as a plain one that keeps whole lists of tokens.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/rng.h"
#include "quire/core/command_log.h"
#include "quire/core/engine_core.h"
#include "quire/core/shadow_executor.h"

namespace quire {

struct OracleAnswer {
  std::vector<TokenId> tokens;
  FinishReason reason;
  TokenId stop_token{-1};
  double score = 0;  ///< of a beam
};

/// What a branch of the request must get if nobody ends it from outside.
OracleAnswer oracle_answer(const CoreRequest& request, const CoreOptions& options, std::int32_t vocabulary,
                           std::int32_t branch = 0);

/// What its beam search must return.
std::vector<OracleAnswer> oracle_beams(const CoreRequest& request, const CoreOptions& options, std::int32_t vocabulary);

/// How the files behave, if there are any.
struct DiskBehaviour {
  std::uint64_t seed = 0;
  double ends = 1;    ///< chance that a transfer ends before the next step; which one is any
  double faults = 0;  ///< chance that one goes wrong
};

class ShadowRun {
 public:
  explicit ShadowRun(const CoreOptions& options, std::int32_t vocabulary = 1000, const BlockHasher* hasher = nullptr);

  std::optional<Refusal> submit(const CoreRequest& request);
  bool cancel(RequestId request);
  bool finish(RequestId request, std::int32_t branch = 0);
  /// The next row of the request but `skip` more fails.
  void fail_next_row(RequestId request, std::int32_t skip = 0) { failing_[request] = skip; }

  /// The system has no memory for a row of the request in its next `count` steps.
  void refuse_rows(RequestId request, std::int32_t count) { refusing_[request] = count; }

  void set_disk(const DiskBehaviour& behaviour) { disk_ = behaviour, disk_rng_ = Rng(behaviour.seed); }
  /// Before the first step: files that an earlier run has left.
  void put_files(ShadowFiles files);
  ShadowTiers& tiers() { return executor_.tiers(); }

  /// One step, fully checked. The plan, valid until the next step.
  const BatchPlan& step();
  /// Steps until nothing is left, at most so many as the liveness bound allows.
  void run_to_end();
  /// After the end: the pool is empty, all answers are right, counters agree with events, the log replays.
  void check_end();

  struct BranchAnswer {
    std::vector<TokenId> tokens;
    std::optional<BranchFinished> finished;
    std::int32_t next_logits = 0;  ///< next position whose logits are due
    double score = 0;              ///< of a beam that was returned
  };
  struct Answer {
    CoreRequest request;
    std::map<std::int32_t, BranchAnswer> branches;
    std::vector<TokenId> tokens;              ///< of branch 0
    std::vector<std::vector<TokenId>> beams;  ///< the live ones, as the events tell
    bool is_disturbed = false;                ///< a branch was ended from outside, or failed
    std::optional<RequestFinished> finished;
    std::int32_t num_preemptions = 0;
    std::int32_t num_refusals = 0;              ///< steps with a refused row
    std::optional<std::int32_t> cached_tokens;  ///< as reported when it started
    std::int32_t computed_tokens = 0;           ///< of the prompt, before any preemption
    std::uint64_t first_token_step = 0;
    std::uint64_t submitted_at_step = 0;
    std::optional<std::uint64_t> started_at_step;
    std::optional<std::uint64_t> start_due_at;  ///< the last step at which it may start, once it has aged waiting
  };
  const Answer& answer(RequestId request) const { return answers_.at(request); }
  const std::map<RequestId, Answer>& answers() const { return answers_; }
  EngineCore& core() { return *core_; }
  const std::vector<std::uint64_t>& digests() const { return digests_; }
  std::vector<RequestId> live() const;

  /// The first thing that was wrong, or nullopt.
  const std::optional<std::string>& problem() const { return problem_; }

 private:
  void note(std::string text);
  std::uint64_t steps_needed(const CoreRequest& request) const;
  void end_transfers();
  void check_plan(const BatchPlan& plan, const std::vector<bool>& is_refused);
  void note_aged();
  void check_waits();
  void handle(const Event& event);
  void handle(const TokenSampled& sampled);
  void handle(const BeamsAdvanced& advanced);
  void handle(const BeamReturned& returned);
  void handle(const BranchFinished& finished);
  void handle(const RequestFinished& finished);
  void handle(const RequestPreempted& preempted);
  void handle(const RequestStarted& started);
  std::vector<bool> refused_rows(const BatchPlan& plan);
  void check_logits(Answer& answer, const PlanRow& row);
  void check_answer(const Answer& answer);
  void check_branch(const Answer& answer, std::int32_t index);
  void check_beams(const Answer& answer);
  void note_beams_due(Answer& answer) const;
  double score_of(const CoreRequest& request, const OracleAnswer& beam) const;
  void check_tiers();
  void check_counters();
  void check_replay();

  CoreOptions options_;
  std::int32_t vocabulary_;
  CacheIdentity identity_;
  MemoryLog log_;
  std::unique_ptr<EngineCore> core_;
  ShadowExecutor executor_;
  std::map<RequestId, Answer> answers_;
  std::vector<RequestId> arrivals_;             ///< accepted, in order
  std::map<RequestId, std::int32_t> failing_;   ///< rows to come before the one that fails
  std::map<RequestId, std::int32_t> refusing_;  ///< steps to come with a refused row
  DiskBehaviour disk_;
  Rng disk_rng_{0};
  bool stands_still_ = false;     ///< the last plan had no row, for want of files
  std::uint64_t steps_left_ = 0;  ///< by the liveness bound
  std::uint64_t num_steps_ = 0;
  std::vector<std::uint64_t> digests_;
  std::vector<Event> events_;
  std::optional<std::string> problem_;
};

/// Token ids for a prompt: different for every request and position.
std::vector<TokenId> make_prompt(RequestId request, std::int32_t num_tokens, std::int32_t vocabulary = 1000);

}  // namespace quire
