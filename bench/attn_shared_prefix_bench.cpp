// decode attention of sequences with a common prefix: its blocks walked once for all against once for each sequence

#include "bench/attention_case.h"
#include "bench/measure.h"
#include "quire/base/cat.h"

namespace quire::bench {
namespace {

constexpr std::int64_t kMemory = std::int64_t{192} << 20;  ///< as if each sequence had all of its own: more than caches
constexpr std::int64_t kOwn = 64;

double milliseconds(AttentionCase& work, ThreadPool& threads, const Options& options) {
  return 1e3 * seconds_per_call(options.seconds, [&] { work.run(threads, options.tier); });
}

/// The same tables walked once and walked for each; and sequences that hold the prefix in blocks of their own.
Result<void> decode(const Options& options, report::Report& report) {
  using attention::Cascade;
  ThreadPool threads(options.threads);
  struct Load {
    std::int64_t sequences, prefix, own;
  };
  for (const Load load : {Load{2, 1000, kOwn}, Load{8, 1000, kOwn}, Load{32, 1000, kOwn}, Load{32, 4000, kOwn}}) {
    const KvPool pool({}, load.sequences, load.prefix + load.own, kMemory);
    AttentionCase once(pool, BlockOrder::random, {.shared = load.prefix});
    AttentionCase each(pool, BlockOrder::random, {.shared = load.prefix, .cascade = Cascade::off});
    AttentionCase apart(pool, BlockOrder::random, {});
    const auto figures = run_rounds(options.rounds, {[&] { return milliseconds(once, threads, options); },
                                                     [&] { return milliseconds(each, threads, options); },
                                                     [&] { return milliseconds(apart, threads, options); }});
    const std::string what = cat(load.sequences, " sequences, prefix ", load.prefix, " + ", load.own, " own");
    report.rows.push_back(
        report::make_row({what, "ms", report::at_most(1)}, figures[0], "each walks the prefix", figures[1]));
    report.rows.push_back(report::make_row({what, "ms"}, figures[0], "a prefix each", figures[2]));
  }
  return {};
}

/// What looking for common blocks costs where there are none.
Result<void> nothing_shared(const Options& options, report::Report& report) {
  using attention::Cascade;
  ThreadPool threads(options.threads);
  const KvPool pool({}, 32, 512, kMemory);
  AttentionCase on(pool, BlockOrder::random, {});
  AttentionCase off(pool, BlockOrder::random, {.cascade = Cascade::off});
  const auto figures = run_rounds(options.rounds, {[&] { return milliseconds(on, threads, options); },
                                                   [&] { return milliseconds(off, threads, options); }});
  report.rows.push_back(report::make_row({"32 sequences with nothing in common", "ms", report::at_most(1.03)},
                                         figures[0], "sharing off", figures[1]));
  return {};
}

/// Making the plan of a step, sharing included.
Result<void> plan(const Options& options, report::Report& report) {
  for (std::int64_t shared : {std::int64_t{0}, std::int64_t{1000}}) {
    const KvPool pool({}, 32, 1064, 1);
    auto tables = pool.tables(BlockOrder::random);
    std::vector<attention::SequenceChunk> chunks;
    for (std::size_t s = 0; s < tables.size(); ++s) {
      std::copy_n(tables[0].begin(), shared / pool.shape().block_size, tables[s].begin());
      chunks.push_back({tables[s], 1063, 1, static_cast<std::int64_t>(s)});
    }
    attention::AttentionPlan made;
    const auto figures = run_rounds(options.rounds, {[&] {
                                      return 1e6 * seconds_per_call(options.seconds, [&] {
                                               made.make(pool.store().layout(), {chunks, pool.shape().heads, 0, 2});
                                             });
                                    }});
    report.rows.push_back(
        report::make_row({cat("plan of a step of 32, ", shared, " tokens in common"), "us"}, figures[0]));
  }
  return {};
}

constexpr Section kSections[] = {{"decode", decode}, {"nothing-shared", nothing_shared}, {"plan", plan}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
