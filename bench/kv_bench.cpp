// KV memory: paging against contiguous memory, layer groups, swap, prefix hits, forks, allocation, scheduler's step

#include "bench/attention_sections.h"
#include "bench/decision_sections.h"
#include "bench/layer_group_sections.h"
#include "bench/prompt_sections.h"
#include "bench/tier_sections.h"
#include "bench/vattention_sections.h"

namespace quire::bench {
namespace {

constexpr Section kSections[] = {
    {"paged-contiguous", paged_against_contiguous},
    {"order", decode_block_order},
    {"block-size", decode_block_size},
    {"vattention-mapping", page_group_mapping},
    {"vattention-memory", page_group_memory},
    {"swap", swap_against_recompute},
    {"layer-groups", layer_group_memory},
    {"prefix-hit", prefix_hit},
    {"warm-prompt", warm_prompt},
    {"fork", sequence_fork},
    {"allocation", block_allocation},
    {"scheduler-step", scheduler_step},
    {"scheduler-waiting", scheduler_waiting},
};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
