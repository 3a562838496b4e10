#include "quire/server/kv_report.h"

#include "quire/json/json.h"

namespace quire::server {
namespace {

template <class Number>
double share(Number part, Number whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
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
  w.key("requests").begin_object();
  w.field("running", stats.running).field("waiting", stats.waiting).field("preempted", kv.preempted).end_object();
  w.key("preemptions").begin_object();
  w.field("total", stats.preemptions).field("recomputed_tokens", kv.recomputed_tokens).end_object();
  w.end_object();
  return out;
}

}  // namespace quire::server
