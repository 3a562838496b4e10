#pragma once
// Scheduler: live requests, and what each step computes.
//
// A request is one branch, or several that share its prompt: a gang (live_request.h). A gang is one request in the
// queue and in every policy, and is preempted whole.
//
// A step, in this order (that is step composition "mixed"; step_composition.h has the others):
//   1. every branch in decode gets a row of one token;
//   2. running prefills are candidates for the rest of the token budget: prompts, and what branches compute again after
//      a preemption;
//   3. if nothing had to be preempted, requests of the queue join them, in order, while
//        - the rows that those running may need stay within min(max_rows, token_budget), so that each can advance in
//          every step, and
//        - the blocks of the request's whole prompt (after a preemption: of all its tokens) are free, beyond the blocks
//          that running prefills have still to take and, unless nothing runs, a watermark.
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
//   5. rows in decode get proposals behind their token (ngram_proposer.h), if the options say so, but for beams: up to
//      num_speculative_tokens each, while the step has no more than kMaxTokensWithProposals tokens in all and their
//      blocks are free. So they take nothing from anybody: not the budget, which prefills have had their share of, nor
//      memory, for which nobody is preempted. None goes beyond max_tokens, or is a stop token.
//
// Out of blocks: a row that finds no block makes the victim policy choose among the running requests that are not
// exempt. The victim gives up all its memory, keeps its tokens, goes back to its place in the queue and is recomputed
// later; the step is then planned again without it. This goes on until the rest fits. Its content may be kept in the
// RAM tier meanwhile (preemption.h).
//
// Why everybody ends. A request of P prompt tokens whose n branches (or beams) generate G tokens each computes at most
// P + n G tokens, and its tables name at most
//     largest need = shared + n (blocks_for(P + G) - shared)      blocks
// at a time, where shared are the prompt's whole blocks: its branches share these, since they come from one table, and
// none is longer than P + G; KvManager::blocks_for bounds what a sequence holds at once while it grows, also where
// windows pass. With windows nothing counts as shared, since branches resume each for itself. A branch that resumes
// from the prefix cache apart from its siblings may name the shared ones again; it does so only if the pool has room
// for that beside the largest need, and never if the request is exempt. The largest need is compared with the pool when
// the request is submitted, and its rows with what a step may have. So one request alone always fits.
//
// A request preempted kMaxPreemptions times is exempt: it comes first in the queue and is no victim any more. It
// resumes only when the largest needs of it and of the other exempt ones running fit the pool together, so exempt
// requests never run short of each other. So as long as there is work each step has a row: of a running request either
// all live branches are at their ends and in decode, or one of them has something to prefill, since sources do not form
// circles. Each row makes progress, and every request is computed at most kMaxPreemptions + 1 times: with need = n (P +
// G) work ends within the sum of (kMaxPreemptions + 1) * need steps.
//
// Refused by the system: a plan counts on memory that the kernel may refuse all the same (mappings of vAttention). A
// row that this happens to is not computed, and its request is preempted, by recompute; the manager gives back what
// nobody needs. The request tries again at once; refused again before it has computed what it never had, it waits until
// somebody has ended, unless nothing runs. Refused kMaxRefusals + 1 times with nothing else running it fails. So a
// request is refused at most once more for every sequence that ends and for every position it computes. Refusals do not
// count as preemptions in what is said above and below.
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
//  S3  the rows that those running may need <= min(max_rows, token_budget)
//  S4  between steps each branch of a running request has reserved exactly its computed positions (found ones
//  included),
//      less than its tokens, or has no memory and its source, if any, is another branch; nobody else has reserved
//      anything
//  S5  (I10) nobody has been preempted more than kMaxPreemptions times; the exempt ones running fit the pool, and the
//  entries
//      that tables may have (KvManager::most_entries), at their largest
//  S6  the aged ones are exactly the live ones that arrived before the first that has not aged
//
// Thread-safety: none; one thread at a time.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/kv/kv_manager.h"
#include "quire/sched/batch_plan.h"
#include "quire/sched/counters.h"
#include "quire/sched/events.h"
#include "quire/sched/live_request.h"
#include "quire/sched/options.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"
#include "quire/sched/request.h"
#include "quire/sched/row_result.h"
#include "quire/sched/step_composition.h"

namespace quire {

/// A step of few tokens takes little more than the time of reading the weights; with more, each costs its own
/// computation, and most proposals are not worth it (docs/performance.md). So four rows get one each, eight none.
inline constexpr std::int32_t kMaxTokensWithProposals = 8;
inline constexpr std::int32_t kMaxPassedOver = 32;
inline constexpr std::int32_t kMaxAgedPerStep = 32;
inline constexpr std::int32_t kMaxLookedUp = 16;
inline constexpr std::int64_t kMaxLookedUpBlocks = 64;

class Scheduler {
 public:
  /// check_options(options) has passed. `kv` is empty and outlives the scheduler; nobody else changes it.
  Scheduler(const CoreOptions& options, KvManager& kv);
  ~Scheduler();

