#include "quire/kv/kv_checker_test.h"

#include <algorithm>
#include <set>

#include "quire/base/cat.h"

namespace quire {

std::uint64_t value_in_group(std::uint64_t value, std::size_t group) { return value * 1000 + group; }

bool KvModel::try_reserve(SequenceId sequence, const Values& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Sequence next = sequences.count(sequence) ? sequences[sequence] : Sequence{{}, 0};
  next.tables.resize(groups_.size());
  const auto copies = [&](const std::vector<int>& table) {
    return count > 0 && next.num_tokens % block_size_ != 0 && ref_count(table.back()) > 1;
  };
  std::int64_t needed = 0;
  for (const std::vector<int>& table : next.tables) {
    needed += copies(table) ? 1 : 0;
    for (std::int64_t p = next.num_tokens; p < next.num_tokens + count; ++p) needed += p % block_size_ == 0 ? 1 : 0;
  }
  if (needed > num_free()) return false;
  for (std::vector<int>& table : next.tables) {
    if (!copies(table)) continue;
    contents_[next_block_] = contents_[table.back()];
    table.back() = next_block_++;
  }
  for (std::uint64_t value : values) {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      if (next.num_tokens % block_size_ == 0) next.tables[group].push_back(next_block_++);
      Values& content = contents_[next.tables[group].back()];
      content.resize(static_cast<std::size_t>(next.num_tokens % block_size_));
      content.push_back(value_in_group(value, group));
    }
    ++next.num_tokens;
  }
  sequences[sequence] = next;
  return true;
}

void KvModel::truncate(SequenceId id, std::int64_t num_tokens) {
  Sequence& sequence = sequences.at(id);
  sequence.num_tokens = num_tokens;
  for (std::vector<int>& table : sequence.tables)
    while ((static_cast<std::int64_t>(table.size()) - 1) * block_size_ >= num_tokens) table.pop_back();
  collect();
}

/// The next position sees `window` positions, its own included; one more is kept.
void KvModel::pass_windows(SequenceId id) {
  Sequence& sequence = sequences.at(id);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const std::int64_t window = groups_[group].window;
    std::vector<int>& table = sequence.tables[group];
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(table.size()); ++i) {
      bool is_kept = window == 0;
      for (std::int64_t p = i * block_size_; p < (i + 1) * block_size_; ++p)
        is_kept = is_kept || p > sequence.num_tokens - window - 1;
      if (!is_kept) table[static_cast<std::size_t>(i)] = 0;
    }
  }
  collect();
}

void KvModel::fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) {
  Sequence copy = sequences.at(parent);
  copy.num_tokens = num_tokens;
  for (std::vector<int>& table : copy.tables)
    while ((static_cast<std::int64_t>(table.size()) - 1) * block_size_ >= num_tokens) table.pop_back();
  sequences[child] = copy;
}

void KvModel::release(SequenceId sequence) {
  sequences.erase(sequence);
  collect();
}

void KvModel::collect() {
  std::erase_if(contents_, [&](const auto& content) { return ref_count(content.first) == 0; });
}

int KvModel::ref_count(int block) const {
  int count = 0;
  for (const auto& [id, sequence] : sequences)
    for (const std::vector<int>& table : sequence.tables)
      for (int named : table) count += named == block ? 1 : 0;
  return count;
}

std::int64_t KvModel::num_free() const {
  std::set<int> used;
  for (const auto& [id, sequence] : sequences)
    for (const std::vector<int>& table : sequence.tables) used.insert(table.begin(), table.end());
  used.erase(0);
  return num_blocks_ - static_cast<std::int64_t>(used.size());
}

std::int64_t KvModel::num_held(SequenceId sequence) const {
  std::int64_t count = 0;
  for (const std::vector<int>& table : sequences.at(sequence).tables)
    for (int block : table) count += block != 0 ? 1 : 0;
  return count;
}

std::optional<std::uint64_t> KvModel::value_at(SequenceId sequence, std::size_t group, std::int64_t position) const {
  const int block = sequences.at(sequence).tables[group][static_cast<std::size_t>(position / block_size_)];
  if (block == 0) return std::nullopt;
  return contents_.at(block).at(static_cast<std::size_t>(position % block_size_));
}

KvChecker::KvChecker(std::int32_t num_blocks, const GroupGeometry& geometry)
    : num_groups_(geometry.num_groups()),
      block_size_(geometry.block_size()),
      manager_(num_blocks, geometry),
      model_(num_blocks, geometry),
      slots_(static_cast<std::size_t>(num_blocks) + 1, KvModel::Values(static_cast<std::size_t>(block_size_), 0)) {}

