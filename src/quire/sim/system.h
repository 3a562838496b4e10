#pragma once
// System: a server as the simulator sees it: requests go in, steps come out. The engine's own core is one
// (engine_system.h); the papers' baselines are others (reserving_system.h, static_batch_system.h). simulation.h drives
// any of them with a cost model and a virtual clock.
//
//     if (!system.submit(id, spec)) ...            // it can never run; no trace is left
//     while (system.has_work()) {
//       const StepShape& shape = system.plan_step();
//       system.commit(changes);                    // what the step did, for each request
//     }
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/sim/block_film.h"
#include "quire/sim/cost_model.h"
#include "quire/workload/request_spec.h"

namespace quire {

/// Where the pool's slots are, between plan and commit. written + unused + padding + free = the pool, but for shared
/// blocks, which count once in `held`.
struct MemoryUse {
  std::int64_t pool_slots = 0;
  std::int64_t written_slots = 0;   ///< K and V that exist, or are written in this step
  std::int64_t reserved_slots = 0;  ///< will be written by the requests that hold them
  std::int64_t unused_slots = 0;    ///< held, and never written: the rest of a last block too
  std::int64_t rounding_slots = 0;  ///< that the allocator added to what was asked for
  std::int64_t cached_slots = 0;    ///< of the free ones: hold content that a request may find
  std::int64_t free_slots() const {
    return pool_slots - written_slots - reserved_slots - unused_slots - rounding_slots;
  }
};

enum class ChangeKind : std::uint8_t {
  started,  ///< tokens: of its prompt, found in the prefix cache
  token,
  finished,
  preempted,
  chunk,    ///< tokens: of its prompt, computed in this step; from systems that cut prompts
  restored  ///< tokens: lost in a preemption, computed again in this step
};

struct RequestChange {
  RequestId request;
  ChangeKind kind;
  std::int32_t tokens = 0;
};

class System {
 public:
  virtual ~System() = default;

  /// Ids rise by one from 1. False: it can never run, and refusal() says why; the id is used up all the same.
  virtual bool submit(RequestId id, const RequestSpec& spec) = 0;
  /// Of the last request that was refused; empty before.
  virtual const std::string& refusal() const = 0;
  virtual bool has_work() const = 0;

  /// What the next step computes; not empty if has_work(). Valid until the next call.
  virtual const StepShape& plan_step() = 0;
  /// While a step is planned.
  virtual MemoryUse memory() const = 0;
  /// Appends what the step, or its planning, did.
  virtual void commit(std::vector<RequestChange>& changes) = 0;

  /// What each block is, while a step is planned; empty if memory is not in blocks.
  virtual void look_at_blocks(std::vector<BlockCell>& cells) const { cells.clear(); }
  virtual std::int32_t block_size() const { return 0; }       ///< 0: memory is not in blocks
  virtual std::int32_t max_step_tokens() const { return 0; }  ///< 0: no limit

  virtual std::int32_t num_running() const = 0;
  virtual std::int32_t num_waiting() const = 0;
  /// Folds in all that the last plan decided; systems without plans of their own fold in their shapes.
  virtual std::uint64_t plan_digest() const = 0;
  virtual std::optional<std::string> validate() const = 0;
  virtual std::string description() const = 0;
};

}  // namespace quire
