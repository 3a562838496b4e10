#pragma once
// What binds: the resource whose relief raises the rate that holds the limits the most. Each resource is relieved by
// itself and the search is run again:
//
//     KV memory         a pool twice as large
//     prefill compute   prompts cost half
//     decode bandwidth  decodes cost half
//     batch cap         twice as many rows, and at least as many tokens a step
//     queue             arrivals without bursts, evenly spaced
//
// Prompts and decodes at half the cost also hold blocks and rows for half the time, so what they gain contains what
// more memory or more rows would: these two bind as soon as their own gain is kContained of the largest.
//
// Beside that stands what the steps of a run a tenth above the knee say (trial.h, StepShares): the evidence a reader
// can check. Relief decides, since shares of time cannot: a full pool may be no loss, and a busy machine is busy with
// both.

#include <string>
#include <string_view>
#include <vector>

#include "quire/planning/trial.h"

namespace quire::planning {

enum class Cause { kv_memory, prefill_compute, decode_bandwidth, batch_cap, queue };
inline constexpr Cause kAllCauses[] = {Cause::kv_memory, Cause::prefill_compute, Cause::decode_bandwidth,
                                       Cause::batch_cap, Cause::queue};
std::string_view to_string(Cause cause);
/// What relieving it means: "a pool twice as large".
std::string_view relief_words(Cause cause);

struct Relief {
  Cause cause = Cause::kv_memory;
  double rate = 0;  ///< that holds the limits then
  double gain = 0;  ///< over the knee's: 0.5 is half as much again
};

struct Binding {
  Cause cause = Cause::kv_memory;
  std::vector<Relief> reliefs;  ///< of all causes: the one that binds, then by gain, the largest first
  Trial evidence;               ///< a tenth above the knee, to its end
  bool is_clear = false;        ///< its gain is at least kClearGain, and at least half again the next
};
inline constexpr double kClearGain = 0.05;
inline constexpr double kContained = 0.75;
inline constexpr double kEvidenceFactor = 1.1;

/// The scenario with the resource relieved.
Scenario relieved(const Scenario& scenario, Cause cause);

/// The same search as the knee's, from its rate on.
Relief find_relief(const Scenario& scenario, Cause cause, const Knee& knee, double precision);

/// From the reliefs of all causes.
Binding judge(std::vector<Relief> reliefs, Trial evidence);

/// What the evidence says about the cause, in numbers.
std::string evidence_words(Cause cause, const Trial& trial);

}  // namespace quire::planning
