#pragma once
// How much of a workload's prompts a prefix cache of a given size finds: no time, no answers, one request after
// another. The blocks live in the engine's own BlockPool. A request shares the longest prefix that is there, takes
// blocks for the rest of its prompt, and gives all of them back from the last to the first, so that the end of a prompt
// goes before the prefix that others may share (as in kv/paged_kv_manager.h). When no block is free, the one idle for
// longest goes.
//
// A block counts as found by its name; the last one of a prompt may be partly filled and is found like the others.

#include <cstdint>
#include <span>

#include "quire/workload/request_spec.h"

namespace quire {

struct PrefixReplay {
  std::uint64_t num_blocks = 0;    ///< of all prompts
  std::uint64_t num_distinct = 0;  ///< names
  std::uint64_t prompt_tokens = 0;
  std::uint64_t found_tokens = 0;  ///< of them in blocks that were there
  std::uint64_t found_blocks = 0;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t uncached_requests = 0;  ///< longer than the whole cache: they use none of it

  double token_rate() const {
    return prompt_tokens == 0 ? 0 : static_cast<double>(found_tokens) / static_cast<double>(prompt_tokens);
  }
  double block_rate() const {
    return num_blocks == 0 ? 0 : static_cast<double>(found_blocks) / static_cast<double>(num_blocks);
  }
};

/// capacity_blocks 0: without a limit. Requests without names find nothing; names of sessions do not mix.
PrefixReplay replay_prefixes(std::span<const RequestSpec> requests, std::int32_t capacity_blocks);

}  // namespace quire
