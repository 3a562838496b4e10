// Paged attention on one CPU tier. Decode: GB/s of K and V read, over all layers of a model, beside a plain read of
// the same memory. Prefill: tokens/s of one layer's attention for a prompt computed at once.
//
//   QUIRE_CPU=avx2 build/attention_bench --benchmark_filter='decode/.*' [--threads=2] [--kv=f16] [--block=16]
//                                        [--shape=9,3,64 | --shape=4,1,256] [--order=random|rising] [--layers=30]

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "quire/attention/paged_attention.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace {

using namespace quire;
using attention::KvLayout;
using attention::KvStore;
using attention::KvType;

struct Options {
  long heads = 9, kv_heads = 3, head_dim = 64, block = 16, layers = 30;
  KvType type = KvType::f16;
  int threads = 1;
  bool random_order = true;
  CpuTier tier = CpuTier::scalar;
};

/// A pool filled with random values, and the tables of `sequences` sequences of `context` tokens in it.
struct Cache {
  std::unique_ptr<KvStore> store;
  std::vector<std::vector<BlockId>> tables;

  Cache(const Options& options, std::int64_t layers, std::int64_t sequences, std::int64_t context) {
    auto blocks_each = ceil_div(context, options.block);
    KvLayout layout = {layers, options.kv_heads, options.head_dim, options.block, options.type};
    store = std::make_unique<KvStore>(layout, 1 + sequences * blocks_each);
    fill();
    std::vector<std::uint32_t> ids;
    for (std::int64_t i = 1; i <= sequences * blocks_each; ++i) ids.push_back(static_cast<std::uint32_t>(i));
    Rng rng(7);
    for (std::size_t i = ids.size(); options.random_order && i > 1; --i) std::swap(ids[i - 1], ids[rng() % i]);
    for (std::int64_t s = 0; s < sequences; ++s) {
      tables.emplace_back();
      for (std::int64_t i = 0; i < blocks_each; ++i) {
        tables.back().push_back(BlockId{ids[static_cast<std::size_t>(s * blocks_each + i)]});
      }
    }
  }

  /// Finite values of magnitude below 1 in either format, by words.
  void fill() {
    auto* words = reinterpret_cast<std::uint32_t*>(store->k_panel(0, kNullBlock, 0));
    for (std::size_t i = 0; i < store->bytes() / 4; ++i)
      words[i] = 0x2C002C00u | (static_cast<std::uint32_t>(i) & 0x83FF83FFu);
  }
};

void attend_step(ThreadPool& pool, const Options& options, const KvStore& store, const attention::AttentionCall& call,
                 attention::AttentionScratch& scratch) {
  pool.run([&](Worker& worker) {
    for (std::int64_t layer = 0; layer < store.layout().num_layers; ++layer) {
      paged_attention(worker, options.tier, store, layer, call, scratch);
    }
  });
}

