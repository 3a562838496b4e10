#include "quire/kv/kv_checker_test.h"

#include <set>

#include "quire/base/cat.h"

namespace quire {

bool KvModel::try_reserve(SequenceId sequence, const Values& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Sequence next = sequences.count(sequence) ? sequences[sequence] : Sequence{};
  const bool copies = count > 0 && next.num_tokens % block_size_ != 0 && ref_count(next.blocks.back()) > 1;
  std::int64_t needed = copies ? 1 : 0;
  for (std::int64_t p = next.num_tokens; p < next.num_tokens + count; ++p) needed += p % block_size_ == 0 ? 1 : 0;
  if (needed > num_free()) return false;
  if (copies) {
    contents_[next_block_] = contents_[next.blocks.back()];
    next.blocks.back() = next_block_++;
  }
  for (std::uint64_t value : values) {
    if (next.num_tokens % block_size_ == 0) next.blocks.push_back(next_block_++);
    Values& content = contents_[next.blocks.back()];
    content.resize(static_cast<std::size_t>(next.num_tokens % block_size_));
    content.push_back(value);
    ++next.num_tokens;
  }
  sequences[sequence] = next;
  return true;
}

void KvModel::release(SequenceId sequence) {
  sequences.erase(sequence);
  std::erase_if(contents_, [&](const auto& content) { return ref_count(content.first) == 0; });
}

int KvModel::ref_count(int block) const {
  int count = 0;
  for (const auto& [id, sequence] : sequences)
    for (int named : sequence.blocks) count += named == block ? 1 : 0;
  return count;
}

std::int64_t KvModel::num_free() const {
  std::set<int> used;
  for (const auto& [id, sequence] : sequences) used.insert(sequence.blocks.begin(), sequence.blocks.end());
  return num_blocks_ - static_cast<std::int64_t>(used.size());
}

KvModel::Values KvModel::values_of(SequenceId id) const {
  Values values;
  for (int block : sequences.at(id).blocks) {
    const Values& content = contents_.at(block);
    values.insert(values.end(), content.begin(), content.end());
  }
  values.resize(static_cast<std::size_t>(sequences.at(id).num_tokens));
  return values;
}

KvChecker::KvChecker(std::int32_t num_blocks, std::int32_t block_size)
    : block_size_(block_size),
      manager_(num_blocks, block_size),
      model_(num_blocks, block_size),
      slots_(static_cast<std::size_t>(num_blocks) + 1, KvModel::Values(static_cast<std::size_t>(block_size), 0)) {}

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
      const KvModel::Values values = fresh_values(operation.num_more);
      const std::int64_t total = manager_.reserved_tokens(operation.sequence) + operation.num_more;
      const bool fits = manager_.plan_reserve(operation.sequence, total);
      if (fits != planned.try_reserve(operation.sequence, values))
        note(cat("plan_reserve of sequence ", operation.sequence, " to ", total, " tokens gave ", fits));
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
  } else {
    manager_.begin_plan();
  }
  compare();
}

/// What an executor does: edits, appends, copies, then the writes.
void KvChecker::apply(const KvChanges& changes, const std::vector<KvReservation>& reservations,
                      const std::map<SequenceId, KvModel::Values>& written) {
  for (const TableEdit& edit : changes.table_edits)
    mirror_.at(edit.sequence).at(static_cast<std::size_t>(edit.index)) = edit.block;
  for (const KvReservation& row : reservations) {
    const auto first = changes.new_blocks.begin() + row.new_blocks_offset;
    std::vector<BlockId>& table = mirror_[row.sequence];
    table.insert(table.end(), first, first + row.num_new_blocks);
  }
  for (const BlockCopy& copy : changes.copies) slots_.at(copy.to.value) = slots_.at(copy.from.value);
  if (reservations.size() != written.size()) note(cat(reservations.size(), " reservations for ", written.size()));
  for (const KvReservation& row : reservations) {
    const KvModel::Values& values = written.at(row.sequence);
    const std::int64_t end = manager_.reserved_tokens(row.sequence);
    const std::int64_t begin = end - static_cast<std::int64_t>(values.size());
    for (std::int64_t p = begin; p < end; ++p)
      slots_.at(mirror_.at(row.sequence).at(static_cast<std::size_t>(p / block_size_)).value)
          .at(static_cast<std::size_t>(p % block_size_)) = values[static_cast<std::size_t>(p - begin)];
  }
}

void KvChecker::fork(SequenceId parent, SequenceId child) {
  manager_.fork(parent, child, manager_.reserved_tokens(parent));
  model_.fork(parent, child);
  mirror_[child] = mirror_.at(parent);
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
  const BlockTable* table = manager_.find_table(sequence);
  const KvModel::Sequence& model = model_.sequences.at(sequence);
  if (!table) return note(cat("sequence ", sequence, " is missing"));
  if (table->blocks != mirror_[sequence]) return note(cat("table of sequence ", sequence, " is not what plans said"));
  if (table->num_tokens != model.num_tokens || table->blocks.size() != model.blocks.size())
    return note(cat("sequence ", sequence, " has ", table->num_tokens, " tokens, model ", model.num_tokens));
  const KvModel::Values expected = model_.values_of(sequence);
  for (std::size_t p = 0; p < expected.size(); ++p) {
    const BlockId block = table->blocks[p / static_cast<std::size_t>(block_size_)];
    if (slots_.at(block.value)[p % static_cast<std::size_t>(block_size_)] != expected[p])
      return note(cat("sequence ", sequence, " reads a foreign value at position ", p));
  }
  for (std::size_t i = 0; i < model.blocks.size(); ++i)
    if (manager_.pool().ref_count(table->blocks[i]) != model_.ref_count(model.blocks[i]))
      return note(cat("block ", table->blocks[i], " has ", manager_.pool().ref_count(table->blocks[i]), " references"));
}

}  // namespace quire
