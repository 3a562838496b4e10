#include "bench/attention_case.h"

#include <algorithm>

#include "bench/measure.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire::bench {

using attention::KvLayout;
using attention::KvStore;

KvPool::KvPool(const AttentionShape& shape, std::int64_t sequences, std::int64_t context, std::int64_t bytes)
    : shape_(shape), sequences_(sequences), context_(context) {
  KvLayout layout{1, shape.kv_heads, shape.head_dim, shape.block_size, shape.type};
  const std::int64_t layer_bytes = sequences * context * 2 * shape.kv_heads * layout.token_bytes();
  layout.num_layers = std::clamp<std::int64_t>(ceil_div(bytes, layer_bytes), 1, 256);
  store_ = std::make_unique<KvStore>(layout, 1 + sequences * ceil_div(context, shape.block_size));
  // Finite values of magnitude below 1 in every format.
  auto memory = store_->memory();
  auto* words = reinterpret_cast<std::uint32_t*>(memory.data());
  for (std::size_t i = 0; i < memory.size() / 4; ++i) {
    words[i] = 0x2C002C00u | (static_cast<std::uint32_t>(i) & 0x83FF83FFu);
  }
}

std::int64_t KvPool::bytes_read() const {
  const KvLayout& layout = store_->layout();
  return sequences_ * context_ * 2 * layout.num_kv_heads * layout.num_layers * layout.token_bytes();
}

std::vector<std::vector<BlockId>> KvPool::tables(BlockOrder order) const {
  std::vector<BlockId> ids;
  for (std::int64_t i = 1; i < store_->num_blocks(); ++i) ids.push_back(BlockId{static_cast<std::uint32_t>(i)});
  Rng rng(7);
  for (std::size_t i = ids.size(); order == BlockOrder::random && i > 1; --i) std::swap(ids[i - 1], ids[rng() % i]);
  const std::size_t each = ids.size() / static_cast<std::size_t>(sequences_);
  std::vector<std::vector<BlockId>> tables;
  for (std::size_t s = 0; s < static_cast<std::size_t>(sequences_); ++s) {
    tables.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(s * each),
                        ids.begin() + static_cast<std::ptrdiff_t>((s + 1) * each));
  }
  return tables;
}

AttentionCase::AttentionCase(const KvPool& pool, BlockOrder order, const Work& work)
    : pool_(pool), work_(work), tables_(pool.tables(order)) {
  const std::int64_t queries = work.queries;
  for (auto& table : tables_)
    std::copy_n(tables_.front().begin(), work.shared / pool.shape().block_size, table.begin());
  for (std::int64_t s = 0; s < pool.sequences(); ++s) {
    chunks_.push_back({tables_[static_cast<std::size_t>(s)], pool.context() - queries, queries, s * queries});
  }
  const std::int64_t width = pool.shape().heads * pool.shape().head_dim;
  q_.assign(static_cast<std::size_t>(pool.sequences() * queries * width), 0.5f);
  out_.resize(q_.size());
}

void AttentionCase::run(ThreadPool& threads, CpuTier tier) {
  const AttentionShape& shape = pool_.shape();
  const std::int64_t width = shape.heads * shape.head_dim;
  plan_.make(pool_.store().layout(), {chunks_, shape.heads, 0, threads.num_threads(), work_.cascade});
  const attention::AttentionCall call = {chunks_, q_.data(), out_.data(), width, width, shape.heads, 0.125f, 0, &plan_};
  threads.run([&](Worker& worker) {
    for (std::int64_t layer = 0; layer < pool_.store().layout().num_layers; ++layer) {
      paged_attention(worker, tier, pool_.store(), layer, call, scratch_);
    }
  });
  keep(out_[0]);
}

double AttentionCase::operations() const {
  const std::int64_t queries = work_.queries, before = pool_.context() - queries;
  const std::int64_t pairs = queries * before + queries * (queries + 1) / 2;  // a query and a position it sees
  const std::int64_t width = pool_.shape().heads * pool_.shape().head_dim;
  return 2.0 * 2 * static_cast<double>(pairs * width * pool_.sequences() * pool_.store().layout().num_layers);
}

}  // namespace quire::bench
