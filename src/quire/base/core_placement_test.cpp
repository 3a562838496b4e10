#include "quire/base/core_placement.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace quire {
namespace {

cpu_set_t allowed_cores() {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  return cores;
}

cpu_set_t only(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return cores;
}

void allow(const cpu_set_t& cores) { EXPECT_EQ(sched_setaffinity(0, sizeof(cores), &cores), 0); }

/// What settle() returns, of a thread that runs on `core` just before and may then use `allowed`.
int settled_from(CorePlacement& placement, int index, int core, const cpu_set_t& allowed) {
  int found = -1;
  std::thread([&] {
    allow(only(core));
    allow(allowed);
    found = placement.settle(index);
    const cpu_set_t after = allowed_cores();
    EXPECT_TRUE(CPU_EQUAL(&allowed, &after)) << "a move binds no thread";
  }).join();
  return found;
}

TEST(CorePlacement, AThreadLeavesTheCoreOfAnotherIfItMayUseOneMore) {
  const cpu_set_t all = allowed_cores();
  const bool has_more = CPU_COUNT(&all) > 1;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    CorePlacement placement(2);
    EXPECT_EQ(settled_from(placement, 0, core, only(core)), core);
    EXPECT_EQ(settled_from(placement, 1, core, only(core)), core) << "it may use no other";
    EXPECT_EQ(settled_from(placement, 1, core, all) != core, has_more);
    EXPECT_EQ(settled_from(placement, 1, core, all) != core, has_more) << "where it was itself is free for it";
  }
}

TEST(CorePlacement, TheFirstThreadStaysAndTheOthersYield) {
  const cpu_set_t all = allowed_cores();
  const int core = sched_getcpu();
  CorePlacement placement(2);
  EXPECT_EQ(settled_from(placement, 1, core, only(core)), core);
  EXPECT_EQ(settled_from(placement, 0, core, only(core)), core);
  EXPECT_EQ(settled_from(placement, 1, core, all) != core, CPU_COUNT(&all) > 1);
}

}  // namespace
}  // namespace quire
