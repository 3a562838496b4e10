#pragma once
// A naive model of vAttention's memory for tests: every sequence has its tokens and a list of groups, numbered by the
// model, counted by walking. VAttentionChecker drives it and a VAttentionKvManager through the same operations, does
// what the plans say with simulated memory, and after each operation compares all that can be read.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/kv/simulated_places.h"
#include "quire/kv/vattention_kv_manager.h"

namespace quire {

class VAttentionChecker {
 public:
  VAttentionChecker(const VAttentionOptions& options, bool with_cache);

  struct Operation {
    SequenceId sequence;
    std::int64_t num_more;  ///< positions to append; -1: release
    /// A new sequence begins with up to so many tokens of this one, which lives or has ended.
    SequenceId like{};
    std::int64_t num_like = 0;
  };
  /// Plans all operations (those on unknown or already planned sequences are left out), then commits or abandons.
  void run_plan(const std::vector<Operation>& operations, bool commit = true);
  void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens);
  void release(SequenceId sequence);

  bool has(SequenceId sequence) const { return model_.count(sequence) > 0; }
  std::vector<SequenceId> sequences() const;
  std::int64_t num_tokens(SequenceId sequence) const {
    return static_cast<std::int64_t>(model_.at(sequence).tokens.size());
  }
  VAttentionKvManager& manager() { return manager_; }
  const KvChanges& changes() const { return changes_; }    ///< of the last committed plan
  std::int64_t num_cached() const { return num_cached_; }  ///< tokens that new sequences began with

  /// The first difference between manager and model so far, or violated invariant.
  const std::optional<std::string>& difference() const { return difference_; }

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<int> groups;
    KeyChain chain;
  };
  using Model = std::map<SequenceId, Sequence>;
  struct Value {
    TokenId token{-1};
    std::int64_t position = -1;
  };

  void note(std::string text);
  std::vector<TokenId> tokens_to_append(const Operation& operation);
  bool plan_in_manager(const Operation& operation, const std::vector<TokenId>& tokens, std::int64_t& begin);
  bool reserve_in_model(Model& model, SequenceId sequence, const std::vector<TokenId>& more);
  std::int64_t num_free(const Model& model) const;
  static int num_holders(const Model& model, int group);
  void write(SequenceId sequence, std::int64_t begin);
  void compare();

  const VAttentionOptions options_;
  const bool with_cache_;
  VAttentionKvManager manager_;
  SimulatedPlaces<Value> memory_;
  Model model_;
  std::map<SequenceId, std::vector<TokenId>> history_;  ///< of all sequences so far
  KvChanges changes_;
  bool plan_has_releases_ = false;
  int num_starts_ = 0;  ///< with a hit, in the plan at hand
  int next_group_ = 1;
  std::int32_t next_token_ = 0;
  std::int64_t num_cached_ = 0;
  std::optional<std::string> difference_;
};

}  // namespace quire
