// the model alone: decode at context 512 and prefill 512 as a share of what the machine allows, speed-up by threads

#include <algorithm>

#include "bench/forward_case.h"
#include "bench/roofline.h"
#include "quire/base/cat.h"

namespace quire::bench {
namespace {

Result<void> decode(std::int64_t batch, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto forward, Forward::open(options, roofline.pool(), batch));
  forward->prefill();
  const auto figures = run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                                   [&] { return forward->decode_seconds(options); }});
  const auto bytes = static_cast<double>(forward->work().weight_bytes + forward->kv_bytes());
  report.rows.push_back(share_of_limit(cat("decode, batch ", batch, ", context ", kContext), batch, bytes,
                                       forward->work().operations(batch, batch), figures));
  return {};
}

template <std::int64_t kBatch>
Result<void> decode_batch(const Options& options, report::Report& report) {
  return decode(kBatch, options, report);
}

Result<void> prefill(const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto forward, Forward::open(options, roofline.pool(), 1));
  const auto figures = run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                                   [&] { return seconds_of([&] { forward->prefill(); }); }});
  report.rows.push_back(share_of_limit(cat("prefill ", kContext), kContext,
                                       static_cast<double>(forward->work().weight_bytes),
                                       forward->work().operations(kContext, 1), figures));
  return {};
}

/// How much faster all threads are than one, against how much faster the limit itself gets.
report::Row speed_up(std::string metric, const std::vector<double>& one, const std::vector<double>& all,
                     const std::vector<double>& limit_of_one, const std::vector<double>& limit_of_all) {
  std::vector<double> reached, limit;
  for (std::size_t round = 0; round < one.size(); ++round) {
    reached.push_back(one[round] / all[round]);  // seconds
    limit.push_back(limit_of_all[round] / limit_of_one[round]);
  }
  return report::make_row({std::move(metric), "x", report::at_least(0.95)}, reached, "that of the limit", limit);
}

Result<void> threads(const Options& options, report::Report& report) {
  if (options.threads < 2) return {};
  Roofline one(options.tier, 1, options.seconds), all(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto by_one, Forward::open(options, one.pool(), 1));
  QUIRE_TRY(auto by_all, Forward::open(options, all.pool(), 1));
  const auto figures = run_rounds(
      options.rounds,
      {[&] { return one.dot4(); }, [&] { return all.dot4(); }, [&] { return seconds_of([&] { by_one->prefill(); }); },
       [&] { return seconds_of([&] { by_all->prefill(); }); }, [&] { return one.dram(); }, [&] { return all.dram(); },
       [&] { return by_one->decode_seconds(options); }, [&] { return by_all->decode_seconds(options); }});
  const std::string what = cat(", ", options.threads, " threads over 1");
  report.rows.push_back(speed_up("prefill 512" + what, figures[2], figures[3], figures[0], figures[1]));
  report.rows.push_back(speed_up("decode, batch 1" + what, figures[6], figures[7], figures[4], figures[5]));
  return {};
}

/// The phases of a decode step, each with its share of the limits: the later of the last byte and the last operation.
Result<void> parts(std::int64_t batch, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto forward, Forward::open(options, roofline.pool(), batch));
  forward->prefill();
  std::vector<std::vector<double>> us(model::kNumPhases), limit_us(model::kNumPhases);
  const Measure measure = [&] {
    const double bytes_us = roofline.dram() * 1e3, operations_us = roofline.dot4() * 1e3;
    model::StepProfile profile;
    forward->set_profile(&profile);
    forward->decode_seconds(options);
    forward->set_profile(nullptr);
    const Work& work = forward->work();
    for (std::size_t i = 0; i < model::kNumPhases; ++i) {
      us[i].push_back(profile.seconds(static_cast<model::Phase>(i)) / static_cast<double>(profile.num_passes()) * 1e6);
      const auto read = static_cast<double>(static_cast<model::Phase>(i) == model::Phase::attend ? forward->kv_bytes()
                                                                                                 : work.phase_bytes[i]);
      const double operations = 2.0 * static_cast<double>(work.phase_weights[i] * batch);
      limit_us[i].push_back(std::max(read / bytes_us, operations / operations_us));
    }
    return 0.0;
  };
  run_rounds(options.rounds, {measure});
  for (std::size_t i = 0; i < model::kNumPhases; ++i) {
    const report::Metric metric{cat("batch ", batch, ": ", model::kPhaseNames[i]), "us a step"};
    const bool limited = limit_us[i].front() > 0;
    report.rows.push_back(limited ? report::make_row(metric, us[i], "at the limit", limit_us[i])
                                  : report::make_row(metric, us[i]));
  }
  return {};
}

template <std::int64_t kBatch>
Result<void> parts_of_batch(const Options& options, report::Report& report) {
  return parts(kBatch, options, report);
}

constexpr Section kSections[] = {{"prefill", prefill},
                                 {"threads", threads},
                                 {"decode-1", decode_batch<1>},
                                 {"decode-8", decode_batch<8>},
                                 {"decode-32", decode_batch<32>},
                                 {"parts-1", parts_of_batch<1>},
                                 {"parts-8", parts_of_batch<8>},
                                 {"parts-32", parts_of_batch<32>}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
