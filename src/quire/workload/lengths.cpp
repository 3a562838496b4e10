#include "quire/workload/lengths.h"

#include <algorithm>

#include "quire/base/elementary.h"
#include "quire/workload/numbers.h"
#include "quire/workload/request_spec.h"
#include "quire/workload/sampling.h"

namespace quire {
namespace {

constexpr std::string_view kWanted =
    "fixed:N, uniform:LOW,HIGH, exponential:MEAN, lognormal:MU,SIGMA or pareto:LOW,ALPHA, with @LOW-HIGH behind it if "
    "lengths outside are to be drawn again";

/// A filter must let so many through of so many draws; else to draw again takes too long.
constexpr int kTrialDraws = 10'000, kTrialHits = 10;
constexpr std::uint64_t kTrialSeed = 1;

/// So often what lies outside of a filter that passed its trial is drawn again, which never comes to its end.
constexpr int kMaxDraws = 1'000'000;

struct Shape {
  std::string_view name;
  LengthDistribution::Kind kind;
  std::size_t num_parameters;
};
constexpr Shape kShapes[] = {{"fixed", LengthDistribution::Kind::fixed, 1},
                             {"uniform", LengthDistribution::Kind::uniform, 2},
                             {"exponential", LengthDistribution::Kind::exponential, 1},
                             {"lognormal", LengthDistribution::Kind::lognormal, 2},
                             {"pareto", LengthDistribution::Kind::pareto, 2}};

bool is_whole_length(double x) { return x >= 1 && x <= double(kMaxLength) && x == double(std::int64_t(x)); }

bool are_sensible(LengthDistribution::Kind kind, double a, double b) {
  switch (kind) {
    case LengthDistribution::Kind::fixed:
      return is_whole_length(a);
    case LengthDistribution::Kind::uniform:
      return is_whole_length(a) && is_whole_length(b) && a <= b;
    case LengthDistribution::Kind::exponential:
      return a > 0 && a <= double(kMaxLength);
    case LengthDistribution::Kind::lognormal:
      return a >= -16 && a <= 16 && b >= 0 && b <= 16;
    case LengthDistribution::Kind::pareto:
      return is_whole_length(a) && b > 0 && b <= 100;
  }
  return false;
}

}  // namespace

Result<LengthDistribution> LengthDistribution::parse(std::string_view text) {
  const Error refusal = fail("found '", text, "', wanted ", kWanted);
  LengthDistribution out;
  std::string_view shape = text.substr(0, text.find('@'));
  if (shape.size() < text.size()) {
    const auto bounds = split(text.substr(shape.size() + 1), '-');
    if (bounds.size() != 2) return refusal;
    const auto low = parse_integer(bounds[0]), high = parse_integer(bounds[1]);
    if (!low || !high || *low < 1 || *high < *low || *high > kMaxLength) return refusal;
    out.low_ = *low;
    out.high_ = *high;
  }
  const std::size_t colon = shape.find(':');
  if (colon == std::string_view::npos) return refusal;
  const auto parameters = split(shape.substr(colon + 1), ',');
  const auto known = std::find_if(std::begin(kShapes), std::end(kShapes),
                                  [&](const Shape& s) { return s.name == shape.substr(0, colon); });
  if (known == std::end(kShapes) || parameters.size() != known->num_parameters) return refusal;
  const auto a = parse_number(parameters[0]), b = parse_number(parameters.back());
  if (!a || !b || !are_sensible(known->kind, *a, *b)) return refusal;
  out.kind_ = known->kind;
  out.a_ = *a;
  out.b_ = *b;
  int hits = 0;
  Rng rng(kTrialSeed);
  for (int i = 0; out.high_ > 0 && i < kTrialDraws; ++i) hits += out.keeps(out.draw(rng)) ? 1 : 0;
  if (out.high_ > 0 && hits < kTrialHits)
    return fail("found '", text, "', of which ", hits, " of ", kTrialDraws, " lengths lie within ", out.low_, " to ",
                out.high_, ", wanted at least ", kTrialHits);
  return out;
}

std::int64_t LengthDistribution::draw(Rng& rng) const {
  double value = a_;
  switch (kind_) {
    case Kind::fixed:
      break;
    case Kind::uniform:
      return rng.between(static_cast<std::int64_t>(a_), static_cast<std::int64_t>(b_));
    case Kind::exponential:
      value = 1.0 + sample_exponential(rng, a_);
      break;
    case Kind::lognormal:
      value = sample_lognormal(rng, a_, b_);
      break;
    case Kind::pareto:
      value = a_ * pow_f64(1.0 - rng.uniform(), -1.0 / b_);
      break;
  }
  return static_cast<std::int64_t>(std::clamp(value, 1.0, static_cast<double>(kMaxLength)));
}

std::int32_t LengthDistribution::sample(Rng& rng) const {
  std::int64_t length = draw(rng);
  for (int i = 1; i < kMaxDraws && !keeps(length); ++i) length = draw(rng);
  return static_cast<std::int32_t>(length);
}

LengthPair IndependentLengths::draw(Rng& rng) const { return {prompt_.sample(rng), output_.sample(rng)}; }

LengthPair IndependentLengths::sample(Rng& rng) const {
  LengthPair pair = draw(rng);
  for (int i = 1; i < kMaxDraws && !keeps(pair); ++i) pair = draw(rng);
  return pair;
}

Result<void> IndependentLengths::check() const {
  int hits = 0;
  Rng rng(kTrialSeed);
  for (int i = 0; i < kTrialDraws; ++i) hits += keeps(draw(rng)) ? 1 : 0;
  if (hits >= kTrialHits) return {};
  return fail("found ", max_total_, ", which ", hits, " of ", kTrialDraws,
              " pairs of these lengths keep to, wanted at least ", kTrialHits, ", or 0 for no limit");
}

}  // namespace quire
