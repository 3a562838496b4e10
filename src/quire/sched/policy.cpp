#include "quire/sched/policy.h"

namespace quire {

Result<std::unique_ptr<QueuePolicy>> make_queue_policy(std::string_view name) {
  if (name == "fcfs") return std::unique_ptr<QueuePolicy>(std::make_unique<FcfsQueue>());
  return fail("queue_policy is '", name, "'; there is: fcfs");
}

Result<std::unique_ptr<VictimPolicy>> make_victim_policy(std::string_view name) {
  if (name == "latest-arrived") return std::unique_ptr<VictimPolicy>(std::make_unique<LatestArrivedVictim>());
  return fail("victim_policy is '", name, "'; there is: latest-arrived");
}

}  // namespace quire
