#include "quire/kv/reserved_kv_manager.h"

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

ReservedKvManager::ReservedKvManager(std::int32_t num_blocks, std::int32_t block_size, std::int64_t longest_tokens)
    : block_size_(block_size),
      blocks_per_place_(static_cast<std::int32_t>(ceil_div(longest_tokens, block_size))),
      num_places_(num_blocks / blocks_per_place_),
      longest_tokens_(longest_tokens) {
  QUIRE_CHECK(longest_tokens >= 1 && num_places_ >= 1, num_blocks, " blocks hold no sequence of ", longest_tokens);
  for (std::int32_t place = num_places_; place > 0; --place) free_places_.push_back(place - 1);
  begin_plan();
}

std::int64_t ReservedKvManager::entries_for(std::int64_t num_tokens) const { return ceil_div(num_tokens, block_size_); }

KvCapacity ReservedKvManager::capacity() const {
  return {block_size_, num_places_ * blocks_per_place_,
          static_cast<std::int32_t>(free_places_.size()) * blocks_per_place_};
}

KvUsage ReservedKvManager::usage() const {
  const std::int64_t used_blocks = std::int64_t{num_sequences()} * blocks_per_place_;
  return {.table_entries = used_blocks,
          .used_blocks = used_blocks,
          .unfilled_slots = used_blocks * block_size_ - num_tokens_};
}

std::int64_t ReservedKvManager::reserved_tokens(SequenceId sequence) const {
  const auto found = entries_.find(sequence);
  return found == entries_.end() ? 0 : found->second.num_tokens;
}

void ReservedKvManager::begin_plan() {
  plan_free_places_ = static_cast<std::int32_t>(free_places_.size());
  operations_.clear();
}

bool ReservedKvManager::plan_reserve(SequenceId sequence, std::int64_t num_tokens) {
  QUIRE_CHECK(num_tokens >= reserved_tokens(sequence) && num_tokens <= longest_tokens_, "sequence ", sequence,
              " asks for ", num_tokens, " tokens of ", longest_tokens_);
  if (!entries_.contains(sequence) && plan_free_places_-- == 0) {
    plan_free_places_ = 0;
    return false;
  }
  operations_.push_back({sequence, num_tokens});
  return true;
}

void ReservedKvManager::plan_release(SequenceId sequence) {
  QUIRE_CHECK(entries_.contains(sequence), "no sequence ", sequence);
  ++plan_free_places_;
  operations_.push_back({sequence, kRelease});
}

bool ReservedKvManager::plan_start(SequenceId, const PrefixHit&, std::int64_t) {
  QUIRE_CHECK(false, "a start from a prefix: nothing is cached here");
  return false;
}

void ReservedKvManager::commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) {
  for (const Operation& operation : operations_) {
    if (operation.num_tokens == kRelease) {
      erase(operation.sequence);
    } else {
      commit_reserve(operation, changes, reservations);
    }
  }
  QUIRE_CHECK(plan_free_places_ == static_cast<std::int32_t>(free_places_.size()), "the plan is wrong");
  begin_plan();
}

void ReservedKvManager::commit_reserve(const Operation& operation, KvChanges& changes,
                                       std::vector<KvReservation>& reservations) {
  auto found = entries_.find(operation.sequence);
  if (found == entries_.end()) {
    found = entries_.emplace(operation.sequence, Entry{free_places_.back(), 0}).first;
    free_places_.pop_back();
  }
  Entry& entry = found->second;
  const auto offset = static_cast<std::int32_t>(changes.new_blocks.size());
  const std::int64_t first = std::int64_t{entry.place} * blocks_per_place_ + 1;
  for (std::int64_t i = entries_for(entry.num_tokens); i < entries_for(operation.num_tokens); ++i)
    changes.new_blocks.push_back(BlockId{static_cast<std::uint32_t>(first + i)});
  num_tokens_ += operation.num_tokens - entry.num_tokens;
  entry.num_tokens = operation.num_tokens;
  reservations.push_back({operation.sequence, offset, static_cast<std::int32_t>(changes.new_blocks.size()) - offset});
}

PrefixHit ReservedKvManager::match(KeyChain&, std::span<const TokenId>, std::int64_t) const { return {}; }

void ReservedKvManager::publish(SequenceId, KeyChain&, std::span<const TokenId>) {}

void ReservedKvManager::fork(SequenceId, SequenceId, std::int64_t) {
  QUIRE_CHECK(false, "fork: reserved memory is not shared");
}

void ReservedKvManager::release(SequenceId sequence) {
  QUIRE_CHECK(operations_.empty(), "release while a plan is open");
  erase(sequence);
  begin_plan();
}

void ReservedKvManager::erase(SequenceId sequence) {
  const auto found = entries_.find(sequence);
  QUIRE_CHECK(found != entries_.end(), "no sequence ", sequence);
  num_tokens_ -= found->second.num_tokens;
  free_places_.push_back(found->second.place);
  entries_.erase(found);
}

std::optional<std::string> ReservedKvManager::validate() const {
  std::vector<int> holders(static_cast<std::size_t>(num_places_), 0);
  std::int64_t num_tokens = 0;
  for (std::int32_t place : free_places_) ++holders.at(static_cast<std::size_t>(place));
  for (const auto& [sequence, entry] : entries_) {
    ++holders.at(static_cast<std::size_t>(entry.place));
    num_tokens += entry.num_tokens;
    if (entry.num_tokens > longest_tokens_) return cat("R2: sequence ", sequence, " has ", entry.num_tokens, " tokens");
  }
  for (std::size_t place = 0; place < holders.size(); ++place)
    if (holders[place] != 1) return cat("R1: place ", place, " is held ", holders[place], " times");
  if (num_tokens != num_tokens_) return cat("R1: ", num_tokens, " tokens are held, ", num_tokens_, " counted");
  return std::nullopt;
}

}  // namespace quire
