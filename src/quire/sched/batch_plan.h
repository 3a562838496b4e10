#pragma once
// BatchPlan: one step, as plain data: which sequences compute which positions, and what changes in their block tables
// before that. It has no pointer into the scheduler, so it can be executed, recorded, compared and replayed anywhere.
//
// It carries changes only. An executor keeps the block tables itself (core/table_mirror.h does) and applies, in order:
//   1. forks         begin these sequences' tables with entries of others
//   2. dropped       forget these sequences' tables
//   3. table_edits   replace single entries
//   4. rows          append each row's new blocks to its sequence's tables (a sequence not seen before starts empty)
//   5. tiers         take contents out to frames and files and bring them back (kv/tier_changes.h)
//   6. copies        copy whole blocks, in the order of the list; of a copy only the slots before the row's begin
//                    matter
//   7. the rows' computation, which writes the K and V of positions [begin, begin + num_tokens) of each row
//   8. ends          with e = end_that_counts(row, result): forget each row's entries from ceil(e / block_size) on,
//                    which hold proposals that did not come true
//   9. windows       and those behind its windows, before GroupGeometry::first_kept(group, e)
//
// A sequence has a table in each layer group (kv/layer_groups.h), all with equally many entries.
//
// With the vAttention manager there are no tables: a row says in which place its sequence lives, new_blocks and
// table_edits are empty, and group_maps are done in step 3, in the order of the list, once the ahead_maps of the plan
// before are done. The copies then are of page-groups. ahead_maps may be done at any time before the next plan.
//
// Invariants:
//  B1  a sequence has at most one row; its begin is where its last row ended, as far as that counts, a forked one's
//      where it was forked. A new sequence's is 0, or the number of positions whose K and V it finds in its first new
//      blocks: shared ones, then at most one that a copy fills
//  B2  rows' tokens lie one after another in `tokens`, rows' new blocks in `new_blocks`
//  B3  after step 4 a row's tables have ceil((begin + num_tokens) / block_size) entries each; a place has the groups of
//      (begin + num_tokens) tokens (kv/page_groups.h) and no two sequences have one place
//  B4  (I5) no two rows write the same slot; no row writes into a block that another sequence's table (or place) names,
//  or
//      whose content another sequence may still find
//  B5  decodes come first, then prefill chunks
//  B6  among new blocks only a new sequence's may be null: those of which no position from begin on sees anything. A
//      block that step 8 or 9 forgot may be given out again from the next plan on
//  B7  a row with proposals is a decode with one output: it samples, and has one token before them

#include <cstdint>
#include <vector>

#include "quire/base/ids.h"
#include "quire/kv/kv_manager.h"
#include "quire/sched/row_result.h"

namespace quire {

struct PlanRow {
  SequenceId sequence;
  RequestId request;
  std::int32_t begin = 0;              ///< absolute position of the first token computed
  std::int32_t num_tokens = 0;         ///< >= 1
  std::int32_t token_offset = 0;       ///< into BatchPlan::tokens
  std::int32_t new_blocks_offset = 0;  ///< into BatchPlan::new_blocks
  std::int32_t num_new_blocks = 0;     ///< a group; those of all groups lie one after another, the first group's first
  std::int32_t logits_begin = 0;  ///< logits are wanted for positions >= max(begin, logits_begin); none if >= end()
  bool samples = false;           ///< the last position's logits become tokens for position end()
  std::int32_t num_proposed = 0;  ///< the last so many tokens are proposals (sched/ngram_proposer.h); then the position
                                  ///< before each of them samples too
  bool is_prefill = false;        ///< computes a part of the prompt, or recomputes after a preemption
  bool ranked = false;            ///< of a beam search: the outputs are the best tokens with their logprobs, not drawn
  std::int32_t branch = 0;       ///< whose token is drawn; of a beam, its rank. The row with the prompt's last position
                                 ///< has branch 0 and, if it samples, outputs for all branches
  std::int32_t num_outputs = 1;  ///< if it samples: 1, or so many as RowResult::candidates says
  std::int32_t place = -1;       ///< vAttention: where the sequence lives, the same in all its rows

  std::int32_t end() const { return begin + num_tokens; }
  std::int32_t first_logits() const { return logits_begin > begin ? logits_begin : begin; }
  std::int32_t num_logits() const { return end() > first_logits() ? end() - first_logits() : 0; }
  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

/// Where the row's sequence ends once it has been computed: behind the proposals that came true.
inline std::int32_t end_that_counts(const PlanRow& row, const RowResult& result) {
  return row.end() - row.num_proposed + static_cast<std::int32_t>(result.more.size());
}

struct BatchPlan : KvChanges {
  std::uint64_t step = 0;           ///< 1 for the first step
  std::vector<PlanRow> rows;        ///< may be empty
  std::vector<TokenId> tokens;      ///< [num_tokens]
  std::vector<SequenceFork> forks;  ///< since the last plan, in order
  std::vector<SequenceId> dropped;  ///< finished, cancelled or preempted: these ids never come back

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }

  /// A digest of every field; equal plans have equal digests on every machine.
  std::uint64_t digest() const;

  /// Empties all lists; keeps their memory.
  void clear();
};

}  // namespace quire
