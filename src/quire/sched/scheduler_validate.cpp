// Scheduler::validate: invariants S1..S6.

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/sched/scheduler.h"

namespace quire {

std::optional<std::string> Scheduler::validate_branches(const LiveRequest& request) const {
  if (request.branches.empty()) return cat("S1: request ", request.view.request, " is live without a branch");
  for (const auto& branch : request.branches) {
    const std::string name = cat("request ", request.view.request, ", branch ", branch->index);
    if (branch->source && (branch->memory || branch->fork_at >= branch->num_tokens()))
      return cat("S4: ", name, " has memory and a source, or nothing to compute");
    const bool knows_source = !branch->source || std::any_of(request.branches.begin(), request.branches.end(),
                                                             [&](const auto& b) { return b.get() == branch->source; });
    if (!knows_source) return cat("S4: the source of ", name, " is not a live branch");
    const std::int64_t reserved = branch->memory ? kv_.reserved_tokens(*branch->memory) : 0;
    if (reserved != branch->computed || branch->remaining() < 1)
      return cat("S4: ", name, " has ", branch->num_tokens(), " tokens, ", branch->computed, " computed, ", reserved,
                 " reserved");
  }
  return std::nullopt;
}

std::optional<std::string> Scheduler::validate_running() const {
  std::int32_t num_sequences = 0;
  for (const LiveRequest* request : running_) {
    const RequestId id = request->view.request;
    if (find(id) != request) return cat("S1: running request ", id, " is not live");
    if (request->state != RequestState::running)
      return cat("S1: request ", id, " in the running list is ", to_string(request->state));
    if (auto violation = validate_branches(*request)) return violation;
    for (const auto& branch : request->branches) num_sequences += branch->memory ? 1 : 0;
  }
  if (!std::is_sorted(running_.begin(), running_.end(), served_before_)) return "S2: the running list is out of order";
  if (rows_running() > max_running_rows_)
    return cat("S3: those running have ", rows_running(), " rows, at most ", max_running_rows_, " may be");
  if (kv_.num_sequences() != num_sequences)
    return cat("S4: ", kv_.num_sequences(), " sequences hold memory, ", num_sequences, " branches run");
  if (!can_have(exempt_need_running())) return "S5: the exempt requests running do not fit the pool";
  return std::nullopt;
}

std::optional<std::string> Scheduler::validate_queue() const {
  std::int32_t num_preempted = 0;
  const LiveRequest* last = nullptr;
  for (const LiveRequest* request : queue_) {
    const RequestId id = request->view.request;
    if (find(id) != request) return cat("S1: queued request ", id, " is not live");
    if (request->state != RequestState::waiting && request->state != RequestState::preempted)
      return cat("S1: request ", id, " in the queue is ", to_string(request->state));
    for (const auto& branch : request->branches)
      if (branch->computed != 0 || branch->memory) return cat("S4: queued request ", id, " has something computed");
    if (request->view.num_preemptions > kMaxPreemptions)
      return cat("S5: request ", id, " was preempted ", request->view.num_preemptions, " times");
    if (last && !served_before_(last, request)) return cat("S2: request ", id, " is out of order in the queue");
    num_preempted += request->state == RequestState::preempted ? 1 : 0;
    last = request;
  }
  if (num_preempted != num_preempted_) return cat("S1: ", num_preempted, " preempted, counted ", num_preempted_);
  return std::nullopt;
}

std::optional<std::string> Scheduler::validate_ageing() const {
  if (by_arrival_.size() != requests_.size())
    return cat("S6: ", by_arrival_.size(), " by arrival, ", requests_.size(), " live");
  for (const auto& [arrival, request] : by_arrival_) {
    if (find(request->view.request) != request || request->view.arrival != arrival)
      return cat("S6: the request of arrival ", arrival, " is not live");
    if (request->is_aged != (arrival < next_to_age_))
      return cat("S6: request ", request->view.request, " has aged or not, out of the order of arrival");
  }
  return std::nullopt;
}

std::optional<std::string> Scheduler::validate() const {
  if (auto violation = kv_.validate()) return violation;
  if (auto violation = validate_running()) return violation;
  if (auto violation = validate_queue()) return violation;
  if (auto violation = validate_ageing()) return violation;
  if (requests_.size() != queue_.size() + running_.size())
    return cat("S1: ", requests_.size(), " live, ", queue_.size(), " queued, ", running_.size(), " running");
  if (counters_.submitted != counters_.finished_total() + requests_.size())
    return cat("S1: ", counters_.submitted, " accepted, ", counters_.finished_total(), " finished, ", requests_.size(),
               " live");
  return std::nullopt;
}

}  // namespace quire
