#pragma once
// Scheduler: live requests, and what each step computes.
//
// A step, in this order (that is step composition "mixed"; step_composition.h has the others):
//   1. every running request in decode gets a row of one token;
//   2. running prefills are candidates for the rest of the token budget;
//   3. if nothing had to be preempted, requests of the queue join them, in order, while
//        - the number running stays within min(max_rows, token_budget), so that each can advance in every step, and
//        - the blocks of the request's whole prompt (after a preemption: of all its tokens) are free, beyond the blocks
//        that
//          running prefills have still to take and, unless nothing runs, a watermark.
//      The first that does not fit ends this: nobody overtakes it in this step. A request begins with the longest
//      prefix that the cache has, up to the first position whose logits are wanted: only what is missing is computed
//      and counted. If the first block that it lacks is just being computed by another candidate, it is passed over in
//      this step without holding up those behind it, and looks again in the next: requests that arrive together with
//      the same long prefix compute it once. It waits only as long as the other one advances, and never if it is exempt
//      or aged; at most kMaxPassedOver are passed over in a step, the next one ends the admissions. It is passed over
//      too while what follows its hit is on its way from files. It asks for that once before it starts, and never if it
//      is exempt or aged; so a step may have no row, but only while a transfer is in flight that will end;
//   4. the candidates share the budget (prefill_share.h); those behind an aged one of the queue get only what is left
//      once it has all it needs. One without a share stays where it is.
//
// Out of blocks: a row that finds no block makes the victim policy choose among the running requests that are not
// exempt. The victim gives up all its memory, keeps its tokens, goes back to its place in the queue and is recomputed
// later; the step is then planned again without it. This goes on until the rest fits. Its content may be kept in the
// RAM tier meanwhile (preemption.h).
//
// Why everybody ends. A request preempted kMaxPreemptions times is exempt: it comes first in the queue and is no victim
// any more. It resumes only when the largest memory that it and the other exempt ones running may ever need fits the
// pool, so exempt requests never run short of each other: KvManager::blocks_for bounds what a sequence holds at once
// while it grows, also where windows pass. One request alone always fits: need = prompt + max_tokens is
// compared with the pool when it is submitted. So as long as there is work each step has a row, each row makes
// progress, and every request is computed at most kMaxPreemptions + 1 times: work ends within the sum of
// (kMaxPreemptions + 1) * need steps.
//
// Ageing: nobody starves, whatever the policies and whatever arrives later. Once a request has been live for more than
// options.ageing_steps steps it is aged: it comes behind the exempt ones and before all others, in the queue and among
// the running, and the aged are in the order of their arrival. At most kMaxAgedPerStep age in a step, first arrived
// first. From then on no later arrival starts before it. The requests it may still wait for are those that were live
// when it aged, and each of them is computed at most kMaxPreemptions + 1 times. So, with W requests live,
//     steps from submission to start <= ageing_steps + 1 + W / kMaxAgedPerStep + sum of (kMaxPreemptions + 1) * need
// over those W. Under "fcfs" ageing changes no order; what point 4 says of the aged holds for it too.
//
// What "longest-cached-prefix" knows of a waiting request is as old as the last lookup: when it was submitted, when it
// was preempted, and in turn, before each step is planned: at least one and at most kMaxLookedUp live requests in the
// order of arrival, until kMaxLookedUpBlocks cached blocks have been found. Only the order is as old as that: what an
// admitted request shares is looked up when it is admitted. A lookup takes a few hash lookups for each cached block,
// and hashing the prompt the first time. The other policies look nothing up.
//
// Invariants (validate):
//  S1  every live request is in exactly one of the queue (waiting, preempted) and the running list
//  S2  the queue and the running list are in order: exempt first, then aged, then by the queue policy
//  S3  running <= min(max_rows, token_budget)
//  S4  between steps a running request has reserved exactly its computed positions (found ones included), less than its
//      tokens; nobody else has reserved anything
//  S5  nobody has been preempted more than kMaxPreemptions times; the exempt ones running fit the pool at their largest
//  S6  the aged ones are exactly the live ones that arrived before the first that has not aged
//
// Thread-safety: none; one thread at a time.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/kv/kv_manager.h"
#include "quire/sched/batch_plan.h"
#include "quire/sched/counters.h"
#include "quire/sched/options.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"
#include "quire/sched/request.h"
#include "quire/sched/step_composition.h"

