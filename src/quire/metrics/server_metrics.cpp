#include "quire/metrics/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <sstream>

namespace quire::metrics {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr double kNanosecond = 1e-9;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * kNanosecond; }

// From a short prompt on a small model to a long queue before a large one.
Buckets request_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000};
}

Buckets token_buckets() {
  return {0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5};
}

}  // namespace

struct ServerMetrics::State {
  explicit State(std::string model_name) : model(std::move(model_name)) {}

  Gauge& gauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Labels({{"model", model}}).Register(registry).Add({});
  }
  Counter& counter(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Labels({{"model", model}}).Register(registry).Add({});
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return BuildHistogram().Name(name).Help(help).Labels({{"model", model}}).Register(registry).Add({}, buckets);
  }
  prometheus::Family<Counter>& counters(const char* name, const char* help, bool with_model) {
    auto builder = BuildCounter().Name(name).Help(help);
    if (with_model) builder.Labels({{"model", model}});
    return builder.Register(registry);
  }

  /// Raises the counter to the engine's value, which only rises.
  static void raise(Counter& counter, double value) {
    double step = value - counter.Value();
    if (step > 0) counter.Increment(step);
  }

  static void raise(prometheus::Family<Counter>& family, const char* label, const std::vector<LabelledCount>& counts) {
    for (const auto& [value, count] : counts)
      raise(family.Add({{label, std::string(value)}}), static_cast<double>(count));
  }

  std::string model;
  prometheus::Registry registry;
  std::mutex mutex;  ///< over raise(): two scrapes at once must not both add the difference

  Gauge& running = gauge("quire_requests_running", "Requests that take part in steps.");
  Gauge& waiting = gauge("quire_requests_waiting", "Requests in the queue.");
  Gauge& blocks_used = gauge("quire_kv_blocks_used", "KV blocks held by requests.");
  Gauge& blocks_cached =
      gauge("quire_kv_blocks_cached", "KV blocks that nobody holds, with content that a request may find.");
  Gauge& blocks_free = gauge("quire_kv_blocks_free", "KV blocks without content.");
  Gauge& blocks_total = gauge("quire_kv_blocks", "KV blocks in the pool.");
  Gauge& kv_table_entries =
      gauge("quire_kv_table_entries", "KV blocks held, counted once for every sequence that holds them.");
  Gauge& kv_blocks_saved =
      gauge("quire_kv_blocks_saved", "KV blocks that sharing saves: table entries less held blocks.");
  Gauge& kv_unfilled_slots = gauge("quire_kv_unfilled_slots", "Token slots of held KV blocks without a token.");
  prometheus::Family<Gauge>& kv_fragmentation =
      BuildGauge()
          .Name("quire_kv_fragmentation_ratio")
          .Help("Internal: unfilled share of held KV slots. External: share of free KV memory that no request can use.")
          .Labels({{"model", model}})
          .Register(registry);
  Gauge& internal_fragmentation = kv_fragmentation.Add({{"kind", "internal"}});
  Gauge& external_fragmentation = kv_fragmentation.Add({{"kind", "external"}});  // 0: any free block serves anybody
  Gauge& ram_blocks = gauge("quire_kv_ram_blocks", "Blocks whose content the RAM tier has.");
  Gauge& ram_bytes = gauge("quire_kv_ram_bytes", "Size of the RAM tier.");
  Gauge& files = gauge("quire_kv_files", "Block files that are believed to be there.");
  Gauge& file_bytes = gauge("quire_kv_file_bytes", "Size of all block files.");
  Counter& files_removed = counter("quire_kv_files_removed_total", "Block files removed to stay within the budget.");
  prometheus::Family<Counter>& preemptions_by_kind =
      counters("quire_preemptions_by_kind_total", "Preemptions by what became of the content.", true);
  prometheus::Family<Counter>& tier_blocks = counters(
      "quire_kv_tier_blocks_total", "Blocks stored in, loaded from, lost to and evicted from the RAM tier.", true);
  prometheus::Family<Counter>& file_reads =
      counters("quire_kv_file_reads_total", "Block files read, by outcome.", true);
  prometheus::Family<Counter>& file_writes =
      counters("quire_kv_file_writes_total", "Block files written, by outcome.", true);
  Gauge& ready = gauge("quire_ready", "1 if new requests are taken, 0 while loading or draining.");
  Gauge& connections = gauge("quire_http_connections", "Open client connections.");
  Counter& steps = counter("quire_engine_steps_total", "Steps of the engine.");
  Counter& step_seconds = counter("quire_engine_step_seconds_total", "Time spent in steps.");
  Counter& prompt_tokens = counter("quire_prompt_tokens_total", "Prompt tokens of requests.");
  Counter& generated_tokens = counter("quire_generated_tokens_total", "Tokens sampled.");
  Counter& computed_tokens = counter("quire_computed_tokens_total", "Tokens computed in steps.");
  Counter& proposed_tokens =
      counter("quire_speculative_proposed_tokens_total", "Speculative decoding: tokens proposed.");
  Counter& accepted_tokens =
      counter("quire_speculative_accepted_tokens_total", "Speculative decoding: proposed tokens that came true.");
  Counter& shared_positions = counter("quire_attention_shared_positions_total",
                                      "Positions, over all layers, that attention walked once for several sequences.");
  Counter& unshared_positions =
      counter("quire_attention_unshared_positions_total", "The same positions, counted for each of these sequences.");
  Counter& recomputed_tokens = counter("quire_recomputed_tokens_total", "Tokens computed again after a preemption.");
  Counter& copied_blocks =
      counter("quire_kv_copied_blocks_total", "KV blocks copied: on write, or since they were cached in part.");
  Counter& prefix_queries = counter("quire_prefix_cache_queries_total", "Tokens looked up in the prefix cache.");
  Counter& prefix_hits = counter("quire_prefix_cache_hits_total", "Tokens found in the prefix cache.");
  Counter& prefix_evictions =
      counter("quire_prefix_cache_evictions_total", "Cached KV blocks given up for new content.");
  Counter& preemptions = counter("quire_preemptions_total", "Requests preempted for want of KV blocks.");
  prometheus::Family<Counter>& finished = counters("quire_requests_finished_total", "Requests ended, by reason.", true);
  Counter& finished_stop = finished.Add({{"reason", "stop"}});
  Counter& finished_length = finished.Add({{"reason", "length"}});
  Counter& finished_cancelled = finished.Add({{"reason", "cancelled"}});
  Counter& finished_timed_out = finished.Add({{"reason", "timed_out"}});
  Counter& finished_failed = finished.Add({{"reason", "failed"}});
  prometheus::Family<Counter>& refused =
      counters("quire_requests_refused_total", "Requests refused by the engine, by reason.", true);
  Counter& refused_invalid = refused.Add({{"reason", "invalid"}});
  Counter& refused_overloaded = refused.Add({{"reason", "overloaded"}});
  Counter& refused_stopping = refused.Add({{"reason", "stopping"}});
  prometheus::Family<Counter>& http =
      counters("quire_http_requests_total", "HTTP requests answered, by route and status.", false);
  prometheus::Family<Counter>& unknown =
      counters("quire_unknown_request_fields_total", "Request fields that were ignored, by route.", false);
  Histogram& queue = histogram("quire_queue_seconds", "From submit to the first step.", request_buckets());
  Histogram& prefill = histogram("quire_prefill_seconds", "From the first step to the first token.", request_buckets());
  Histogram& decode = histogram("quire_decode_seconds", "From the first token to the end.", request_buckets());
  Histogram& first_token =
      histogram("quire_time_to_first_token_seconds", "From submit to the first token.", request_buckets());
  Histogram& request = histogram("quire_request_seconds", "From submit to the end.", request_buckets());
  Histogram& inter_token =
      histogram("quire_inter_token_seconds", "Between tokens of one request as delivered.", token_buckets());
};

