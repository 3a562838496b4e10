#pragma once
// A preemption in words, for a log: which request, what becomes of its content, and the numbers that this was chosen
// by.

#include <cstdint>
#include <string>

#include "quire/sched/events.h"
#include "quire/sched/options.h"

namespace quire::engine {

/// One line without its end. `block_bytes` are those of one block of the pool.
std::string preemption_text(const RequestPreempted& event, const CoreOptions& options, std::int64_t block_bytes);

}  // namespace quire::engine