namespace quire {

inline constexpr std::int32_t kMaxPreemptions = 3;
inline constexpr std::int32_t kMaxPassedOver = 32;
inline constexpr std::int32_t kMaxAgedPerStep = 32;
inline constexpr std::int32_t kMaxLookedUp = 16;
inline constexpr std::int64_t kMaxLookedUpBlocks = 64;

/// What became of a request's row.
struct RowOutcome {
  std::optional<TokenId> emitted;        ///< a generated token; a stop token is not emitted
  std::optional<FinishReason> finished;  ///< the request has ended
  TokenId stop_token{-1};                ///< if finished by one
  std::int32_t num_generated = 0;        ///< in all
};

struct Preemption {
  RequestId request;
  std::int32_t num_preemptions;  ///< of this request, this one included
  PreemptionKind kind;
};

/// A request that runs for the first time.
struct Start {
  RequestId request;
  std::int32_t cached_tokens;  ///< of its prompt: found, not computed
};

class Scheduler {
 public:
  /// check_options(options) has passed. `kv` is empty and outlives the scheduler; nobody else changes it.
  Scheduler(const CoreOptions& options, KvManager& kv);
  ~Scheduler();

  /// nullopt: the request is in the queue.
  std::optional<Refusal> submit(CoreRequest request);

  /// Ends a live request and frees its memory. Its generated tokens; nullopt if no live request has this id.
  std::optional<std::int32_t> end(RequestId request, FinishReason reason);

  /// Plans the next step, takes the memory and fills `plan`. The rows must be committed or ended before the next one.
  void plan_step(BatchPlan& plan);

  /// Who was preempted by the last plan_step, in order.
  const std::vector<Preemption>& preempted() const { return preempted_; }

  /// Who was started by the last plan_step, in order.
  const std::vector<Start>& started() const { return started_; }

  /// The row has been computed; `token` is what was sampled, if it samples.
  RowOutcome commit_row(const PlanRow& row, TokenId token);

  std::int32_t num_waiting() const { return static_cast<std::int32_t>(queue_.size()); }
  std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t num_preempted() const { return num_preempted_; }
  std::optional<RequestState> find_state(RequestId request) const;
  std::optional<std::int32_t> num_generated(RequestId request) const;
  const CoreOptions& options() const { return options_; }
  const CoreCounters& counters() const { return counters_; }
  CoreCounters& counters() { return counters_; }

  /// The first violation of S1..S6, or of the KV manager's invariants. Between steps only.
  std::optional<std::string> validate() const;

 private:
  struct Request {
    RequestView view;
    std::uint64_t submitted_at = 0;  ///< steps planned before
    bool is_aged = false;
    RequestState state = RequestState::waiting;
    std::vector<TokenId> tokens;       ///< the prompt, then what was generated
    std::vector<TokenId> stop_tokens;  ///< sorted
    std::int32_t max_tokens = 0;       ///< resolved
    std::int32_t min_tokens = 0;
    std::int32_t logits_begin = 0;   ///< logits of positions before this are not wanted, or were delivered
    std::int32_t computed = 0;       ///< positions [0, computed) are in the KV memory
    std::int32_t ever_computed = 0;  ///< the largest `computed` so far
    SequenceId sequence;             ///< while running
    KeyChain chain;                  ///< of `tokens`, for the prefix cache
    RequestId waited_for;            ///< whose block it was last passed over for,
    std::int32_t waited_at = -1;     ///< and what that one had computed then
    bool has_asked_files = false;    ///< since it was last running

