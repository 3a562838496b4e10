#pragma once
// PlaceMirror: what an executor does with the memory operations of vAttention's plans (sched/batch_plan.h). Used by the
// engine's thread.

#include "quire/attention/virtual_kv_store.h"
#include "quire/sched/batch_plan.h"

namespace quire::engine {

class PlaceMirror {
 public:
  /// The store outlives the mirror.
  explicit PlaceMirror(attention::VirtualKvStore& store) : store_(store) {}

  /// Maps, unmaps and copies what the plan says, and begins with what it wants ahead. Once for each plan, in order.
  void apply(const BatchPlan& plan);

  /// False if the kernel has refused memory that the row needs, just now too.
  bool is_ready(const PlanRow& row) { return store_.ensure(row.place, row.end()); }

 private:
  attention::VirtualKvStore& store_;
};

}  // namespace quire::engine
