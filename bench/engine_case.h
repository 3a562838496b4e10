#pragma once
// What benchmarks of a whole engine run: the engine in this process, and what one step has to do at least.

#include <memory>

#include "bench/forward_case.h"
#include "quire/engine/engine.h"

namespace quire::bench {

struct EngineCase {
  std::unique_ptr<engine::Engine> engine;
  Work work;

  /// `engine_options` of the model, threads and tier that `options` say.
  static Result<EngineCase> open(const Options& options, engine::EngineOptions engine_options);
};

}  // namespace quire::bench
