#include "quire/planning/calibration_fit.h"

#include <algorithm>
#include <cmath>

#include "quire/base/cat.h"

namespace quire::planning {
namespace {

// Where curves may have corners: where matrix kernels change, then ever more apart.
constexpr double kTokenCorners[] = {1,  2,  3,  4,  5,  6,  7,   8,   9,   10,  11,  12,  13,   14,   15,   16,
                                    24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096};
constexpr double kLogitCorners[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int kReweightings = 6, kSweeps = 4000;
constexpr double kFar = 0.02;  ///< relative difference from which a point counts for less

/// Corners at which there are points.
std::vector<double> choose_corners(std::span<const double> candidates, const std::vector<double>& xs) {
  std::vector<double> corners;
  for (double x : candidates)
    if (std::find(xs.begin(), xs.end(), x) != xs.end()) corners.push_back(x);
  return corners;
}

/// The unknowns of the sum, and what a shape multiplies each with.
class Terms {
 public:
  Terms(std::vector<double> tokens, std::vector<double> logits)
      : tokens_(std::move(tokens)), logits_(std::move(logits)) {}

  std::size_t first_remainder() const { return tokens_.size(); }
  std::size_t first_logit() const { return first_remainder() + CalibratedCost::kTokensAtOnce - 1; }
  std::size_t first_rate() const { return first_logit() + logits_.size(); }
  std::size_t count() const { return first_rate() + 8; }
  bool may_be_negative(std::size_t term) const { return term >= first_remainder() && term < first_logit(); }

  std::vector<double> of(const StepShape& shape) const {
    std::vector<double> row(count(), 0.0);
    const std::int64_t tokens = shape.num_tokens();
    spread(tokens_, static_cast<double>(tokens), row.data());
    const std::int64_t remainder = tokens % CalibratedCost::kTokensAtOnce;
    if (tokens > CalibratedCost::kMostExactTokens && remainder > 0)
      row[first_remainder() + static_cast<std::size_t>(remainder) - 1] = 1;
    if (!logits_.empty()) {
      // The curve begins at no logits, which cost nothing.
      const auto logits = static_cast<double>(shape.num_logit_rows);
      if (logits < logits_.front()) {
        row[first_logit()] = logits / logits_.front();
      } else {
        spread(logits_, logits, row.data() + first_logit());
      }
    }
    double* rates = row.data() + first_rate();
    rates[0] = static_cast<double>(shape.num_decode_rows);
    rates[1] = static_cast<double>(shape.decode_context - shape.shared.positions);
    rates[2] = static_cast<double>(shape.num_prefill_rows);
    rates[3] = shape.prefill_squares;
    rates[4] = static_cast<double>(shape.prefill_reads);
    rates[5] = static_cast<double>(shape.shared.positions);
    rates[6] = static_cast<double>(shape.shared.walked);
    rates[7] = shape.is_lone_decode() ? static_cast<double>(shape.decode_context) : 0.0;
    return row;
  }

  CalibratedCost cost(const std::vector<double>& values) const {
    CalibratedCost cost;
    for (std::size_t i = 0; i < tokens_.size(); ++i) cost.by_tokens.points.push_back({tokens_[i], values[i]});
    for (std::size_t i = 1; i < cost.by_remainder.size(); ++i) cost.by_remainder[i] = values[first_remainder() + i - 1];
    cost.by_logits.points.push_back({0, 0});
    for (std::size_t i = 0; i < logits_.size(); ++i)
      cost.by_logits.points.push_back({logits_[i], values[first_logit() + i]});
    cost.decode_row = values[first_rate()];
    cost.decode_context = values[first_rate() + 1];
    cost.prefill_row = values[first_rate() + 2];
    cost.prefill_square = values[first_rate() + 3];
    cost.prefill_read = values[first_rate() + 4];
    cost.shared_context = values[first_rate() + 5];
    cost.shared_walk = values[first_rate() + 6];
    cost.lone_context = values[first_rate() + 7];
    return cost;
  }

 private:
  /// The weights of the corners in the value at x, as CostCurve::at has it.
  static void spread(const std::vector<double>& corners, double x, double* weights) {
    if (corners.size() == 1 || x <= corners.front()) {
      weights[0] = 1;
      return;
    }
    std::size_t i = 1;
    while (i + 1 < corners.size() && corners[i] < x) ++i;
    const double share = (x - corners[i - 1]) / (corners[i] - corners[i - 1]);
    weights[i - 1] = 1 - share;
    weights[i] = share;
  }

  std::vector<double> tokens_, logits_;
};

/// Minimises the weighted squares of rows * values - 1 by one value after another.
class LeastSquares {
 public:
  LeastSquares(std::vector<std::vector<double>> rows, const Terms& terms) : rows_(std::move(rows)), terms_(terms) {
    values_.assign(terms.count(), 0.0);
    differences_.assign(rows_.size(), -1.0);
    weights_.assign(rows_.size(), 1.0);
  }

  void solve() {
    for (int round = 0; round < kReweightings; ++round) {
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        for (std::size_t term = 0; term < values_.size(); ++term) improve(term);
      for (std::size_t r = 0; r < rows_.size(); ++r) weights_[r] = kFar / std::max(kFar, std::abs(differences_[r]));
    }
  }

  const std::vector<double>& values() const { return values_; }
  const std::vector<double>& differences() const { return differences_; }

 private:
  void improve(std::size_t term) {
    double gradient = 0, curvature = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const double factor = rows_[r][term];
      if (factor == 0) continue;
      gradient += weights_[r] * factor * differences_[r];
      curvature += weights_[r] * factor * factor;
    }
    if (curvature == 0) return;
    double next = values_[term] - gradient / curvature;
    if (!terms_.may_be_negative(term)) next = std::max(next, 0.0);
    const double step = next - values_[term];
    values_[term] = next;
    for (std::size_t r = 0; r < rows_.size(); ++r) differences_[r] += step * rows_[r][term];
  }

  std::vector<std::vector<double>> rows_;  ///< divided by the measured time
  const Terms& terms_;
  std::vector<double> values_, differences_, weights_;
};

}  // namespace

Result<FittedSteps> fit_steps(std::span<const CostPoint> points) {
  std::vector<double> tokens, logits;
  for (const CostPoint& point : points) {
    if (!(point.ns > 0 && point.ns < 1e15))
      return fail("a step was measured with ", point.ns, " ns; wanted more than 0");
    tokens.push_back(static_cast<double>(point.shape.num_tokens()));
    logits.push_back(static_cast<double>(point.shape.num_logit_rows));
  }
  const Terms terms(choose_corners(kTokenCorners, tokens), choose_corners(kLogitCorners, logits));
  const std::size_t wanted = terms.first_remainder() + 8;
  if (points.size() < wanted || terms.first_remainder() == 0)
    return fail("found ", points.size(), " measured steps, wanted at least ", std::max<std::size_t>(wanted, 9));
  std::vector<std::vector<double>> rows;
  for (const CostPoint& point : points) {
    rows.push_back(terms.of(point.shape));
    for (double& factor : rows.back()) factor /= point.ns;
  }
  LeastSquares squares(std::move(rows), terms);
  squares.solve();
  FittedSteps result{terms.cost(squares.values()), {}};
  const bool knows_sharing =
      std::any_of(points.begin(), points.end(), [](const CostPoint& point) { return point.shape.shared.walked > 0; });
  if (!knows_sharing) result.cost.shared_context = result.cost.decode_context;
  std::vector<double> errors;
  for (double difference : squares.differences()) errors.push_back(std::abs(difference));
  std::sort(errors.begin(), errors.end());
  result.fit.num_points = static_cast<std::int64_t>(points.size());
  result.fit.median_error = errors[errors.size() / 2];
  result.fit.p95_error = errors[errors.size() * 95 / 100];
  return result;
}

}  // namespace quire::planning
