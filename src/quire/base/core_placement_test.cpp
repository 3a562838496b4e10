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

void allow_only(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  EXPECT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
}

/// Both of a team on one core, where the second may use more; then where it may not.
TEST(CorePlacement, AThreadMovesOffTheCoreOfAnotherIfItMay) {
  CorePlacement placement(2);
  const cpu_set_t all = allowed_cores();
  const int core = sched_getcpu();
  std::thread([&] {
    allow_only(core);
    placement.settle(0);
  }).join();
  std::thread([&] {
    allow_only(core);
    placement.settle(1);
    EXPECT_EQ(sched_getcpu(), core) << "it may use no other";
    EXPECT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
    if (sched_getcpu() == core) placement.settle(1);
    const cpu_set_t after = allowed_cores();
    EXPECT_TRUE(CPU_EQUAL(&all, &after)) << "a move binds no thread";
  }).join();
}

TEST(CorePlacement, AThreadMovesToACoreThatTheTeamLeavesFree) {
  const cpu_set_t all = allowed_cores();
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    CorePlacement placement(2);
    std::thread([&] {
      allow_only(core);
      placement.settle(0);
      placement.settle(1);  // as the other thread, on the same core, which may use no other
      EXPECT_EQ(sched_getcpu(), core);
    }).join();
  }
}

}  // namespace
}  // namespace quire
