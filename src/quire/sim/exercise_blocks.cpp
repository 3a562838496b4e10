#include "quire/sim/exercise_blocks.h"

#include <algorithm>

#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

constexpr int kKey = 0, kValue = 1;

float expected(RequestId request, std::int32_t position, int part, std::int32_t element) {
  const std::uint64_t bits =
      random_at(request.value, static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(2 * element + part));
  return static_cast<float>(unit_interval(bits));
}

void fill(std::span<float> slot, RequestId request, std::int32_t position, int part) {
  for (std::size_t i = 0; i < slot.size(); ++i)
    slot[i] = expected(request, position, part, static_cast<std::int32_t>(i));
}

}  // namespace

ExerciseBlocks::ExerciseBlocks(std::int32_t num_blocks, std::int32_t block_size, BlockFile& file)
    : block_size_(block_size), file_(file), tables_(block_size) {
  values_.resize((static_cast<std::size_t>(num_blocks) + 1) * floats_per_block());
}

std::span<float> ExerciseBlocks::slot(SequenceId sequence, std::int32_t position, int part) {
  const BlockId block = tables_.table(sequence)[static_cast<std::size_t>(position / block_size_)];
  const auto in_block = static_cast<std::size_t>((part * block_size_ + position % block_size_) * kExerciseWidth);
  return std::span(values_).subspan(block.value * floats_per_block() + in_block, kExerciseWidth);
}

std::span<const float> ExerciseBlocks::slot(SequenceId sequence, std::int32_t position, int part) const {
  return const_cast<ExerciseBlocks*>(this)->slot(sequence, position, part);
}

Result<void> ExerciseBlocks::spill(RequestId request, SequenceId sequence, std::int32_t num_tokens) {
  const auto num_blocks = static_cast<std::size_t>(ceil_div(num_tokens, block_size_));
  buffer_.clear();
  for (BlockId block : tables_.table(sequence).first(num_blocks)) {
    const auto content = std::span(values_).subspan(block.value * floats_per_block(), floats_per_block());
    buffer_.insert(buffer_.end(), content.begin(), content.end());
  }
  const auto bytes = std::as_bytes(std::span(buffer_));
  QUIRE_TRY(const std::uint64_t at, file_.write(bytes));
  bytes_written_ += bytes.size();
  spilled_[request] = {at, num_tokens};
  return {};
}

Result<void> ExerciseBlocks::restore(const PlanRow& row, const Spilled& spilled) {
  const auto num_blocks = static_cast<std::size_t>(ceil_div(spilled.num_tokens, block_size_));
  buffer_.assign(num_blocks * floats_per_block(), 0.0f);
  const auto bytes = std::as_writable_bytes(std::span(buffer_));
  QUIRE_TRY_VOID(file_.read(spilled.at, bytes));
  bytes_read_ += bytes.size();
  blocks_restored_ += num_blocks;
  const auto table = tables_.table(row.sequence);
  for (std::size_t i = 0; i < num_blocks; ++i)
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(i * floats_per_block()), floats_per_block(),
                values_.begin() + static_cast<std::ptrdiff_t>(table[i].value * floats_per_block()));
  return check(row.request, row.sequence, spilled.num_tokens);
}

Result<void> ExerciseBlocks::apply(const BatchPlan& plan) {
  tables_.apply(plan);
  for (const PlanRow& row : plan.rows) {
    std::int32_t first = row.begin;
    if (const auto found = spilled_.find(row.request); found != spilled_.end()) {
      QUIRE_CHECK(row.begin == 0 && row.end() >= found->second.num_tokens, "a spilled request comes back in one piece");
      QUIRE_TRY_VOID(restore(row, found->second));
      first = found->second.num_tokens;
      spilled_.erase(found);
    }
    for (std::int32_t position = first; position < row.end(); ++position)
      for (int part : {kKey, kValue}) fill(slot(row.sequence, position, part), row.request, position, part);
  }
  return {};
}

Result<void> ExerciseBlocks::check(RequestId request, SequenceId sequence, std::int32_t num_tokens) const {
  for (std::int32_t position = 0; position < num_tokens; ++position)
    for (int part : {kKey, kValue}) {
      const auto found = slot(sequence, position, part);
      for (std::int32_t i = 0; i < kExerciseWidth; ++i) {
        const float wanted = expected(request, position, part, i);
        if (found[static_cast<std::size_t>(i)] != wanted)
          return fail("request ", request, ", position ", position, ", ", part == kKey ? "K" : "V", "[", i, "]: found ",
                      found[static_cast<std::size_t>(i)], " in its blocks, wanted ", wanted);
      }
    }
  return {};
}

}  // namespace quire
