#pragma once
// ServerMetrics: what GET /metrics shows, in the Prometheus text format 0.0.4. Names begin with quire_, times are in
// seconds, counters end in _total. Everything about the engine carries one label, `model`; no label ever comes from a
// request.
//
//   gauges      quire_requests_running, quire_requests_waiting, quire_kv_blocks_used, quire_kv_blocks_cached,
//               quire_kv_blocks, quire_kv_table_entries (blocks counted for every sequence that holds them),
//               quire_kv_unfilled_slots, quire_kv_ram_blocks, quire_kv_ram_bytes, quire_kv_files,
//               quire_kv_file_bytes, quire_http_connections, quire_ready
//   counters    quire_engine_steps_total, quire_engine_step_seconds_total, quire_prompt_tokens_total,
//               quire_generated_tokens_total, quire_computed_tokens_total, quire_preemptions_total,
//               quire_recomputed_tokens_total, quire_speculative_proposed_tokens_total and
//               quire_speculative_accepted_tokens_total (speculative decoding),
//               quire_attention_shared_positions_total and quire_attention_unshared_positions_total (cascade: positions
//               of all layers that were walked once for several sequences, and what that would be for each alone),
//               quire_kv_copied_blocks_total,
//               quire_prefix_cache_queries_total and quire_prefix_cache_hits_total (both in tokens),
//               quire_prefix_cache_evictions_total (in blocks),
//               quire_requests_finished_total{reason = stop | length | cancelled | timed_out | failed},
//               quire_requests_refused_total{reason = invalid | overloaded | stopping},
//               quire_http_requests_total{route, status}, quire_unknown_request_fields_total{route}
//               quire_preemptions_by_kind_total{kind = swap | recompute_...: sched/preemption.h},
//               quire_kv_tier_blocks_total{what = stored | loaded | lost | evicted} (the RAM tier's),
//               quire_kv_file_reads_total{outcome}, quire_kv_file_writes_total{outcome}: kv/tier_changes.h,
//               quire_kv_files_removed_total (to stay within the budget)
//   histograms  quire_queue_seconds (submit to first step), quire_prefill_seconds (first step to first token),
//               quire_decode_seconds (first token to end), quire_time_to_first_token_seconds,
//               quire_request_seconds (submit to end), quire_inter_token_seconds (as delivered to the server's streams)
//
// Thread-safety: all methods may be called from any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire::metrics {

/// A counter of a family, by the value of its only label.
struct LabelledCount {
  std::string_view label;
  std::uint64_t count;
};

/// The engine's own numbers at one moment. Those marked as counters only rise.
struct EngineSnapshot {
  std::int64_t running = 0, waiting = 0;
  std::int64_t blocks_used = 0, blocks_total = 0, blocks_cached = 0;
  std::int64_t kv_block_size = 0, kv_table_entries = 0, kv_unfilled_slots = 0;
  std::uint64_t steps = 0, step_ns = 0;                                         // counters
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;       // counters
  std::uint64_t proposed_tokens = 0, accepted_tokens = 0;                       // counters
  std::uint64_t shared_positions = 0, unshared_positions = 0;                   // counters
  std::uint64_t computed_tokens = 0, recomputed_tokens = 0, copied_blocks = 0;  // counters
  std::uint64_t prefix_queries = 0, prefix_hits = 0, prefix_evictions = 0;      // counters
  std::uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_timed_out = 0,
                finished_failed = 0;  // counters
  std::uint64_t ram_blocks = 0, ram_bytes = 0, files = 0, file_bytes = 0;
  std::uint64_t files_removed = 0;                                                       // a counter
  std::vector<LabelledCount> preemptions_by_kind, tier_blocks, file_reads, file_writes;  // counters
};

struct RequestTimes {
  std::uint64_t queue_ns = 0, prefill_ns = 0, decode_ns = 0;
  bool had_first_token = false;
};

enum class RefusalReason { invalid, overloaded, stopping };

class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model);
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  /// `route` is a name from the server's own table, or "other".
  void count_http_request(std::string_view route, int status);
  void count_unknown_fields(std::string_view route, std::size_t count);
  void count_refusal(RefusalReason reason);
  void observe_request(const RequestTimes& times);
  void observe_inter_token(double seconds);
  void set_connections(std::int64_t count);
  void set_ready(bool ready);

  /// Takes the engine's numbers over and prints everything.
  std::string text(const EngineSnapshot& engine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::metrics
