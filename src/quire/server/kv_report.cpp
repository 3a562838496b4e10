#include "quire/server/kv_report.h"

#include "quire/json/json.h"

namespace quire::server {
namespace {

template <class Number>
double share(Number part, Number whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void report_outcomes(std::string_view name, const std::array<std::uint64_t, kNumTransferOutcomes>& counts,
                     json::Writer& w) {
  w.key(name).begin_object();
  for (std::size_t i = 0; i < counts.size(); ++i) w.field(to_string(static_cast<TransferOutcome>(i)), counts[i]);
  w.end_object();
}

void report_tiers(const engine::KvStats& kv, json::Writer& w) {
  const KvTierCounters& tiers = kv.tiers;
  w.key("ram_tier").begin_object();
  w.field("bytes", kv.ram_bytes).field("blocks", tiers.frames_total).field("keyed", tiers.frames_keyed);
  w.field("private", tiers.frames_private).field("stored_blocks", tiers.blocks_stored);
  w.field("loaded_blocks", tiers.blocks_loaded).field("lost_blocks", tiers.blocks_lost);
  w.field("evicted_blocks", tiers.frames_evicted).end_object();
  w.key("file_tier").begin_object();
  w.field("bytes", kv.file_bytes).field("files", tiers.files_known).field("removed_files", tiers.files_removed);
  w.field("writes_waiting", tiers.writes_waiting).field("writes_given_up", tiers.writes_given_up);
  report_outcomes("writes", tiers.writes, w);
  report_outcomes("reads", tiers.reads, w);
  w.end_object();
}

}  // namespace

std::string kv_report(const engine::EngineStats& stats) {
  const engine::KvStats& kv = stats.kv;
  const std::int64_t used_slots = stats.blocks_used * kv.block_size;
  const std::int64_t saved_blocks = kv.table_entries - stats.blocks_used;
  std::string out;
  json::Writer w(out);
  w.begin_object();
  w.field("manager", kv.manager).field("block_size", kv.block_size).field("block_bytes", kv.block_bytes);
  w.key("blocks").begin_object();
  w.field("total", stats.blocks_total).field("used", stats.blocks_used).field("cached", stats.blocks_cached);
  w.field("free", stats.blocks_total - stats.blocks_used - stats.blocks_cached).end_object();
  w.key("bytes").begin_object();
  w.field("total", stats.blocks_total * kv.block_bytes).field("used", stats.blocks_used * kv.block_bytes).end_object();
  w.key("fragmentation").begin_object();
  w.field("unfilled_slots", kv.unfilled_slots).field("internal", share(kv.unfilled_slots, used_slots));
  w.field("external", 0).end_object();  // any free block serves any sequence
  w.key("sharing").begin_object();
  w.field("table_entries", kv.table_entries).field("saved_blocks", saved_blocks);
  w.field("saved_bytes", saved_blocks * kv.block_bytes).field("saved", share(saved_blocks, kv.table_entries));
  w.field("copied_blocks", kv.copied_blocks).end_object();
  w.key("prefix_cache").begin_object();
  w.field("enabled", kv.prefix_cache).field("queried_tokens", stats.prefix_queries);
  w.field("hit_tokens", stats.prefix_hits).field("hit_rate", share(stats.prefix_hits, stats.prefix_queries));
  w.field("evicted_blocks", stats.prefix_evictions).end_object();
  if (kv.manager == "vattention") {
    w.key("page_groups").begin_object();
    w.field("held", stats.blocks_used).field("spare", kv.spare_blocks).field("unmapped", kv.unmapped_blocks);
    w.field("mappings", kv.mappings).field("maps", kv.maps).field("ahead_maps", kv.ahead_maps);
    w.field("unmaps", kv.unmaps).field("refused_maps", kv.refused_maps).end_object();
  }
  w.key("requests").begin_object();
  w.field("running", stats.running).field("waiting", stats.waiting).field("preempted", kv.preempted).end_object();
  w.key("preemptions").begin_object();
  w.field("total", stats.preemptions).field("recomputed_tokens", kv.recomputed_tokens);
  w.key("by_kind").begin_object();
  for (std::size_t i = 0; i < kv.preemptions_by.size(); ++i)
    w.field(to_string(static_cast<PreemptionKind>(i)), kv.preemptions_by[i]);
  w.end_object().end_object();
  report_tiers(kv, w);
  w.end_object();
  return out;
}

}  // namespace quire::server