ServerMetrics::ServerMetrics(const std::string& model) : state_(std::make_unique<State>(model)) {}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::count_http_request(std::string_view route, int status) {
  state_->http.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

void ServerMetrics::count_unknown_fields(std::string_view route, std::size_t count) {
  if (count > 0) state_->unknown.Add({{"route", std::string(route)}}).Increment(static_cast<double>(count));
}

void ServerMetrics::count_refusal(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::invalid:
      return state_->refused_invalid.Increment();
    case RefusalReason::overloaded:
      return state_->refused_overloaded.Increment();
    case RefusalReason::stopping:
      return state_->refused_stopping.Increment();
  }
}

void ServerMetrics::observe_request(const RequestTimes& times) {
  state_->queue.Observe(seconds(times.queue_ns));
  state_->request.Observe(seconds(times.queue_ns + times.prefill_ns + times.decode_ns));
  if (!times.had_first_token) return;
  state_->prefill.Observe(seconds(times.prefill_ns));
  state_->decode.Observe(seconds(times.decode_ns));
  state_->first_token.Observe(seconds(times.queue_ns + times.prefill_ns));
}

void ServerMetrics::observe_inter_token(double gap) { state_->inter_token.Observe(gap); }
void ServerMetrics::set_connections(std::int64_t count) { state_->connections.Set(static_cast<double>(count)); }
void ServerMetrics::set_ready(bool ready) { state_->ready.Set(ready ? 1 : 0); }

