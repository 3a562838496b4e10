#include "quire/sim/interruptions.h"

#include "quire/base/rng.h"

namespace quire {

std::uint64_t Interruptions::of_step(std::uint64_t number, std::uint64_t ns) const {
  if (lengths_ns.empty()) return 0;
  Rng rng(number);
  double sum = 0;
  for (double left = per_second * 1e-9 * static_cast<double>(ns); left > 0; left -= 1) {
    if (left < 1 && !rng.chance(left)) break;
    sum += lengths_ns[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(lengths_ns.size()) - 1))];
  }
  return static_cast<std::uint64_t>(sum + 0.5);
}

double Interruptions::share() const {
  double sum = 0;
  for (double length : lengths_ns) sum += length;
  return lengths_ns.empty() ? 0 : per_second * 1e-9 * sum / static_cast<double>(lengths_ns.size());
}

}  // namespace quire
