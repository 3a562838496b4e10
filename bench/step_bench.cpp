// decode steps of the engine by batch size, sampling and delivery included, as a share of what the machine allows

#include "bench/engine_case.h"
#include "bench/roofline.h"
#include "quire/base/cat.h"
#include "quire/planning/engine_timer.h"

namespace quire::bench {
namespace {

constexpr std::int32_t kSteps = 32;

Result<void> decode(std::int32_t batch, const Options& options, report::Report& report) {
  const planning::DecodeLoad load{.batch = batch, .context = kContext, .steps = kSteps};
  QUIRE_TRY(const EngineCase made,
            EngineCase::open(options, {.context = planning::tokens_of_request(load), .max_batch_rows = batch}));
  // Not counted: the prompts are in the prefix cache from then on.
  QUIRE_TRY_VOID(planning::time_decode(*made.engine, load));
  Roofline roofline(options.tier, options.threads, options.seconds);
  const auto figures =
      run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                  [&] { return report::median(*planning::time_decode(*made.engine, load)) * 1e-3; }});
  const std::int64_t kv_bytes = made.engine->info().kv_bytes_per_token * batch * kContext;
  report.rows.push_back(share_of_limit(cat("decode batch ", batch, " context ", kContext), batch,
                                       static_cast<double>(made.work.weight_bytes + kv_bytes),
                                       made.work.operations(batch, batch), figures));
  return {};
}

template <std::int32_t kBatch>
Result<void> decode_batch(const Options& options, report::Report& report) {
  return decode(kBatch, options, report);
}

constexpr Section kSections[] = {
    {"batch-1", decode_batch<1>}, {"batch-8", decode_batch<8>}, {"batch-32", decode_batch<32>}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
