#include "bench/serving_sections.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bench/measure.h"
#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/engine/engine.h"
#include "quire/traces/trace_file.h"

namespace quire::bench {
namespace {

// The load of the PagedAttention paper: lengths of ShareGPT's first turns, a context of 2,048, and memory for seven of
// these, as OPT-13B has it on a GPU of 40 GB. All lengths are halved here, so that a round takes half a minute.
constexpr std::int64_t kShorter = 2;
constexpr std::int64_t kContext = 2048 / kShorter;  ///< tokens a request may have, and `reserved` holds for each
constexpr std::int64_t kReservedRequests = 7;       ///< whole contexts that the memory holds
constexpr std::size_t kNumRequests = 64;            ///< all there at the start
constexpr int kMaxRounds = 2;

/// What a server sees of one load.
struct Served {
  double tokens_per_second = 0;
  double first_token_s = 0;      ///< mean over the requests, from the start
  double running = 0, used = 0;  ///< means over the samples taken while requests wait; used: share of all slots
  std::int64_t most_running = 0;
};

bool is_of_the_paper(const RequestSpec& spec) {
  return spec.prompt_tokens >= 4 && spec.prompt_tokens <= 1024 && spec.output_tokens >= 4 &&
         spec.prompt_tokens + spec.output_tokens <= 2048;
}

/// With prompts of random tokens.
Result<std::vector<engine::GenerateRequest>> chat_requests(std::int64_t vocab_size) {
  QUIRE_TRY(Trace trace, embedded_trace("sharegpt"));
  std::erase_if(trace.requests, [](const RequestSpec& spec) { return !is_of_the_paper(spec); });
  Rng rng(7);
  std::vector<engine::GenerateRequest> requests(kNumRequests);
  for (engine::GenerateRequest& request : requests) {
    const auto last = static_cast<std::int64_t>(trace.requests.size()) - 1;
    const RequestSpec& spec = trace.requests[static_cast<std::size_t>(rng.between(0, last))];
    request.max_tokens = static_cast<std::int32_t>(spec.output_tokens / kShorter);
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    for (std::int64_t i = 0; i < spec.prompt_tokens / kShorter; ++i)
      request.prompt.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab_size - 1))});
  }
  return requests;
}

Result<std::unique_ptr<engine::Engine>> open_engine(const Options& options, std::string manager,
                                                    std::uint64_t kv_memory_bytes) {
  engine::EngineOptions engine_options;
  engine_options.model_path = options.model;
  engine_options.threads = options.threads;
  engine_options.cpu_tier = std::string(to_string(options.tier));
  engine_options.context = kContext;
  engine_options.kv_layout = "uniform";
  engine_options.kv_manager = std::move(manager);
  engine_options.kv_memory_bytes = kv_memory_bytes;
  return engine::Engine::open(std::move(engine_options));
}

/// Samples the engine's state until it is told to stop.
class Sampler {
 public:
  explicit Sampler(const engine::Engine& engine) : thread_([this, &engine] { run(engine); }) {}
  ~Sampler() { stop(); }

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void report(Served& served) const {
    if (samples_ == 0) return;
    served.running = running_ / static_cast<double>(samples_);
    served.used = used_ / static_cast<double>(samples_);
    served.most_running = most_running_;
  }

 private:
  void run(const engine::Engine& engine) {
    for (; !stopping_; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const engine::EngineStats stats = engine.stats();
      most_running_ = std::max(most_running_, stats.running);
      if (stats.waiting == 0) continue;
      ++samples_;
      running_ += static_cast<double>(stats.running);
      used_ += static_cast<double>(stats.blocks_used * stats.kv.block_size - stats.kv.unfilled_slots) /
               static_cast<double>(stats.blocks_total * stats.kv.block_size);
    }
  }

  std::atomic<bool> stopping_{false};
  std::int64_t samples_ = 0, most_running_ = 0;
  double running_ = 0, used_ = 0;
  std::thread thread_;
};

Served serve(engine::Engine& engine, const std::vector<engine::GenerateRequest>& requests) {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = requests.size();
  std::int64_t tokens = 0;
  Served served;
  Sampler sampler(engine);
  const double seconds = seconds_of([&] {
    for (const engine::GenerateRequest& request : requests) {
      const auto submitted = engine.submit(request, [&](engine::Delta delta) {
        if (!delta.finish) return;
        std::lock_guard lock(mutex);
        tokens += delta.usage.completion_tokens;
        served.first_token_s += 1e-9 * static_cast<double>(delta.timings.queue_ns + delta.timings.prefill_ns);
        if (--left == 0) done.notify_all();
      });
      QUIRE_CHECK(submitted.id, submitted.refusal.message);
    }
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return left == 0; });
  });
  sampler.stop();
  sampler.report(served);
  served.tokens_per_second = static_cast<double>(tokens) / seconds;
  served.first_token_s /= static_cast<double>(requests.size());
  return served;
}

}  // namespace

Result<void> paged_against_reserved(const Options& options, report::Report& report) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  QUIRE_TRY(auto probe, open_engine(options, "paged", 1 << 20));
  const std::int64_t bytes = probe->info().kv_bytes_per_token * kContext * kReservedRequests + (1 << 20);
  probe.reset();
  QUIRE_TRY(auto paged, open_engine(options, "paged", static_cast<std::uint64_t>(bytes)));
  QUIRE_TRY(auto reserved, open_engine(options, "reserved", static_cast<std::uint64_t>(bytes)));
  QUIRE_TRY(const auto requests, chat_requests(paged->info().vocab_size));
  std::vector<Served> with, without;
  for (int round = 0; round < std::min(options.rounds, kMaxRounds); ++round) {
    with.push_back(serve(*paged, requests));
    without.push_back(serve(*reserved, requests));
  }
  const auto add = [&](std::string metric, std::string unit, auto figure_of,
                       std::optional<report::Target> target = {}) {
    std::vector<double> values, peers;
    for (const Served& served : with) values.push_back(figure_of(served));
    for (const Served& served : without) peers.push_back(figure_of(served));
    report.rows.push_back(
        report::make_row({cat("served: ", metric), std::move(unit), target}, values, "reserved", peers));
  };
  add("requests at once, mean while some wait", "", [](const Served& s) { return s.running; });
  add("requests at once, most", "", [](const Served& s) { return static_cast<double>(s.most_running); });
  add("memory filled, mean while some wait", "%", [](const Served& s) { return 100 * s.used; });
  add(
      "tokens per second", "1/s", [](const Served& s) { return s.tokens_per_second; }, report::at_least(2));
  add("first token, mean", "s", [](const Served& s) { return s.first_token_s; });
  return {};
}

}  // namespace quire::bench