  /// nullopt: the request is in the queue.
  std::optional<Refusal> submit(CoreRequest request);

  /// Ends a live request with all its branches and frees its memory. False if no live request has this id.
  bool end(RequestId request, FinishReason reason);

  /// Ends a live branch, and with the last one its request. A beam becomes a hypothesis of its search, unless it
  /// failed. False if there is no such branch; those of a request that has not forked yet do not exist.
  bool end_branch(RequestId request, std::int32_t branch, FinishReason reason);

  /// Plans the next step, takes the memory and fills `plan`. It must be committed before anything else happens.
  void plan_step(BatchPlan& plan);

  /// The plan has been computed. results [plan.rows.size()]: tokens >= 0 and candidates as row_result.h has them.
  void commit(const BatchPlan& plan, std::span<const RowResult> results);

  /// Events since the last call, in order.
  std::vector<Event> take_events() { return std::exchange(events_, {}); }

  std::int32_t num_waiting() const { return static_cast<std::int32_t>(queue_.size()); }
  std::int32_t num_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t num_preempted() const { return num_preempted_; }
  std::optional<RequestState> find_state(RequestId request) const;
  /// Tokens emitted, of all its branches; nullopt if no live request has this id.
  std::optional<std::int32_t> num_generated(RequestId request) const;
  const CoreOptions& options() const { return options_; }
  const CoreCounters& counters() const { return counters_; }
  CoreCounters& counters() { return counters_; }

  /// The first violation of S1..S6, or of the KV manager's invariants. Between steps only.
  std::optional<std::string> validate() const;

 private:
  struct ServedBefore {
    const QueuePolicy* policy;
    bool operator()(const LiveRequest* a, const LiveRequest* b) const {
      if (a->is_exempt() != b->is_exempt()) return a->is_exempt();
      if (a->is_aged != b->is_aged) return a->is_aged;
      if (a->is_aged) return a->view.arrival < b->view.arrival;
      return policy->serves_before(a->view, b->view);
    }
  };
  struct DraftRow {
    LiveRequest* request;
    Branch* branch;
    SequenceId sequence;
    std::int32_t begin;
    std::int32_t num_tokens;
    bool starts;                    ///< the branch gets memory by it
    std::int32_t num_proposed = 0;  ///< of num_tokens
    std::size_t proposal = 0;       ///< into Draft::proposed
  };
  /// A candidate for the budget.
  struct Prefill {
    LiveRequest* request;
    Branch* branch;
    PrefixHit hit;  ///< if it starts

    bool starts() const { return !branch->memory; }
    std::int32_t begin() const { return starts() ? hit.num_tokens : branch->computed; }
  };
  /// A step being planned; nothing outside of it and the manager's scratch view has changed.
  struct Draft {
    std::vector<LiveRequest*> victims;
    std::vector<DraftRow> rows;
    std::size_t num_decodes = 0;             ///< of these
    std::vector<TokenId> proposed;           ///< of all rows
    std::vector<Prefill> prefills;           ///< of running requests, then from the queue
    std::size_t num_running_prefills = 0;    ///< of these
    std::vector<std::int32_t> remaining;     ///< [prefills]
    std::vector<LiveRequest*> asking_files;  ///< reads are planned for them
    bool starts_wait = false;                ///< nobody is left to preempt: a start without room is left out
  };

  std::optional<Refusal> find_fault(const CoreRequest& request) const;
  std::optional<Refusal> find_shortage(const CoreRequest& request, Refusal refusal) const;
  LiveRequest* find(RequestId request) const;
  void move_to(LiveRequest& request, RequestState state);
  void insert_running(LiveRequest* request);

