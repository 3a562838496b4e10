#pragma once
// How fast a whole engine is, as its clients see it: sampling and delivery included. It serves nobody else meanwhile.
// Milliseconds; errors are those of planning::serve, and what cannot be measured.

#include <cstdint>
#include <vector>

#include "quire/engine/engine.h"

namespace quire::planning {

struct DecodeLoad {
  std::int32_t batch = 1;      ///< requests that decode together
  std::int32_t context = 512;  ///< tokens before each measured one, at least
  std::int32_t steps = 64;     ///< measured, at most
};

/// Tokens of its requests, prompt and answer together.
std::int32_t tokens_of_request(const DecodeLoad& load);

/// Steps in which every request of the batch gets one token. The same prompts each time: a prefix cache has them from
/// the second time on.
Result<std::vector<double>> time_decode(engine::Engine& engine, const DecodeLoad& load);

/// To the first token of a prompt that is alone. Prompts of different numbers have nothing in common.
Result<double> time_prefill(engine::Engine& engine, std::int32_t tokens, std::uint64_t number);

}  // namespace quire::planning
