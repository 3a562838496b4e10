#pragma once
// ServedRun: a workload on a real engine, in this process and in real time: each request is submitted when it arrives,
// and its client's callback notes when tokens come. Times to tokens count
// from the submission itself, which comes a little after the arrival where the machine is busy. The figures are those
// of SimulationResult, so that both can be compared.

#include <cstdint>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/sim/histogram.h"
#include "quire/workload/request_spec.h"

namespace quire::planning {

struct ServedRun {
  std::uint64_t num_finished = 0, output_tokens = 0;
  std::uint64_t end_ns = 0;  ///< when the last request ended, from the start
  Histogram ttft_ns, inter_token_ns, end_to_end_ns;
  std::vector<std::vector<std::uint64_t>> token_ns;  ///< of each request, when its tokens came
};

/// The tokens of a request's prompt: equal for equal names of blocks, else its own. Ids are below vocab_size.
std::vector<TokenId> prompt_of(const RequestSpec& spec, std::uint64_t index, std::int64_t vocab_size);

/// Waits until all have ended; answers have exactly the workload's lengths, of the most likely tokens. An error if one
/// is refused or fails.
Result<ServedRun> serve(engine::Engine& engine, const std::vector<RequestSpec>& requests);

}  // namespace quire::planning