    std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
    std::int32_t num_generated() const { return num_tokens() - view.prompt_tokens; }
    std::int32_t remaining() const { return num_tokens() - computed; }
    std::int64_t largest_need() const { return std::int64_t{view.prompt_tokens} + max_tokens; }
    bool is_exempt() const { return view.num_preemptions >= kMaxPreemptions; }
    bool is_decode() const { return remaining() == 1 && num_generated() > 0; }
    bool is_stop_token(TokenId token) const;
  };
  struct ServedBefore {
    const QueuePolicy* policy;
    bool operator()(const Request* a, const Request* b) const {
      if (a->is_exempt() != b->is_exempt()) return a->is_exempt();
      if (a->is_aged != b->is_aged) return a->is_aged;
      if (a->is_aged) return a->view.arrival < b->view.arrival;
      return policy->serves_before(a->view, b->view);
    }
  };
  struct DraftRow {
    Request* request;
    SequenceId sequence;
    std::int32_t begin;
    std::int32_t num_tokens;
    bool starts;  ///< comes from the queue
  };
  /// A step being planned; nothing outside of it and the manager's scratch view has changed.
  struct Draft {
    std::vector<Request*> victims;
    std::vector<DraftRow> rows;
    std::vector<Request*> prefills;        ///< candidates for the budget: running ones, then from the queue
    std::size_t num_running_prefills = 0;  ///< of these
    std::vector<PrefixHit> hits;           ///< [prefills - num_running_prefills]: of those from the queue
    std::vector<std::int32_t> remaining;   ///< [prefills]
    std::vector<Request*> asking_files;    ///< reads are planned for them

    std::int32_t begin(std::size_t prefill) const {
      return prefill < num_running_prefills ? prefills[prefill]->computed
                                            : hits[prefill - num_running_prefills].num_tokens;
    }
  };

  std::optional<Refusal> find_fault(const CoreRequest& request) const;
  Request* find(RequestId request) const;
  void move_to(Request& request, RequestState state);
  void insert_running(Request* request);

  void age_requests();
  void set_aged(Request& request);
  void look_up_prefixes();
  std::int32_t cached_tokens(Request& request) const;

  void make_draft();
  Request* try_draft();
  Request* draft_decodes();
  void collect_prefills();
  void admit_from_queue();
  Request* draft_prefills();
  std::vector<std::int32_t> share_budget(std::int32_t budget) const;
  bool draft_row(Request* request, std::int32_t num_tokens);
  bool draft_start(Request* request, SequenceId sequence, PrefixHit& hit, std::int32_t num_tokens);
  PrefixHit match(Request& request) const;
  bool is_passed_over(Request& request, const PrefixHit& hit) const;
  bool waits_for_files(Request& request, const PrefixHit& hit);
  bool is_victim(const Request* request) const;
  RunningView running_view(const Request& request) const;
  Request* choose_victim() const;
  std::int64_t promised_blocks() const;
  std::int64_t exempt_blocks_running() const;

  void commit_draft(BatchPlan& plan);
  void commit_victim(Request* request, BatchPlan& plan);
  void commit_admission(const DraftRow& row);
  void append_row(const DraftRow& row, const KvReservation& reservation, BatchPlan& plan);

  std::optional<std::string> validate_running() const;
  std::optional<std::string> validate_queue() const;
  std::optional<std::string> validate_ageing() const;

  const CoreOptions options_;
  const std::unique_ptr<QueuePolicy> queue_policy_;
  const std::unique_ptr<VictimPolicy> victim_policy_;
  const StepComposition composition_;
  const PreemptionMode preemption_mode_;
  const ServedBefore served_before_;
  const std::int32_t max_running_;
  const std::int32_t watermark_blocks_;
  KvManager& kv_;

  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;  ///< live; looked up, never walked
  std::map<std::uint64_t, Request*> by_arrival_;                      ///< live
  std::set<Request*, ServedBefore> queue_;
  std::vector<Request*> running_;
  std::int32_t num_preempted_ = 0;
  std::uint64_t next_arrival_ = 1;
  std::uint64_t next_to_age_ = 1;      ///< arrival; all before it have aged
  std::uint64_t next_to_look_up_ = 1;  ///< arrival
  std::uint64_t step_ = 0;             ///< planned so far
  std::uint64_t next_sequence_ = 1;
  std::vector<SequenceId> dropped_;  ///< released since the last plan
  std::vector<Preemption> preempted_;
  std::vector<Start> started_;
  std::vector<KvReservation> reservations_;
  Draft draft_;
  CoreCounters counters_;
};

}  // namespace quire
