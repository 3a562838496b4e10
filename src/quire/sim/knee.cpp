#include "quire/sim/knee.h"

#include "quire/base/check.h"

namespace quire {

std::optional<std::size_t> find_knee(std::span<const double> x, std::span<const double> y) {
  QUIRE_CHECK(x.size() == y.size(), x.size(), " x and ", y.size(), " y");
  if (x.size() < 3 || !(x.back() > x.front()) || !(y.back() > y.front())) return std::nullopt;
  std::optional<std::size_t> knee;
  double deepest = kLeastDepth;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double depth = (x[i] - x.front()) / (x.back() - x.front()) - (y[i] - y.front()) / (y.back() - y.front());
    if (depth <= deepest) continue;
    deepest = depth;
    knee = i;
  }
  return knee;
}

}  // namespace quire
