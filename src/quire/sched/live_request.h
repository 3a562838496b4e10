#pragma once
// LiveRequest: a request while the scheduler has it, and its branches. A branch is a continuation of the prompt with a
// sequence of its own: a request has one, or `num_branches`, or the live beams of a search.
//
// All branches share the prompt. At first only branch 0 exists and computes it. Its last row has outputs for all; then
// the request forks: each branch begins with branch 0's table, and from there on computes its own tokens. A block that
// several share is written by none of them (kv/kv_manager.h).
//
// A preempted request gives up the memory of all its branches at once and resumes as a tree: the first branch is the
// root, which computes (or finds) its tokens; every other one has a source, the branch with the longest beginning in
// common among those before it, and forks off it once the source has computed that far. Equal tokens have equal K and
// V, so what each branch computes is the same as ever.
//
// Plain data for Scheduler; no invariants of its own.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/kv/kv_manager.h"
#include "quire/sched/beam_search.h"
#include "quire/sched/ngram_proposer.h"
#include "quire/sched/options.h"
#include "quire/sched/policy.h"
#include "quire/sched/request.h"
#include "quire/sched/row_result.h"

namespace quire {

inline constexpr std::int32_t kMaxPreemptions = 3;
inline constexpr std::int32_t kMaxRefusals = 3;

struct Branch {
  std::int32_t index = 0;                 ///< as the owner knows it; of a beam, its rank in the last step
  std::vector<TokenId> tokens;            ///< the prompt, then what was generated
  std::int32_t logits_begin = 0;          ///< logits of positions before this are not wanted, or were delivered
  std::int32_t computed = 0;              ///< positions [0, computed) are in the KV memory
  std::int32_t ever_computed = 0;         ///< the largest `computed` so far
  std::optional<SequenceId> memory;       ///< its sequence, while it has memory
  KeyChain chain;                         ///< of `tokens`, for the prefix cache
  std::optional<NgramProposer> proposer;  ///< nullopt: nothing is proposed
  std::int64_t tail_copies = 0;           ///< blocks that it has forked within and not written since: it may copy them

  // Without memory in a request that has forked:
  const Branch* source = nullptr;  ///< whose table it will begin with; null: it starts by itself
  std::int32_t fork_at = 0;        ///< how much of it: a beginning that both have
  bool looked_up = false;          ///< the prefix cache has no more of its tokens than that

  // Of a beam:
  double sum = 0;                     ///< of the logprobs of what was generated
  std::vector<Candidate> candidates;  ///< what the last row offered

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t remaining() const { return num_tokens() - computed; }
};

struct LiveRequest {
  RequestView view;
  std::uint64_t submitted_at = 0;  ///< steps planned before
  bool is_aged = false;
  RequestState state = RequestState::waiting;
  std::vector<TokenId> stop_tokens;  ///< sorted, each once
  std::int32_t max_tokens = 0;       ///< of each branch; resolved
  std::int32_t min_tokens = 0;
  std::int32_t num_branches = 1;   ///< at most at a time: as asked for, or the beam width
  std::int64_t prompt_blocks = 0;  ///< whole ones, which the branches share
  std::int64_t largest_need = 0;   ///< blocks_needed()
  std::int64_t most_entries = 0;   ///< entries_needed()
  bool resumes_apart = false;      ///< layers have windows, which are gone behind a source's end: no sources
  std::optional<BeamSearch> search;
  bool has_forked = false;                        ///< its branches are more than a promise; true from the start for one
  std::vector<std::unique_ptr<Branch>> branches;  ///< live ones, by index; not empty
  std::int32_t num_generated = 0;                 ///< emitted, of all branches
  RequestId waited_for;                           ///< whose block it was last passed over for,
  std::int32_t waited_at = -1;                    ///< and what that one had computed then
  std::int32_t num_apart = 0;                     ///< branches that started by themselves though they had a source
  bool has_asked_files = false;                   ///< since it was last running

  // Refusals by the system since it last computed what it never had:
  std::int32_t num_refusals = 0;
  std::int32_t num_refused_alone = 0;  ///< of these: nothing else was running
  std::uint64_t refused_at = 0;        ///< sequences that had ended then

  Branch& root() const { return *branches.front(); }
  bool is_exempt() const { return view.num_preemptions >= kMaxPreemptions; }
  bool is_stop_token(TokenId token) const;

  /// Rows that it may need in a step.
  std::int32_t rows() const;
  /// Of a row that samples.
  std::int32_t num_outputs() const;
  /// Blocks that it has still to take to have all its tokens computed. A forked one's shared blocks are not counted.
  std::int64_t blocks_to_take(const KvManager& kv) const;
  /// Table entries; those in the prompt's whole blocks, which the branches share, once.
  std::int64_t blocks_held(const KvManager& kv) const;

  /// The branch's next row is one token at its end. Beams go on together: while one of them still recomputes, the
  /// others wait with their last token.
  bool is_decode(const Branch& branch) const;
  /// Tokens that a prefill of the branch has still to compute, if `begin` is where it begins; 0: it waits.
  std::int32_t prefill_left(const Branch& branch, std::int32_t begin) const;
  std::int32_t num_generated_by(const Branch& branch) const { return branch.num_tokens() - view.prompt_tokens; }

  /// Gives every branch without memory its source, or none if it has to start by itself.
  void choose_sources();
  /// A branch with memory has more to compute than its last token.
  bool is_prefilling() const;
};

/// Branches that the request may have at a time.
std::int32_t num_branches(const CoreRequest& request);

/// The blocks that a request may ever hold: the prompt's whole ones, which its branches share, and for each branch
/// those behind. From any thread.
std::int64_t blocks_needed(const KvManager& kv, std::int64_t prompt_tokens, std::int64_t max_tokens,
                           std::int64_t num_branches);

/// The table entries that all branches together may have, shared blocks counted in each. From any thread.
std::int64_t entries_needed(const KvManager& kv, std::int64_t prompt_tokens, std::int64_t max_tokens,
                            std::int64_t num_branches);

/// The largest max_tokens with which it fits the pool and the context; less than 1 if none does.
std::int64_t tokens_that_fit(const CoreOptions& options, const KvManager& kv, std::int64_t prompt_tokens,
                             std::int64_t num_branches);

}  // namespace quire
