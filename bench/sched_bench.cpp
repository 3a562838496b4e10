// the deciding half without a model: a step of 256 requests, others waiting, larger pools, allocation of blocks

#include "bench/decision_sections.h"

namespace quire::bench {
namespace {

constexpr Section kSections[] = {{"step", scheduler_step},
                                 {"waiting", scheduler_waiting},
                                 {"pool", scheduler_pool},
                                 {"allocation", block_allocation}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
