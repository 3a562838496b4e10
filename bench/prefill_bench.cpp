// time to the first token of one prompt, the whole engine, as a share of what the machine allows

#include "bench/engine_case.h"
#include "bench/roofline.h"
#include "quire/base/cat.h"
#include "quire/planning/engine_timer.h"

namespace quire::bench {
namespace {

Result<void> prefill(std::int32_t tokens, const Options& options, report::Report& report) {
  QUIRE_TRY(const EngineCase made,
            EngineCase::open(options, {.context = tokens + 1, .max_batch_rows = 1, .prefix_cache = false}));
  QUIRE_TRY_VOID(planning::time_prefill(*made.engine, tokens, 0));
  Roofline roofline(options.tier, options.threads, options.seconds);
  std::uint64_t number = 0;
  const auto figures =
      run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                  [&] { return *planning::time_prefill(*made.engine, tokens, ++number) * 1e-3; }});
  report.rows.push_back(share_of_limit(cat("prefill ", tokens), tokens, static_cast<double>(made.work.weight_bytes),
                                       made.work.operations(tokens, 1), figures));
  return {};
}

template <std::int32_t kTokens>
Result<void> prefill_of(const Options& options, report::Report& report) {
  return prefill(kTokens, options, report);
}

constexpr Section kSections[] = {{"512", prefill_of<512>}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