KvChecker::KvChecker(std::int32_t num_blocks, std::int32_t block_size)
    : KvChecker(num_blocks, GroupGeometry::uniform(block_size)) {}

std::vector<SequenceId> KvChecker::sequences() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : model_.sequences) ids.push_back(id);
  return ids;
}

void KvChecker::note(std::string text) {
  if (!difference_) difference_ = std::move(text);
}

KvModel::Values KvChecker::fresh_values(std::int64_t count) {
  KvModel::Values values(static_cast<std::size_t>(count));
  for (std::uint64_t& value : values) value = next_value_++;
  return values;
}

void KvChecker::run_plan(const std::vector<Operation>& operations, bool commit) {
  KvModel planned = model_;
  std::set<SequenceId> touched;
  std::set<SequenceId> released;
  std::map<SequenceId, KvModel::Values> written;
  std::map<SequenceId, std::int64_t> counting;  ///< where proposals leave a sequence
  manager_.begin_plan();
  for (const Operation& operation : operations) {
    const bool is_release = operation.num_more < 0;
    if (touched.count(operation.sequence) || (is_release && !has(operation.sequence))) continue;
    touched.insert(operation.sequence);
    if (is_release) {
      manager_.plan_release(operation.sequence);
      planned.release(operation.sequence);
      released.insert(operation.sequence);
    } else {
      KvModel::Values values = fresh_values(operation.num_more);
      const std::int64_t total = manager_.reserved_tokens(operation.sequence) + operation.num_more;
      const bool fits = manager_.plan_reserve(operation.sequence, total);
      if (fits != planned.try_reserve(operation.sequence, values))
        note(cat("plan_reserve of sequence ", operation.sequence, " to ", total, " tokens gave ", fits));
      const bool may_extend = fits && operation.num_proposed > 0 && operation.num_more > 0 && has(operation.sequence);
      if (may_extend && extend(operation, total, values, planned))
        counting[operation.sequence] = total + std::min(operation.num_accepted, operation.num_proposed);
      if (fits) written[operation.sequence] = values;
    }
    if (manager_.plan_free_blocks() != planned.num_free())
      note(cat("planned free blocks: ", manager_.plan_free_blocks(), ", model ", planned.num_free()));
  }
  if (commit) {
    KvChanges changes;
    std::vector<KvReservation> reservations;
    manager_.commit_plan(changes, reservations);
    for (SequenceId sequence : released) mirror_.erase(sequence);
    apply(changes, reservations, written);
    model_ = planned;
    compare();
    for (const auto& [sequence, num_tokens] : counting) truncate(sequence, num_tokens);
    pass_windows(reservations);
  } else {
    manager_.begin_plan();
  }
  compare();
}

bool KvChecker::extend(const Operation& operation, std::int64_t total, KvModel::Values& values, KvModel& planned) {
  const KvModel::Values more = fresh_values(operation.num_proposed);
  const bool fits = manager_.plan_extend(operation.sequence, total + operation.num_proposed);
  if (fits != planned.try_reserve(operation.sequence, more))
    note(cat("plan_extend of sequence ", operation.sequence, " from ", total, " tokens gave ", fits));
  if (fits) values.insert(values.end(), more.begin(), more.end());
  return fits;
}

void KvChecker::truncate(SequenceId sequence, std::int64_t num_tokens) {
  manager_.truncate(sequence, num_tokens);
  model_.truncate(sequence, num_tokens);
  for (std::vector<BlockId>& table : mirror_.at(sequence))
    table.resize(static_cast<std::size_t>(manager_.geometry().num_entries(num_tokens)));
  compare();
}

/// What an executor does: edits, appends, copies, then the writes.
void KvChecker::apply(const KvChanges& changes, const std::vector<KvReservation>& reservations,
                      const std::map<SequenceId, KvModel::Values>& written) {
  for (const TableEdit& edit : changes.table_edits)
    mirror_.at(edit.sequence).at(static_cast<std::size_t>(edit.group)).at(static_cast<std::size_t>(edit.index)) =
        edit.block;
  for (const KvReservation& row : reservations) {
    auto first = changes.new_blocks.begin() + row.new_blocks_offset;
    mirror_[row.sequence].resize(num_groups_);
    for (std::vector<BlockId>& table : mirror_[row.sequence]) {
      table.insert(table.end(), first, first + row.num_new_blocks);
      first += row.num_new_blocks;
    }
  }
  for (const BlockCopy& copy : changes.copies) slots_.at(copy.to.value) = slots_.at(copy.from.value);
  if (reservations.size() != written.size()) note(cat(reservations.size(), " reservations for ", written.size()));
  for (const KvReservation& row : reservations) write(row, written.at(row.sequence));
}

