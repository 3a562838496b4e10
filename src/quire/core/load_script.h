#pragma once
// LoadScript: everything that happens to a core from outside, as plain data made from a seed: options, and for each
// step the requests that come, end or fail. Swarm testing: a seed switches features and faults on at random, and picks
// tiny pools and lengths near block boundaries, so that rare combinations meet. run_script() plays it on a ShadowRun,
// which checks every step and every answer; shrink_script() looks for a small part of it that still fails.
//
// For tests and ./dev simulate. Deterministic: a seed is the same script on every machine.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quire/core/shadow_run.h"

namespace quire {

/// A branch of a request, or one of its next rows.
struct ScriptTarget {
  RequestId request;
  std::int32_t number = 0;
};

/// What comes in before a step, in this order. Ids may be unknown, ended, or named twice.
struct ScriptStep {
  std::vector<CoreRequest> submits;
  std::vector<RequestId> cancels;
  std::vector<ScriptTarget> finishes;  ///< of branches
  std::vector<ScriptTarget> failures;  ///< the executor fails to compute the request's next row but so many
  std::vector<ScriptTarget> refusals;  ///< the system has no memory for the request in so many steps

  std::size_t num_commands() const {
    return submits.size() + cancels.size() + finishes.size() + failures.size() + refusals.size();
  }
};

struct LoadScript {
  std::uint64_t seed = 0;
  CoreOptions options;
  std::int32_t vocabulary = 40;
  bool hash_collides = false;  ///< all block keys are equal
  DiskBehaviour disk;          ///< while it runs; matters with options.kv_files
  std::size_t max_files = 0;   ///< that are kept; 0: all
  bool restarts = false;       ///< runs a second time, on a new core that finds the files of the first
  std::vector<ScriptStep> steps;

  std::size_t num_commands() const;
};

enum class ScriptMemory { paged, vattention };

LoadScript make_script(std::uint64_t seed, ScriptMemory memory = ScriptMemory::paged);

/// How much the scripts made happen; tests look at it, so that a load too light to mean anything is noticed.
struct ScriptTotals {
  std::uint64_t steps = 0, preemptions = 0, refused = 0, exempt = 0, hits = 0, evictions = 0, collisions = 0, aged = 0;
  std::uint64_t proposed = 0, accepted = 0;                   ///< tokens
  std::uint64_t gangs_preempted = 0, searches_preempted = 0;  ///< and resumed; requests with several branches, searches
  std::uint64_t swaps = 0, no_room = 0, loads = 0, group_loads = 0 /* with layer groups */, frames_evicted = 0,
                file_reads = 0, failed_reads = 0, files_removed = 0;
  std::uint64_t refusals = 0, failed_by_refusal = 0;  ///< by the system: preemptions, and requests that ended by them
};

/// Plays the script, then lets everything end without more faults from outside (the disk goes on as it did). The first
/// thing that was wrong, or nullopt.
std::optional<std::string> run_script(const LoadScript& script, ScriptTotals& totals);

/// A script with as few commands as a greedy search finds (steps, then single commands, then shorter prompts and
/// answers) of which `fails` is still true. `fails` is called often.
LoadScript shrink_script(LoadScript script, const std::function<bool(const LoadScript&)>& fails);

/// Lines that a person can read.
std::string to_text(const LoadScript& script);

}  // namespace quire
