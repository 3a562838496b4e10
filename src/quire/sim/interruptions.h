#pragma once
// Interruptions: what else runs on a machine takes its cores for a moment, again and again, and the step that computes
// then ends so much later. How often and for how long was measured (planning/calibrate.h).

#include <cstdint>
#include <vector>

namespace quire {

struct Interruptions {
  double per_second = 0;           ///< of computing
  std::vector<double> lengths_ns;  ///< equally likely ones; empty if and only if there are none

  /// What the step of that number is interrupted for if it computes for so long; drawn by the number alone, so equal in
  /// every run.
  std::uint64_t of_step(std::uint64_t number, std::uint64_t ns) const;
  /// What they add on average, relative to the time that is computed.
  double share() const;
  friend bool operator==(const Interruptions&, const Interruptions&) = default;
};

}  // namespace quire