void KvChecker::write(const KvReservation& row, const KvModel::Values& values) {
  const std::int64_t end = manager_.reserved_tokens(row.sequence);
  const std::int64_t begin = end - static_cast<std::int64_t>(values.size());
  for (std::int64_t p = begin; p < end; ++p) {
    for (std::size_t group = 0; group < num_groups_; ++group) {
      const BlockId block = mirror_.at(row.sequence)[group].at(static_cast<std::size_t>(p / block_size_));
      slots_.at(block.value).at(static_cast<std::size_t>(p % block_size_)) =
          value_in_group(values[static_cast<std::size_t>(p - begin)], group);
    }
  }
}

void KvChecker::pass_windows(const std::vector<KvReservation>& reservations) {
  for (const KvReservation& row : reservations) {
    KeyChain chain;
    const std::vector<TokenId> tokens(static_cast<std::size_t>(manager_.reserved_tokens(row.sequence)));
    manager_.publish(row.sequence, chain, tokens);
    model_.pass_windows(row.sequence);
    for (std::size_t group = 0; group < num_groups_; ++group) {
      std::vector<BlockId>& table = mirror_.at(row.sequence)[group];
      const std::int64_t first_kept = manager_.geometry().first_kept(group, static_cast<std::int64_t>(tokens.size()));
      std::fill_n(table.begin(), first_kept, kNullBlock);
    }
  }
}

void KvChecker::fork(SequenceId parent, SequenceId child, std::int64_t num_less) {
  const std::int64_t num_tokens = std::max<std::int64_t>(0, manager_.reserved_tokens(parent) - num_less);
  manager_.fork(parent, child, num_tokens);
  model_.fork(parent, child, num_tokens);
  mirror_[child] = mirror_.at(parent);
  for (std::vector<BlockId>& table : mirror_[child])
    table.resize(static_cast<std::size_t>(manager_.geometry().num_entries(num_tokens)));
  compare();
}

void KvChecker::release(SequenceId sequence) {
  manager_.release(sequence);
  model_.release(sequence);
  mirror_.erase(sequence);
  compare();
}

void KvChecker::compare() {
  if (auto violation = manager_.validate()) note(*violation);
  const KvCapacity capacity = manager_.capacity();
  if (capacity.free_blocks != model_.num_free())
    note(cat("free blocks: ", capacity.free_blocks, ", model ", model_.num_free()));
  if (manager_.num_sequences() != static_cast<std::int32_t>(model_.sequences.size()))
    note(cat("sequences: ", manager_.num_sequences(), ", model ", model_.sequences.size()));
  for (SequenceId sequence : sequences()) compare_sequence(sequence);
}

void KvChecker::compare_sequence(SequenceId sequence) {
  const std::int64_t num_tokens = model_.sequences.at(sequence).num_tokens;
  if (manager_.reserved_tokens(sequence) != num_tokens)
    return note(cat("sequence ", sequence, " has ", manager_.reserved_tokens(sequence), " tokens, model ", num_tokens));
  if (model_.num_held(sequence) > manager_.blocks_for(num_tokens))
    note(cat("sequence ", sequence, " holds ", model_.num_held(sequence), " blocks for ", num_tokens, " tokens"));
  for (std::size_t group = 0; group < num_groups_; ++group) compare_table(sequence, group);
}

void KvChecker::compare_table(SequenceId sequence, std::size_t group) {
  const BlockTable* table = manager_.find_table(sequence, group);
  if (!table) return note(cat("sequence ", sequence, " is missing"));
  if (table->blocks != mirror_[sequence][group])
    return note(cat("table of sequence ", sequence, " is not what plans said"));
  const std::vector<int>& expected = model_.sequences.at(sequence).tables[group];
  if (table->blocks.size() != expected.size()) return note(cat("sequence ", sequence, " has other entries"));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if ((expected[i] == 0) != (table->blocks[i] == kNullBlock))
      return note(cat("sequence ", sequence, " has block ", table->blocks[i], " at ", i, " of group ", group));
    if (expected[i] != 0 && manager_.pool().ref_count(table->blocks[i]) != model_.ref_count(expected[i]))
      return note(cat("block ", table->blocks[i], " has ", manager_.pool().ref_count(table->blocks[i]), " references"));
  }
  for (std::int64_t p = 0; p < model_.sequences.at(sequence).num_tokens; ++p) {
    const auto value = model_.value_at(sequence, group, p);
    const BlockId block = table->blocks[static_cast<std::size_t>(p / block_size_)];
    if (value && slots_.at(block.value)[static_cast<std::size_t>(p % block_size_)] != *value)
      return note(cat("sequence ", sequence, " reads a foreign value at position ", p, " of group ", group));
  }
}

}  // namespace quire
