#include "quire/engine/preemption_text.h"

#include "quire/base/cat.h"
#include "quire/sched/live_request.h"

namespace quire::engine {
namespace {

std::string content_of(const RequestPreempted& event, std::int64_t block_bytes) {
  return cat(event.num_blocks, " blocks of its own (", event.num_blocks * block_bytes, " bytes, ", event.num_tokens,
             " tokens)");
}

/// What both ways would take by the rates, where they are known.
std::string costs_of(const RequestPreempted& event, const CoreOptions& options) {
  if (options.copy_block_ns == 0 || options.compute_token_ns == 0) return "";
  return cat("; copying takes ", event.num_blocks * options.copy_block_ns / 1000, " us at ", options.copy_block_ns,
             " ns a block, computing ", event.num_tokens * options.compute_token_ns / 1000, " us at ",
             options.compute_token_ns, " ns a token");
}

std::string reason_of(const RequestPreempted& event, const CoreOptions& options, std::int64_t block_bytes) {
  switch (event.kind) {
    case PreemptionKind::swap:
      return cat("swap: ", content_of(event, block_bytes), " go to RAM", costs_of(event, options));
    case PreemptionKind::recompute_asked:
      return "recompute: --preemption asks for it";
    case PreemptionKind::recompute_no_tiers:
      return "recompute: there is no RAM tier";
    case PreemptionKind::recompute_no_room:
      return cat("recompute: the RAM tier has no room for ", content_of(event, block_bytes));
    case PreemptionKind::recompute_cheaper:
      return cat("recompute: cheaper for ", content_of(event, block_bytes), costs_of(event, options));
    case PreemptionKind::recompute_refused:
      return "recompute: the system refused a memory mapping";
  }
  return std::string(to_string(event.kind));
}

}  // namespace

std::string preemption_text(const RequestPreempted& event, const CoreOptions& options, std::int64_t block_bytes) {
  return cat("request ", event.request, " preempted (", event.num_preemptions, " of at most ", kMaxPreemptions,
             " times), ", reason_of(event, options, block_bytes));
}

}  // namespace quire::engine