  // scheduler_branches.cpp
  void commit_row(const PlanRow& row, const RowResult& result);
  void fail_row(LiveRequest& request, const Branch& branch);
  void refuse_those();
  void refuse(LiveRequest& request, bool is_alone);
  void commit_tokens(LiveRequest& request, Branch& branch, const RowResult& result);
  void fork_samples(LiveRequest& request, std::span<const Candidate> tokens);
  std::optional<BranchFinished> take_token(LiveRequest& request, Branch& branch, TokenId token);
  void end_sample(LiveRequest& request, const Branch& branch, const BranchFinished& end);
  void note_searching(const LiveRequest& request);
  void advance_beams(LiveRequest& request);
  void replace_beams(LiveRequest& request, const std::vector<BeamChild>& children);
  std::unique_ptr<Branch> fork_branch(const Branch& parent);
  void end_search(LiveRequest& request);
  void end_beam(LiveRequest& request, const Branch& beam, FinishReason reason);
  void end_request(LiveRequest& request, FinishReason reason);
  void forget(LiveRequest& request, FinishReason reason);
  void fork_memory(Branch& child, SequenceId parent, std::int32_t num_tokens);
  void give_memory(Branch& branch, SequenceId sequence, std::int32_t computed);
  void give_up_memory(Branch& branch);
  void remove(LiveRequest& request, const Branch& branch);
  void fork_those_due(LiveRequest& request);

  // scheduler_proposals.cpp
  void draft_proposals();
  std::int32_t propose(DraftRow& row, std::int32_t at_most);
  void take_proposals(LiveRequest& request, Branch& branch, const PlanRow& row, const RowResult& result);

  // scheduler.cpp
  void age_requests();
  void set_aged(LiveRequest& request);
  void look_up_prefixes();
  std::int32_t cached_tokens(LiveRequest& request) const;

  void make_draft();
  LiveRequest* try_draft();
  LiveRequest* draft_decodes();
  void collect_prefills();
  void collect_starts(LiveRequest& request);
  void admit_from_queue();
  LiveRequest* draft_prefills();
  std::vector<std::int32_t> share_budget(std::int32_t budget) const;
  bool draft_row(LiveRequest* request, Branch* branch, std::int32_t num_tokens);
  bool draft_start(Prefill& prefill, SequenceId sequence, std::int32_t num_tokens);
  PrefixHit match(const LiveRequest& request, Branch& branch) const;
  bool is_passed_over(LiveRequest& request, const PrefixHit& hit) const;
  bool waits_for_files(LiveRequest& request, const PrefixHit& hit);
  bool waits_for_memory(const LiveRequest& request) const;
  bool is_victim(const LiveRequest* request) const;
  RunningView running_view(const LiveRequest& request) const;
  LiveRequest* choose_victim() const;
  std::int64_t promised_blocks() const;
  /// What exempt requests may take at their largest.
  struct Need {
    std::int64_t blocks = 0, entries = 0;
    void add(const LiveRequest& request) { blocks += request.largest_need, entries += request.most_entries; }
  };
  Need exempt_need_running() const;
  bool can_have(const Need& need) const;
  std::int32_t rows_running() const;

  void commit_draft(BatchPlan& plan);
  void commit_victim(LiveRequest* request, BatchPlan& plan);
  void set_preempted(LiveRequest& request, RequestPreempted event);
  void commit_start(const DraftRow& row);
  void commit_admission(const DraftRow& row);
  void append_row(const DraftRow& row, const KvReservation& reservation, BatchPlan& plan);

  std::optional<std::string> validate_running() const;
  std::optional<std::string> validate_branches(const LiveRequest& request) const;
  std::optional<std::string> validate_queue() const;
  std::optional<std::string> validate_ageing() const;

  const CoreOptions options_;
  const std::unique_ptr<QueuePolicy> queue_policy_;
  const std::unique_ptr<VictimPolicy> victim_policy_;
  const StepComposition composition_;
  const PreemptionMode preemption_mode_;
  const ServedBefore served_before_;
  const std::int32_t max_running_rows_;
  const std::int32_t watermark_blocks_;
  KvManager& kv_;

  std::unordered_map<RequestId, std::unique_ptr<LiveRequest>> requests_;  ///< live; looked up, never walked
  std::map<std::uint64_t, LiveRequest*> by_arrival_;                      ///< live
  std::set<LiveRequest*, ServedBefore> queue_;
  std::vector<LiveRequest*> running_;
  std::int32_t num_preempted_ = 0;
  std::uint64_t next_arrival_ = 1;
  std::uint64_t next_to_age_ = 1;      ///< arrival; all before it have aged
  std::uint64_t next_to_look_up_ = 1;  ///< arrival
  std::uint64_t step_ = 0;             ///< planned so far
  std::uint64_t next_sequence_ = 1;
  std::vector<SequenceFork> forks_;   ///< since the last plan
  std::vector<SequenceId> dropped_;   ///< released since the last plan
  std::vector<RequestId> searching_;  ///< whose beams the commit at hand has heard of
  std::vector<RequestId> refused_;    ///< that the system refused memory to, in the commit at hand
  std::uint64_t num_ended_ = 0;       ///< sequences, so far
  std::vector<Event> events_;
  std::vector<KvReservation> reservations_;
  Draft draft_;
  CoreCounters counters_;
};

}  // namespace quire
