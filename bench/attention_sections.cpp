#include "bench/attention_sections.h"

#include "bench/attention_case.h"
#include "bench/roofline.h"
#include "quire/base/cat.h"

namespace quire::bench {
namespace {

constexpr std::int64_t kMemory = std::int64_t{192} << 20;  ///< read by one pass: more than the caches hold
constexpr std::int64_t kSequences = 8, kContext = 1024;

struct Load {
  std::int64_t sequences, context;
};

/// One pool and a decode step over it.
struct Decode {
  KvPool pool;
  AttentionCase work;

  Decode(const AttentionShape& shape, Load load, BlockOrder order, std::int64_t bytes = kMemory)
      : pool(shape, load.sequences, load.context, bytes), work(pool, order, {}) {}

  double seconds(ThreadPool& threads, const Options& options) {
    return seconds_per_call(options.seconds, [&] { work.run(threads, options.tier); });
  }
  double gigabytes_per_second(ThreadPool& threads, const Options& options) {
    return static_cast<double>(pool.bytes_read()) * 1e-9 / seconds(threads, options);
  }
  /// K and V slots passed, in millions, over all layers: comparable between formats.
  double tokens_per_second(ThreadPool& threads, const Options& options) {
    const auto tokens = pool.sequences() * pool.context() * pool.store().layout().num_layers;
    return static_cast<double>(tokens) * 1e-6 / seconds(threads, options);
  }
};

}  // namespace

Result<void> decode_bandwidth(const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  for (const Load load : {Load{1, 512}, Load{1, 4096}, Load{1, 16384}, Load{8, 512}, Load{32, 1024}}) {
    Decode decode({}, load, BlockOrder::random);
    const auto figures = run_rounds(
        options.rounds,
        {[&] { return roofline.dram(); }, [&] { return decode.gigabytes_per_second(roofline.pool(), options); }});
    report.rows.push_back(report::make_row(
        {cat("decode attention, ", load.sequences, " x ", load.context), "GB/s", report::at_least(0.8)}, figures[1],
        "DRAM read", figures[0]));
  }
  return {};
}

Result<void> decode_block_order(const Options& options, report::Report& report) {
  ThreadPool threads(options.threads);
  for (std::int64_t block_size : {8, 16, 32, 64}) {
    AttentionShape shape;
    shape.block_size = block_size;
    Decode random(shape, {kSequences, kContext}, BlockOrder::random);
    AttentionCase rising(random.pool, BlockOrder::rising, {});  // the same memory
    const double gigabytes = static_cast<double>(random.pool.bytes_read()) * 1e-9;
    const auto figures = run_rounds(
        options.rounds,
        {[&] { return random.gigabytes_per_second(threads, options); },
         [&] { return gigabytes / seconds_per_call(options.seconds, [&] { rising.run(threads, options.tier); }); }});
    report.rows.push_back(
        report::make_row({cat("blocks of ", block_size, " in random order, decode"), "GB/s", report::at_least(0.95)},
                         figures[0], "in order", figures[1]));
  }
  return {};
}

Result<void> decode_block_size(const Options& options, report::Report& report) {
  ThreadPool threads(options.threads);
  constexpr std::int64_t kSizes[] = {16, 8, 32, 64};
  std::vector<std::unique_ptr<Decode>> cases;
  std::vector<Measure> measures;
  for (std::int64_t block_size : kSizes) {
    AttentionShape shape;
    shape.block_size = block_size;
    cases.push_back(std::make_unique<Decode>(shape, Load{kSequences, kContext}, BlockOrder::random));
    measures.push_back([&, decode = cases.back().get()] { return decode->gigabytes_per_second(threads, options); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 1; i < std::size(kSizes); ++i) {
    report.rows.push_back(report::make_row({cat("blocks of ", kSizes[i], " tokens, decode"), "GB/s"}, figures[i],
                                           "blocks of 16", figures[0]));
  }
  return {};
}

Result<void> decode_kv_type(const Options& options, report::Report& report) {
  using attention::KvType;
  ThreadPool threads(options.threads);
  constexpr KvType kTypes[] = {KvType::f16, KvType::bf16, KvType::int8, KvType::f32};
  std::vector<std::unique_ptr<Decode>> cases;
  std::vector<Measure> measures;
  for (KvType type : kTypes) {
    AttentionShape shape;
    shape.type = type;
    cases.push_back(std::make_unique<Decode>(shape, Load{kSequences, kContext}, BlockOrder::random));
    measures.push_back([&, decode = cases.back().get()] { return decode->tokens_per_second(threads, options); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 1; i < std::size(kTypes); ++i) {
    report.rows.push_back(report::make_row({cat("KV in ", attention::to_string(kTypes[i]), ", decode"), "M tokens/s"},
                                           figures[i], "f16", figures[0]));
  }
  return {};
}

Result<void> decode_growth(const Options& options, report::Report& report) {
  ThreadPool threads(options.threads);
  for (std::int64_t context : {1024, 4096}) {
    // As many layers in both, so that only the context differs.
    Decode once({}, {kSequences, context}, BlockOrder::random);
    Decode twice({}, {kSequences, 2 * context}, BlockOrder::random, 2 * once.pool.bytes_read());
    const auto figures = run_rounds(options.rounds, {[&] { return twice.seconds(threads, options) * 1e3; },
                                                     [&] { return once.seconds(threads, options) * 1e3; }});
    report.rows.push_back(
        report::make_row({cat("decode attention, 8 x ", 2 * context, ", all layers"), "ms", report::at_most(2.1)},
                         figures[0], cat("8 x ", context), figures[1]));
  }
  return {};
}

}  // namespace quire::bench
