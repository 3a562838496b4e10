// what the machine gives: DRAM and L3 read bandwidth, f32 multiply-adds, int8 dot products; on 1 and on all threads

#include "bench/roofline.h"
#include "quire/base/cat.h"

namespace quire::bench {
namespace {

struct Limit {
  const char* metric;
  const char* unit;
  double (Roofline::*measure)();
};

constexpr Limit kLimits[] = {{"DRAM read", "GB/s", &Roofline::dram},
                             {"L3 read", "GB/s", &Roofline::l3},
                             {"f32 FMA", "GFLOP/s", &Roofline::fma},
                             {"int8 dot product", "Gop/s", &Roofline::dot8},
                             {"int8 dot product, 4-bit weights", "Gop/s", &Roofline::dot4}};

/// On one thread, and on all of them against one.
Result<void> limits(const Options& options, report::Report& report) {
  Roofline one(options.tier, 1, options.seconds);
  std::vector<Measure> measures;
  for (const Limit& limit : kLimits) measures.push_back([&one, &limit] { return (one.*limit.measure)(); });
  std::unique_ptr<Roofline> all;
  if (options.threads > 1) {
    all = std::make_unique<Roofline>(options.tier, options.threads, options.seconds);
    for (const Limit& limit : kLimits) measures.push_back([&all, &limit] { return ((*all).*limit.measure)(); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 0; i < std::size(kLimits); ++i) {
    report.rows.push_back(report::make_row({cat(kLimits[i].metric, ", 1 thread"), kLimits[i].unit}, figures[i]));
  }
  for (std::size_t i = 0; all && i < std::size(kLimits); ++i) {
    report.rows.push_back(report::make_row({cat(kLimits[i].metric, ", ", options.threads, " threads"), kLimits[i].unit},
                                           figures[std::size(kLimits) + i], "on 1 thread", figures[i]));
  }
  return {};
}

constexpr Section kSections[] = {{"limits", limits}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
