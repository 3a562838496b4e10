#include "quire/sim/block_film.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/batch_plan.h"

namespace quire {

void BlockOwners::give(BlockId block, RequestId request) {
  if (owners_.size() <= block.value) owners_.resize(std::size_t{block.value} + 1);
  owners_[block.value] = request;
}

void BlockOwners::note(const BatchPlan& plan) {
  for (const PlanRow& row : plan.rows) {
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i)
      give(plan.new_blocks[static_cast<std::size_t>(row.new_blocks_offset + i)], row.request);
    for (const TableEdit& edit : plan.table_edits)
      if (edit.sequence == row.sequence) give(edit.block, row.request);
  }
}

void BlockOwners::look(const KvManager& kv, std::vector<BlockCell>& cells) const {
  cells.clear();
  const auto* paged = dynamic_cast<const PagedKvManager*>(&kv);
  if (!paged) return;
  const BlockPool& pool = paged->pool();
  cells.resize(static_cast<std::size_t>(pool.num_blocks()));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const BlockId block{static_cast<std::uint32_t>(i + 1)};
    const std::int32_t count = pool.ref_count(block);
    if (count == 0 && !pool.is_keyed(block)) continue;
    cells[i].use = count == 0 ? BlockUse::cached : count == 1 ? BlockUse::held : BlockUse::shared;
    if (block.value < owners_.size()) cells[i].owner = owners_[block.value];
  }
}

BlockFilmRecorder::BlockFilmRecorder(std::int32_t num_blocks, std::int32_t block_size) {
  film_.num_blocks = num_blocks;
  film_.block_size = block_size;
  film_.block_stride = static_cast<std::int32_t>(std::max<std::int64_t>(1, ceil_div(num_blocks, kMaxBlocks)));
}

std::size_t BlockFilmRecorder::blocks_seen() const {
  return static_cast<std::size_t>(ceil_div(film_.num_blocks, film_.block_stride));
}

void BlockFilmRecorder::look(std::uint64_t begin_ns, std::span<const BlockCell> cells) {
  QUIRE_CHECK(cells.size() == static_cast<std::size_t>(film_.num_blocks), "the pool has ", film_.num_blocks, " blocks");
  if (wants_look()) {
    moments_.push_back(begin_ns);
    for (std::size_t i = 0; i < cells.size(); i += static_cast<std::size_t>(film_.block_stride))
      cells_.push_back(cells[i]);
    if (cells_.size() > kMaxCells) halve();
  }
  ++num_steps_;
}

void BlockFilmRecorder::halve() {
  const std::size_t row = blocks_seen();
  for (std::size_t i = 0; 2 * i < moments_.size(); ++i) {
    moments_[i] = moments_[2 * i];
    std::copy_n(cells_.begin() + static_cast<std::ptrdiff_t>(2 * i * row), row,
                cells_.begin() + static_cast<std::ptrdiff_t>(i * row));
  }
  moments_.resize((moments_.size() + 1) / 2);
  cells_.resize(moments_.size() * row);
  film_.step_stride *= 2;
}

BlockFilm BlockFilmRecorder::take(std::uint64_t end_ns) {
  const std::size_t row = blocks_seen();
  moments_.push_back(end_ns);
  for (std::size_t place = 0; place < row; ++place) {
    for (std::size_t i = 0; i + 1 < moments_.size(); ++i) {
      const BlockCell& cell = cells_[i * row + place];
      if (cell.use == BlockUse::free) continue;
      const auto block = static_cast<std::int32_t>(place) * film_.block_stride;
      BlockSpan* last = film_.spans.empty() ? nullptr : &film_.spans.back();
      if (last && last->block == block && last->cell == cell && last->end_ns == moments_[i]) {
        last->end_ns = moments_[i + 1];
      } else if (moments_[i] < moments_[i + 1]) {
        film_.spans.push_back({block, cell, moments_[i], moments_[i + 1]});
      }
    }
  }
  return std::move(film_);
}

}  // namespace quire