void decode(benchmark::State& state, const Options& options, std::int64_t sequences, std::int64_t context) {
  Cache cache(options, options.layers, sequences, context);
  std::vector<attention::SequenceChunk> chunks;
  for (std::int64_t s = 0; s < sequences; ++s) {
    chunks.push_back({cache.tables[static_cast<std::size_t>(s)], context - 1, 1, s});
  }
  auto width = options.heads * options.head_dim;
  std::vector<float> q(static_cast<std::size_t>(sequences * width), 0.5f), out(q.size());
  attention::AttentionCall call = {chunks, q.data(), out.data(), width, width, options.heads, 0.125f, 0};
  attention::AttentionScratch scratch;
  ThreadPool pool(options.threads);
  for (auto _ : state) attend_step(pool, options, *cache.store, call, scratch);
  auto bytes = static_cast<double>(sequences * context * 2 * options.kv_heads * options.layers) *
               static_cast<double>(cache.store->layout().token_bytes());
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

/// Reads the pool of a decode step once: what the memory gives.
void read_memory(benchmark::State& state, const Options& options, std::int64_t sequences, std::int64_t context) {
  Cache cache(options, options.layers, sequences, context);
  auto* words = reinterpret_cast<const std::uint64_t*>(cache.store->k_panel(0, kNullBlock, 0));
  auto count = static_cast<std::int64_t>(cache.store->bytes() / 8);
  ThreadPool pool(options.threads);
  for (auto _ : state) {
    pool.run([&](Worker& worker) {
      const auto begin = count * worker.index() / worker.count(), end = count * (worker.index() + 1) / worker.count();
      std::uint64_t sum[8] = {};
      for (auto i = begin; i + 8 <= end; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] ^= words[i + j];
      }
      benchmark::DoNotOptimize(sum);
    });
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(count * 8) * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void prefill(benchmark::State& state, const Options& options, std::int64_t tokens) {
  Cache cache(options, 1, 1, tokens);
  attention::SequenceChunk chunk = {cache.tables[0], 0, tokens, 0};
  auto width = options.heads * options.head_dim;
  std::vector<float> q(static_cast<std::size_t>(tokens * width), 0.5f), out(q.size());
  attention::AttentionCall call = {{&chunk, 1}, q.data(), out.data(), width, width, options.heads, 0.125f, 0};
  attention::AttentionScratch scratch;
  ThreadPool pool(options.threads);
  for (auto _ : state) attend_step(pool, options, *cache.store, call, scratch);
  auto calls = static_cast<double>(state.iterations());
  auto operations = 2.0 * static_cast<double>(tokens * (tokens + 1) / 2 * 2 * width);
  state.counters["tokens/s/layer"] =
      benchmark::Counter(static_cast<double>(tokens) * calls, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(operations * calls * 1e-9, benchmark::Counter::kIsRate);
}

/// Takes our options out of the arguments; the rest is Google Benchmark's.
bool take_option(const std::string& argument, Options& options) {
  auto value = argument.substr(std::min(argument.size(), argument.find('=') + 1));
  if (argument.starts_with("--threads=")) return options.threads = std::atoi(value.c_str()), true;
  if (argument.starts_with("--block=")) return options.block = std::atol(value.c_str()), true;
  if (argument.starts_with("--layers=")) return options.layers = std::atol(value.c_str()), true;
  if (argument.starts_with("--order=")) return options.random_order = value != "rising", true;
  if (argument.starts_with("--shape=")) {
    return std::sscanf(value.c_str(), "%ld,%ld,%ld", &options.heads, &options.kv_heads, &options.head_dim) == 3;
  }
  if (argument.starts_with("--kv=")) {
    auto type = attention::parse_kv_type(value);
    if (type) options.type = *type;
    return bool(type);
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const char* forced = std::getenv("QUIRE_CPU");
  auto choice = choose_cpu_tier(forced == nullptr ? "" : forced);
  if (!choice) return std::fprintf(stderr, "%s\n", choice.error().message.c_str()), 1;
  options.tier = choice->tier;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (i == 0 || !take_option(argv[i], options)) rest.push_back(argv[i]);
  }
  std::printf("tier %s, %d threads\n", std::string(to_string(options.tier)).c_str(), options.threads);

  auto add = [&](const std::string& name, auto function, auto... arguments) {
    auto* entry = benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { function(state, options, arguments...); });
    if (options.threads > 1) entry->UseRealTime();
  };
  using Count = std::int64_t;
  for (Count context : {Count{64}, Count{512}, Count{2048}, Count{4096}, Count{16384}}) {
    add("decode/" + std::to_string(context), decode, Count{1}, context);
    add("read/" + std::to_string(context), read_memory, Count{1}, context);
  }
  add("decode/32x1024", decode, Count{32}, Count{1024});
  add("read/32x1024", read_memory, Count{32}, Count{1024});
  for (Count tokens : {Count{64}, Count{512}, Count{2048}}) add("prefill/" + std::to_string(tokens), prefill, tokens);

  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
