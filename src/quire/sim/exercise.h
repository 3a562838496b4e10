#pragma once
// The exercise: so many requests with lengths drawn uniformly, all there at the start, on a small pool of KV memory,
// decoded token by token; paging against an array of the maximum length for each request.
//
//     static    a request holds its whole length from the start, in blocks of the engine's manager; nobody is preempted
//     growing   a request holds what it has written; the engine's own core schedules. When blocks run out, the oldest
//               request's blocks, K and V, go to a file, and come back when they fit; what comes back is compared
//
// The contiguous side holds max_len slots a request in both modes; only what counts as filled differs (the whole
// length, or what has been written).
//
// Means are over the steps in which requests wait (over all if nobody ever does), weighted equally; fragmentation is a
// sum of slots over all steps over another.
//
// The bound on the ratio is that of means over all requests, or all of their steps: where requests wait among shorter
// or younger ones than these, as at the start of a run on large blocks, the ratio passes it a little. No clock and no
// file here: virtual time comes from a cost model, blocks go through a BlockFile.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/sim/simulation.h"

namespace quire {

/// Where blocks go when memory runs out. Implemented outside, on a real file.
class BlockFile {
 public:
  virtual ~BlockFile() = default;
  /// Returns where it is.
  virtual Result<std::uint64_t> write(std::span<const std::byte> bytes) = 0;
  virtual Result<void> read(std::uint64_t at, std::span<std::byte> bytes) = 0;
};

enum class LengthMode { static_length, growing };
std::string_view to_string(LengthMode mode);

struct ExerciseOptions {
  std::int32_t num_requests = 100;
  std::int32_t shortest = 50, longest = 500;  ///< tokens, prompt included; uniform
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 512;
  std::vector<std::int32_t> max_lens = {512, 1024, 2048};  ///< each >= longest
  std::uint64_t seed = 42;
};
Result<void> check_options(const ExerciseOptions& options);

inline constexpr std::size_t kUtilisationBuckets = 20;

/// One way of managing memory, in one setting. Shares are of the pool, or of what is held (internal).
struct ExerciseSide {
  double blocks_occupied = 0;  ///< mean, in blocks of block_size
  std::int64_t blocks_occupied_max = 0;
  double utilisation = 0;             ///< filled slots of the pool
  double internal_fragmentation = 0;  ///< held and unfilled, of held slot-steps
  double external_fragmentation = 0;  ///< free while requests wait, of the pool
  double requests_at_once_mean = 0;
  std::int32_t requests_at_once_max = 0;
  std::uint64_t allocation_failures = 0;  ///< the head of the queue, or a running request, found no room
  std::uint64_t preemptions = 0;
  std::uint64_t bytes_written = 0, bytes_read = 0;
  std::uint64_t num_steps = 0, num_waiting_steps = 0;
  std::uint64_t virtual_ns = 0;
  std::uint64_t digest = 0;                                                ///< of all that was decided
  std::array<std::uint64_t, kUtilisationBuckets> utilisation_histogram{};  ///< steps by utilisation, from 0 to 1
  std::vector<float> utilisation_by_step;
};

struct ExerciseSetting {
  std::int32_t max_len = 0;
  LengthMode mode = LengthMode::static_length;
  std::int32_t block_size = 16;
  ExerciseSide paged, contiguous;
  double concurrency_ratio = 0;  ///< of the means
  double concurrency_bound = 0;  ///< of requests that hold, in blocks, the mean of all: how many fit over arrays
  double concurrency_bound_by_step = 0;  ///< the same with each request weighted by the steps it runs
};

struct ExerciseReport {
  ExerciseOptions options;
  std::vector<std::int32_t> lengths;      ///< [num_requests]
  std::int64_t unlimited_blocks = 0;      ///< all requests at once, whole length in blocks
  std::int64_t unlimited_arrays = 0;      ///< the same as arrays of the first max_len, in blocks
  std::vector<ExerciseSetting> settings;  ///< by max_len, then static, growing
  std::vector<ExerciseSetting>
      sweep;  ///< the first max_len, static and growing, block sizes 8 to 128 that divide the pool
  std::uint64_t blocks_restored = 0;  ///< read back and compared, K and V
  std::string cost;                   ///< what virtual time is made of
  SimulationResult growing;           ///< the first max_len, paged: steps, requests one by one, film of the blocks
};

/// What a block's slot holds in the exercise: K and V of this many f32 each.
inline constexpr std::int32_t kExerciseWidth = 16;
/// Virtual time of writing and reading blocks.
inline constexpr std::uint64_t kExerciseFileBytesPerSecond = 1'000'000'000;

/// An error of `file` ends it. Content that comes back different is an error too, with the place.
Result<ExerciseReport> run_exercise(const ExerciseOptions& options, BlockFile& file);

}  // namespace quire
