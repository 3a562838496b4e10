#include "quire/sched/policy.h"

#include <array>
#include <string>

namespace quire {
namespace {

// -- queue policies --

/// The order of those whom the policy itself does not tell apart.
bool precedes_among_equals(const RequestView& a, const RequestView& b) {
  const bool a_was_preempted = a.num_preemptions > 0, b_was_preempted = b.num_preemptions > 0;
  if (a_was_preempted != b_was_preempted) return a_was_preempted;
  return a.arrival < b.arrival;
}

class FcfsQueue final : public QueuePolicy {
 public:
  bool serves_before(const RequestView& a, const RequestView& b) const override { return a.arrival < b.arrival; }
};

class PriorityQueue final : public QueuePolicy {
 public:
  bool serves_before(const RequestView& a, const RequestView& b) const override {
    return a.priority != b.priority ? a.priority < b.priority : precedes_among_equals(a, b);
  }
};

class ShortestPromptQueue final : public QueuePolicy {
 public:
  bool serves_before(const RequestView& a, const RequestView& b) const override {
    return a.prompt_tokens != b.prompt_tokens ? a.prompt_tokens < b.prompt_tokens : precedes_among_equals(a, b);
  }
};

class LongestCachedPrefixQueue final : public QueuePolicy {
 public:
  bool serves_before(const RequestView& a, const RequestView& b) const override {
    return a.cached_tokens != b.cached_tokens ? a.cached_tokens > b.cached_tokens : precedes_among_equals(a, b);
  }
  bool reads_cached_tokens() const override { return true; }
};

// -- victim policies --

bool is_later(const RunningView& a, const RunningView& b) { return a.request.arrival > b.request.arrival; }

class LatestArrivedVictim final : public VictimPolicy {
 public:
  bool yields_before(const RunningView& a, const RunningView& b) const override { return is_later(a, b); }
};

class OldestVictim final : public VictimPolicy {
 public:
  bool yields_before(const RunningView& a, const RunningView& b) const override { return is_later(b, a); }
};

class LowestPriorityVictim final : public VictimPolicy {
 public:
  bool yields_before(const RunningView& a, const RunningView& b) const override {
    return a.request.priority != b.request.priority ? a.request.priority > b.request.priority : is_later(a, b);
  }
};

class MostBlocksVictim final : public VictimPolicy {
 public:
  bool yields_before(const RunningView& a, const RunningView& b) const override {
    return a.num_blocks != b.num_blocks ? a.num_blocks > b.num_blocks : is_later(a, b);
  }
};

class LeastProgressVictim final : public VictimPolicy {
 public:
  bool yields_before(const RunningView& a, const RunningView& b) const override {
    if (a.num_generated != b.num_generated) return a.num_generated < b.num_generated;
    return a.num_computed != b.num_computed ? a.num_computed < b.num_computed : is_later(a, b);
  }
};

// -- names --

template <class Policy, class Kind>
std::unique_ptr<Policy> make() {
  return std::make_unique<Kind>();
}

template <class Policy>
struct Named {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

constexpr Named<QueuePolicy> kQueuePolicies[] = {
    {"fcfs", make<QueuePolicy, FcfsQueue>},
    {"priority", make<QueuePolicy, PriorityQueue>},
    {"shortest-prompt", make<QueuePolicy, ShortestPromptQueue>},
    {"longest-cached-prefix", make<QueuePolicy, LongestCachedPrefixQueue>},
};

constexpr Named<VictimPolicy> kVictimPolicies[] = {
    {"latest-arrived", make<VictimPolicy, LatestArrivedVictim>},
    {"oldest", make<VictimPolicy, OldestVictim>},
    {"lowest-priority", make<VictimPolicy, LowestPriorityVictim>},
    {"most-blocks", make<VictimPolicy, MostBlocksVictim>},
    {"least-progress", make<VictimPolicy, LeastProgressVictim>},
};

template <class Policy, std::size_t n>
constexpr std::array<std::string_view, n> names_of(const Named<Policy> (&policies)[n]) {
  std::array<std::string_view, n> names;
  for (std::size_t i = 0; i < n; ++i) names[i] = policies[i].name;
  return names;
}

constexpr auto kQueueNames = names_of(kQueuePolicies);
constexpr auto kVictimNames = names_of(kVictimPolicies);

template <class Policy, std::size_t n>
Result<std::unique_ptr<Policy>> make_named(std::string_view option, std::string_view name,
                                           const Named<Policy> (&policies)[n]) {
  std::string known;
  for (const Named<Policy>& policy : policies) {
    if (policy.name == name) return policy.make();
    if (!known.empty()) known += ", ";
    known += policy.name;
  }
  return fail(option, " is '", name, "'; there are: ", known);
}

}  // namespace

Result<std::unique_ptr<QueuePolicy>> make_queue_policy(std::string_view name) {
  return make_named("queue_policy", name, kQueuePolicies);
}

Result<std::unique_ptr<VictimPolicy>> make_victim_policy(std::string_view name) {
  return make_named("victim_policy", name, kVictimPolicies);
}

std::span<const std::string_view> queue_policy_names() { return kQueueNames; }
std::span<const std::string_view> victim_policy_names() { return kVictimNames; }

}  // namespace quire
