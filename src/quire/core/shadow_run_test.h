#pragma once
// What tests of a ShadowRun begin and end with. For one thread.

#include <gtest/gtest.h>

#include "quire/core/shadow_run.h"

namespace quire {

/// Submits a request that must not be refused.
inline void accept(ShadowRun& run, const CoreRequest& request) {
  const auto refusal = run.submit(request);
  ASSERT_FALSE(refusal.has_value()) << refusal->message;
}

/// Runs until all requests have ended and checks every answer and that nothing is left behind.
inline void end_well(ShadowRun& run) {
  run.run_to_end();
  if (!run.problem()) run.check_end();
  EXPECT_EQ(run.problem(), std::nullopt);
}

}  // namespace quire
