// paged attention in prefill: GFLOP/s of whole prompts as a share of the f32 FMA peak, KV formats, random block order

#include "bench/attention_case.h"
#include "bench/roofline.h"
#include "quire/base/cat.h"

namespace quire::bench {
namespace {

/// One layer's attention of a prompt computed at once.
struct Prefill {
  KvPool pool;
  AttentionCase work;

  Prefill(const AttentionShape& shape, std::int64_t tokens, BlockOrder order)
      : pool(shape, 1, tokens, 1), work(pool, order, {.queries = tokens}) {}

  double gigaflops(ThreadPool& threads, const Options& options) {
    return work.operations() * 1e-9 / seconds_per_call(options.seconds, [&] { work.run(threads, options.tier); });
  }
};

Result<void> length(const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  for (std::int64_t tokens : {64, 512, 2048}) {
    Prefill prefill({}, tokens, BlockOrder::random);
    const auto figures = run_rounds(
        options.rounds, {[&] { return roofline.fma(); }, [&] { return prefill.gigaflops(roofline.pool(), options); }});
    report.rows.push_back(report::make_row({cat("prefill attention, ", tokens, " tokens"), "GFLOP/s"}, figures[1],
                                           "FMA peak", figures[0]));
  }
  return {};
}

Result<void> kv_type(const Options& options, report::Report& report) {
  using attention::KvType;
  ThreadPool threads(options.threads);
  constexpr KvType kTypes[] = {KvType::f16, KvType::bf16, KvType::int8, KvType::f32};
  std::vector<std::unique_ptr<Prefill>> cases;
  std::vector<Measure> measures;
  for (KvType type : kTypes) {
    AttentionShape shape;
    shape.type = type;
    cases.push_back(std::make_unique<Prefill>(shape, 512, BlockOrder::random));
    measures.push_back([&, prefill = cases.back().get()] { return prefill->gigaflops(threads, options); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 1; i < std::size(kTypes); ++i) {
    report.rows.push_back(report::make_row({cat("KV in ", attention::to_string(kTypes[i]), ", prefill 512"), "GFLOP/s"},
                                           figures[i], "f16", figures[0]));
  }
  return {};
}

Result<void> block_order(const Options& options, report::Report& report) {
  ThreadPool threads(options.threads);
  Prefill random({}, 2048, BlockOrder::random), rising({}, 2048, BlockOrder::rising);
  const auto figures = run_rounds(options.rounds, {[&] { return random.gigaflops(threads, options); },
                                                   [&] { return rising.gigaflops(threads, options); }});
  report.rows.push_back(
      report::make_row({"blocks of 16 in random order, prefill 2,048", "GFLOP/s", report::at_least(0.95)}, figures[0],
                       "in order", figures[1]));
  return {};
}

constexpr Section kSections[] = {{"length", length}, {"kv-type", kv_type}, {"order", block_order}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
