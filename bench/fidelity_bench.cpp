// what the planner predicts from a calibration against what the engine does: plans, steps, latencies (some minutes)

#include "bench/fidelity_sections.h"

namespace quire::bench {
namespace {

constexpr Section kSections[] = {
    {"chat", fidelity_of_chat}, {"burst", fidelity_of_a_burst}, {"shared", fidelity_of_shared_prefixes}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