std::string ServerMetrics::text(const EngineSnapshot& engine) {
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.running.Set(static_cast<double>(engine.running));
    s.waiting.Set(static_cast<double>(engine.waiting));
    s.blocks_used.Set(static_cast<double>(engine.blocks_used));
    s.blocks_cached.Set(static_cast<double>(engine.blocks_cached));
    s.blocks_total.Set(static_cast<double>(engine.blocks_total));
    s.kv_table_entries.Set(static_cast<double>(engine.kv_table_entries));
    s.blocks_free.Set(static_cast<double>(engine.blocks_total - engine.blocks_used - engine.blocks_cached));
    s.kv_blocks_saved.Set(static_cast<double>(engine.kv_table_entries - engine.blocks_used));
    s.kv_unfilled_slots.Set(static_cast<double>(engine.kv_unfilled_slots));
    const auto held_slots = static_cast<double>(engine.blocks_used * engine.kv_block_size);
    s.internal_fragmentation.Set(held_slots > 0 ? static_cast<double>(engine.kv_unfilled_slots) / held_slots : 0);
    s.ram_blocks.Set(static_cast<double>(engine.ram_blocks));
    s.ram_bytes.Set(static_cast<double>(engine.ram_bytes));
    s.files.Set(static_cast<double>(engine.files));
    s.file_bytes.Set(static_cast<double>(engine.file_bytes));
    State::raise(s.files_removed, static_cast<double>(engine.files_removed));
    State::raise(s.preemptions_by_kind, "kind", engine.preemptions_by_kind);
    State::raise(s.tier_blocks, "what", engine.tier_blocks);
    State::raise(s.file_reads, "outcome", engine.file_reads);
    State::raise(s.file_writes, "outcome", engine.file_writes);
    State::raise(s.recomputed_tokens, static_cast<double>(engine.recomputed_tokens));
    State::raise(s.copied_blocks, static_cast<double>(engine.copied_blocks));
    State::raise(s.steps, static_cast<double>(engine.steps));
    State::raise(s.step_seconds, seconds(engine.step_ns));
    State::raise(s.prompt_tokens, static_cast<double>(engine.prompt_tokens));
    State::raise(s.generated_tokens, static_cast<double>(engine.generated_tokens));
    State::raise(s.proposed_tokens, static_cast<double>(engine.proposed_tokens));
    State::raise(s.accepted_tokens, static_cast<double>(engine.accepted_tokens));
    State::raise(s.shared_positions, static_cast<double>(engine.shared_positions));
    State::raise(s.unshared_positions, static_cast<double>(engine.unshared_positions));
    State::raise(s.computed_tokens, static_cast<double>(engine.computed_tokens));
    State::raise(s.prefix_queries, static_cast<double>(engine.prefix_queries));
    State::raise(s.prefix_hits, static_cast<double>(engine.prefix_hits));
    State::raise(s.prefix_evictions, static_cast<double>(engine.prefix_evictions));
    State::raise(s.preemptions, static_cast<double>(engine.preemptions));
    State::raise(s.finished_stop, static_cast<double>(engine.finished_stop));
    State::raise(s.finished_length, static_cast<double>(engine.finished_length));
    State::raise(s.finished_cancelled, static_cast<double>(engine.finished_cancelled));
    State::raise(s.finished_timed_out, static_cast<double>(engine.finished_timed_out));
    State::raise(s.finished_failed, static_cast<double>(engine.finished_failed));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, s.registry.Collect());
  return std::move(out).str();
}

}  // namespace quire::metrics
