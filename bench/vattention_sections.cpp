#include "bench/vattention_sections.h"

#include "bench/attention_case.h"
#include "bench/measure.h"
#include "quire/attention/contiguous_attention.h"
#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/kv/page_groups.h"

namespace quire::bench {
namespace {

using attention::KvLayout;
using attention::VirtualKvStore;

constexpr std::int64_t kMemory = std::int64_t{192} << 20;  ///< read by one decode step: more than the caches hold
constexpr std::int64_t kGroupSizes[] = {64 << 10, 256 << 10, 2 << 20};

std::string size_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? cat(bytes >> 10, " KiB") : cat(bytes >> 20, " MiB");
}

/// The shape of a pool's layers, in tiles.
KvLayout tiled(KvLayout layout) {
  layout.block_size = attention::kTileTokens;
  return layout;
}

Result<std::unique_ptr<VirtualKvStore>> make_store(const KvLayout& layout, std::int64_t group_bytes,
                                                   std::int64_t sequences, std::int64_t context) {
  const PageGroupGeometry geometry{VirtualKvStore::tile_bytes(layout), group_bytes, 1};
  return VirtualKvStore::create({layout, group_bytes, sequences * geometry.groups_for(context), sequences, context});
}

/// What AttentionCase is for blocks: the same sequences and values, in places.
class ContiguousCase {
 public:
  static Result<std::unique_ptr<ContiguousCase>> create(const KvPool& pool, std::int64_t queries) {
    auto made = std::unique_ptr<ContiguousCase>(new ContiguousCase(pool, queries));
    const KvLayout layout = tiled(pool.store().layout());
    QUIRE_TRY(made->store_, make_store(layout, 2 << 20, pool.sequences(), pool.context()));
    VirtualKvStore& store = *made->store_;
    const PageGroupGeometry geometry{store.tile_bytes(), 2 << 20, 1};
    const std::int64_t groups = geometry.groups_for(pool.context());
    for (std::int64_t s = 0; s < pool.sequences(); ++s) {
      store.map({s, 0, groups, s * groups});
      auto* words = reinterpret_cast<std::uint32_t*>(store.k_panel(0, s, 0, 0));
      const std::int64_t count = PageGroupGeometry::num_tiles(pool.context()) * store.tile_bytes() / 4;
      for (std::int64_t i = 0; i < count; ++i) words[i] = 0x2C002C00u | (static_cast<std::uint32_t>(i) & 0x83FF83FFu);
      attention::SequenceChunk chunk;
      chunk.first_position = pool.context() - queries;
      chunk.num_tokens = queries;
      chunk.first_row = s * queries;
      chunk.place = s;
      made->chunks_.push_back(chunk);
    }
    return made;
  }

  void run(ThreadPool& threads, CpuTier tier) {
    const AttentionShape& shape = pool_.shape();
    const std::int64_t width = shape.heads * shape.head_dim;
    plan_.make(store_->layout(), {chunks_, shape.heads, 0, threads.num_threads()});
    const attention::AttentionCall call = {chunks_,     q_.data(), out_.data(), width, width,
                                           shape.heads, 0.125f,    0,           &plan_};
    threads.run([&](Worker& worker) {
      for (std::int64_t layer = 0; layer < store_->layout().num_layers; ++layer)
        attention::contiguous_attention(worker, tier, *store_, layer, call, scratch_);
    });
    keep(out_[0]);
  }

 private:
  ContiguousCase(const KvPool& pool, std::int64_t queries) : pool_(pool) {
    const std::int64_t width = pool.shape().heads * pool.shape().head_dim;
    q_.assign(static_cast<std::size_t>(pool.sequences() * queries * width), 0.5f);
    out_.resize(q_.size());
  }

  const KvPool& pool_;
  std::unique_ptr<VirtualKvStore> store_;
  std::vector<attention::SequenceChunk> chunks_;
  std::vector<float> q_, out_;
  attention::AttentionPlan plan_;
  attention::AttentionScratch scratch_;
};

struct Load {
  std::string_view name;
  std::int64_t sequences, context, queries, bytes;
};

/// SmolLM2's KV in f16: thirty layers.
KvLayout smol() { return {30, 3, 64, attention::kTileTokens, attention::KvType::f16}; }

}  // namespace

