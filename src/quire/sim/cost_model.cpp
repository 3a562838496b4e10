#include "quire/sim/cost_model.h"

#include <algorithm>

#include "quire/base/cat.h"

namespace quire {
namespace {

/// At most what is longer than all of virtual time.
std::uint64_t as_ns(double ms) { return static_cast<std::uint64_t>(std::clamp(ms, 0.0, 1e13) * 1e6 + 0.5); }

/// The line through the points, of at least one; beyond the ends the nearest segment goes on, never below 0.
double interpolate(const std::vector<TableCost::Point>& points, double x) {
  if (points.size() == 1) return points[0].ms;
  std::size_t i = 1;
  while (i + 1 < points.size() && points[i].x < x) ++i;
  const TableCost::Point &a = points[i - 1], &b = points[i];
  return std::max(0.0, a.ms + (b.ms - a.ms) * (x - a.x) / (b.x - a.x));
}

/// vLLM's row of profiler-a100-80g.vllm.json, "facebook/opt-13b", one GPU (DistServe, Apache-2.0).
std::shared_ptr<const CostModel> opt_13b() {
  auto cost = std::make_shared<FittedCost>();
  cost->name = "OPT-13B on one A100-80GB, vLLM (DistServe's fit)";
  cost->prefill = {22.052204789310185, 0.14050923870128956, 8.076584822611088e-06};
  cost->decode = {23.475041008414784, 0.000592934466077393, 0.060726861260369455};
  cost->decode_large = {20.206356173691958, 0.0004907727036234946, 0.1200031385587413};
  cost->threshold_rows = 95;
  return cost;
}

/// sarathi-osdi24-figure-2-{prefill,decode}.csv (Sarathi-Serve, Apache-2.0). The point of 256 tokens, slower than the
/// one of 512, is left out as an outlier.
std::shared_ptr<const CostModel> yi_34b() {
  auto cost = std::make_shared<TableCost>();
  cost->name = "Yi-34B on two A100-80GB, PCIe (Sarathi-Serve's measurements)";
  cost->prefill = {{128, 48.0940844863653},   {512, 105.5817436426878},  {1024, 214.3006371334195},
                   {2048, 366.0252727568149}, {4096, 757.6026394963264}, {8192, 1863.264944404364},
                   {16384, 4407.501052133739}};
  cost->decode = {{1, 46.80326674133536}, {2, 47.50242146352921},  {4, 48.84505489220215},  {8, 69.67552363251643},
                  {16, 77.2536892133454}, {32, 87.89650211110707}, {64, 127.8068584700425}, {128, 189.3305025684336}};
  return cost;
}

struct Named {
  std::string_view name;
  std::shared_ptr<const CostModel> (*make)();
};
constexpr Named kNamed[] = {{"opt-13b", opt_13b}, {"yi-34b", yi_34b}};

}  // namespace

std::uint64_t FittedCost::step_ns(const StepShape& shape) const {
  double constant = 0, rest = 0;
  if (shape.num_prefill_rows > 0) {
    constant = prefill.constant;
    rest += prefill.per_token * static_cast<double>(shape.num_prefill_tokens) + prefill.third * shape.prefill_squares;
  }
  if (shape.num_decode_rows > 0) {
    const Terms& terms = threshold_rows > 0 && shape.num_decode_rows >= threshold_rows ? decode_large : decode;
    constant = std::max(constant, terms.constant);
    rest += terms.per_token * static_cast<double>(shape.decode_context) +
            terms.third * static_cast<double>(shape.num_decode_rows);
  }
  return as_ns(constant + rest);
}

std::uint64_t TableCost::step_ns(const StepShape& shape) const {
  // A decode that rides along with a prefill costs what one more token of it does (the measured hybrid batches).
  double ms = 0;
  if (shape.num_decode_rows > 0) ms = interpolate(decode, static_cast<double>(shape.num_decode_rows));
  if (shape.num_prefill_rows > 0) ms = std::max(ms, interpolate(prefill, static_cast<double>(shape.num_tokens())));
  return as_ns(ms + per_context_ms * static_cast<double>(shape.decode_context));
}

std::uint64_t RooflineCost::step_ns(const StepShape& shape) const {
  if (shape.empty()) return 0;
  const double bytes = weight_bytes + kv_bytes_per_token * static_cast<double>(shape.decode_context);
  const double operations = 2.0 * num_parameters * static_cast<double>(shape.num_tokens());
  return as_ns(overhead_ms + 1e3 * std::max(bytes / bytes_per_second, operations / operations_per_second));
}

std::string RooflineCost::description() const {
  return cat("roofline: ", bytes_per_second / 1e9, " GB/s, ", operations_per_second / 1e12, " T operations/s, ",
             weight_bytes / 1e9, " GB of weights");
}

Result<std::shared_ptr<const CostModel>> make_cost_model(std::string_view name) {
  std::string known;
  for (const Named& named : kNamed) {
    if (named.name == name) return named.make();
    known += cat(known.empty() ? "" : ", ", named.name);
  }
  return fail("found '", name, "', wanted one of ", known);
}

}  // namespace quire
