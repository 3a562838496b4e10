#pragma once
// A block trace: requests with the names of their prompts' blocks, in a compact text form of our own. Head, then a
// request a line:
//
//     quire-block-trace 512                    tokens a block
//     GAP PROMPT OUTPUT FIRST+COUNT ...        ms since the request before; tokens; runs of consecutive names
//
// Names cover the prompt: ceil(PROMPT / tokens a block) of them. Errors are as for other traces (trace.h).

#include "quire/workload/trace.h"

namespace quire {

inline constexpr std::string_view kBlockTraceHead = "quire-block-trace ";

Result<Trace> read_block_trace(std::string_view file, std::string_view text);

}  // namespace quire