Result<void> paged_against_contiguous(const Options& options, report::Report& report) {
  ThreadPool threads(options.threads);
  for (const Load& load : {Load{"decode, 1 x 4096", 1, 4096, 1, kMemory}, Load{"decode, 8 x 1024", 8, 1024, 1, kMemory},
                           Load{"prefill, 1 x 1024", 1, 1024, 1024, 1}}) {
    const KvPool pool({}, load.sequences, load.context, load.bytes);
    AttentionCase paged(pool, BlockOrder::random, {.queries = load.queries});
    QUIRE_TRY(const auto contiguous, ContiguousCase::create(pool, load.queries));
    const auto figures = run_rounds(
        options.rounds,
        {[&] { return 1 / seconds_per_call(options.seconds, [&] { paged.run(threads, options.tier); }); },
         [&] { return 1 / seconds_per_call(options.seconds, [&] { contiguous->run(threads, options.tier); }); }});
    report.rows.push_back(report::make_row(
        {cat("paged attention, blocks of 16 in random order, ", load.name), "calls/s", report::at_least(0.95)},
        figures[0], "contiguous (vAttention)", figures[1]));
  }
  return {};
}

Result<void> page_group_mapping(const Options& options, report::Report& report) {
  const std::int64_t tile_bytes = VirtualKvStore::tile_bytes(smol());
  for (std::int64_t bytes : kGroupSizes) {
    const PageGroupGeometry geometry{tile_bytes, bytes, 1};
    const std::int64_t num_groups = geometry.groups_for(2048);
    QUIRE_TRY(const auto store, make_store(smol(), bytes, 1, 2048));
    double unmap_seconds = 0;
    const auto map_all = [&] {
      const double seconds = seconds_of([&] {
        for (std::int64_t i = 0; i < num_groups; ++i) store->map({0, i, 1, i});
      });
      unmap_seconds = seconds_of([&] {
        for (std::int64_t i = 0; i < num_groups; ++i) store->unmap(0, 1);
      });
      return seconds / static_cast<double>(num_groups) * 1e6;
    };
    std::vector<double> maps, unmaps, tokens;
    for (int round = 0; round < options.rounds; ++round) {
      maps.push_back(map_all());
      unmaps.push_back(unmap_seconds / static_cast<double>(num_groups) * 1e6);
      tokens.push_back(maps.back() * 1e3 * static_cast<double>(num_groups) / 2048);
    }
    report.rows.push_back(report::make_row({cat("map a page-group of ", size_text(bytes)), "us"}, maps));
    report.rows.push_back(report::make_row({cat("unmap a page-group of ", size_text(bytes)), "us"}, unmaps));
    report.rows.push_back(report::make_row({cat("mapping, page-groups of ", size_text(bytes)), "ns/token"}, tokens));
  }
  return {};
}

// 1 to 1,000 tokens each, in SmolLM2's layout.
Result<void> page_group_memory(const Options&, report::Report& report) {
  const std::int64_t tile_bytes = VirtualKvStore::tile_bytes(smol());
  const std::int64_t token_bytes = tile_bytes / kKvTileTokens;
  Rng rng(3);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 100; ++i) lengths.push_back(rng.between(1, 1000));
  std::int64_t paged = 0;
  for (std::int64_t length : lengths) paged += round_up(length, 16) * token_bytes;
  for (std::int64_t bytes : kGroupSizes) {
    const PageGroupGeometry geometry{tile_bytes, bytes, 1};
    std::int64_t held = 0;
    for (std::int64_t length : lengths) held += geometry.groups_for(length) * bytes;
    report.rows.push_back(report::make_row({cat("memory held, page-groups of ", size_text(bytes)), "MiB"},
                                           {static_cast<double>(held) / (1 << 20)}, "paged, blocks of 16",
                                           {static_cast<double>(paged) / (1 << 20)}));
  }
  return {};
}

}  // namespace quire::bench
