#pragma once
// ShadowExecutor: a fake executor that proves the bookkeeping. Where a model would write K and V, it writes (tenant,
// position, token, digest of the slot before) into slots that it finds through the real block tables; where a model
// would attend, it reads every position back and folds it into one number, from which the next token follows. A wrong,
// stale, shared or overwritten block changes the tokens at once. shadow_token() says what they must be, without any
// paging. With layer groups all of this is done in each of them, and of a group with a window a row reads what its
// window sees.
//
// A tenant is whoever may share content: a salt. Requests of one tenant with equal tokens write equal slots.
//
// Behind proposals it draws at each position, as far as they come true.
//
// It also checks invariants B1..B4, B6 and B7 of sched/batch_plan.h on every plan.
//
// For tests and the simulator. Thread-safety: none.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/base/hash.h"
#include "quire/core/executor.h"
#include "quire/core/shadow_tiers.h"
#include "quire/core/table_mirror.h"
#include "quire/kv/simulated_places.h"
#include "quire/kv/vattention_kv_manager.h"

namespace quire {

/// The token that follows `tokens` of this tenant, in [0, vocabulary). Branch k of a request gets what one without
/// branches and with the number k would get.
TokenId shadow_token(std::string_view salt, const std::vector<TokenId>& tokens, std::int32_t vocabulary,
                     std::span<const LayerGroup> groups = kOneFullGroup, std::int32_t branch = 0);

/// The best tokens after `tokens` with their pseudo-logprobs, by logprob, then id: `count`, at most the vocabulary.
std::vector<Candidate> shadow_candidates(std::string_view salt, const std::vector<TokenId>& tokens,
                                         std::int32_t vocabulary, std::span<const LayerGroup> groups,
                                         std::int32_t count);

class ShadowExecutor final : public Executor {
 public:
  ShadowExecutor(std::int32_t num_blocks, const GroupGeometry& geometry, std::int32_t vocabulary,
                 std::int32_t num_frames = 0);

  /// Memory is that of vAttention: places instead of tables. Before the first plan.
  void use_places(const VAttentionOptions& options);

  /// Before the request's first row; without it the salt is empty.
  void set_salt(RequestId request, std::string_view salt) { tenants_[request] = tenant(salt); }

  /// In the next plan these rows [plan.rows] have no memory: they are not computed.
  void refuse(std::vector<bool> rows) { refused_ = std::move(rows); }

  StepResult execute(const BatchPlan& plan) override;

  /// The first plan that broke an invariant or read a slot that was not the row's own, or nullopt.
  const std::optional<std::string>& violation() const { return violation_; }
  std::size_t num_sequences() const { return places_ ? end_of_.size() : mirror_.num_sequences(); }
  /// RAM and files; whoever runs the steps ends the transfers.
  ShadowTiers& tiers() { return tiers_; }

 private:
  static std::uint64_t tenant(std::string_view salt);
  std::uint64_t tenant_of(RequestId request) const;
  void note(std::string text);
  void check_offsets(const BatchPlan& plan);
  void count_holders(const BatchPlan& plan);
  void count_new_blocks(const BatchPlan& plan, const PlanRow& row, bool is_new);
  void check_row(const PlanRow& row);
  void write_row(const BatchPlan& plan, const PlanRow& row, std::size_t group);
  void read_row(const PlanRow& row, std::size_t group);
  std::uint64_t fold_at(const PlanRow& row, std::int32_t position);
  RowResult draw(const BatchPlan& plan, const PlanRow& row);
  void end_step(const BatchPlan& plan, const std::vector<RowResult>& results);
  bool is_refused(std::size_t row) const { return row < refused_.size() && refused_[row]; }
  BlockId block_at(const PlanRow& row, std::size_t group, std::int32_t position) const;
  ShadowSlot* slot_at(const PlanRow& row, std::size_t group, std::int32_t position);

  StepResult execute_in_places(const BatchPlan& plan);
  void check_place(const PlanRow& row);
  void write_in_place(const BatchPlan& plan, const PlanRow& row);
  std::uint64_t fold_place(const PlanRow& row);

  const GroupGeometry geometry_;
  const std::int32_t block_size_;
  const std::int32_t vocabulary_;
  TableMirror mirror_;
  ShadowTiers tiers_;
  std::optional<SimulatedPlaces<ShadowSlot>> places_;      ///< vAttention; then blocks_ and mirror_ are unused
  std::unordered_map<std::int32_t, SequenceId> owner_of_;  ///< by place: who had the last row in it
  std::vector<ShadowBlock> blocks_;                        ///< [num_blocks + 1][block_size]
  std::vector<std::int32_t> num_holders_;                  ///< [num_blocks + 1]: table entries that name the block
  std::unordered_map<SequenceId, std::int32_t> end_of_;    ///< where each sequence's last row ended
  std::unordered_map<RequestId, std::uint64_t> tenants_;
  std::vector<bool> refused_;  ///< of the plan at hand; may be shorter
  std::optional<std::string> violation_;
};

}  // namespace quire
