#include "quire/core/command_log.h"

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/core/byte_io.h"
#include "quire/core/engine_core.h"
#include "quire/core/shadow_executor.h"
#include "quire/core/shadow_run.h"

namespace quire {
namespace {

CoreOptions small_options() {
  CoreOptions options;
  options.num_blocks = 6;
  options.block_size = 8;
  options.context_tokens = 48;
  options.token_budget = 16;
  return options;
}

/// A short run with every kind of command, refusals and preemptions among them.
std::vector<std::byte> recorded_log() {
  MemoryLog log;
  const auto core = *EngineCore::create(small_options(), &log);
  ShadowExecutor executor(6, small_options().geometry(), 100);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    CoreRequest request;
    request.id = RequestId{id};
    request.prompt = make_prompt(request.id, static_cast<std::int32_t>(4 + id), 100);
    request.max_tokens = id == 6 ? 100 : 24;  // the last one is refused
    request.stop_tokens = {TokenId{3}};
    EXPECT_EQ(core->submit(request).has_value(), id == 6);
  }
  for (int step = 0; core->has_work(); ++step) {
    StepResult result = executor.execute(core->plan_step());
    if (step == 30) result.rows[0].failed = true;
    core->commit(result);
    if (step == 12) core->cancel(RequestId{2});
    if (step == 13) core->cancel(RequestId{2});
    if (step == 40) core->finish_branch(RequestId{5}, 0);
  }
  EXPECT_GT(core->counters().preemptions, 0u);
  return log.bytes();
}

TEST(CommandLog, AReplayGivesTheSamePlansAndTheSameBytes) {
  const std::vector<std::byte> log = recorded_log();
  MemoryLog again;
  const Result<Replay> second = replay(log, &again);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->first_difference, std::nullopt);
  EXPECT_EQ(again.bytes(), log);
  EXPECT_EQ(second->options.num_blocks, 6);
  EXPECT_EQ(second->num_commands, 9u);
  EXPECT_GT(second->plan_digests.size(), 10u);
}

TEST(CommandLog, IsTheSameOnEveryMachine) {
  Digest digest;
  digest.add_bytes(recorded_log());
  EXPECT_EQ(digest.value(), 10704381889094275176u);
}

TEST(CommandLog, ALogMayEndAfterAnyRecordAndACutRecordIsAnError) {
  const std::vector<std::byte> log = recorded_log();
  int num_whole = 0;
  for (std::size_t size = 0; size < log.size(); ++size) {
    const Result<Replay> part = replay(std::span(log).first(size));
    num_whole += part.ok();
    if (part.ok()) continue;
    const std::string& message = part.error().message;
    EXPECT_TRUE(message.find("cut") != std::string::npos || message.find("header") != std::string::npos ||
                message.find("does not begin") != std::string::npos)
        << message;
  }
  EXPECT_GT(num_whole, 20);
}

TEST(CommandLog, APlanThatDiffersIsReportedByItsStep) {
  std::vector<std::byte> log = recorded_log();
  // The first token of the first prompt: after the magic, the version, seven options, three texts, one flag, the tag,
  // the id, the count. Of the manager: a text, two sizes, three numbers. Of the tiers: a number, a flag, a text, two
  // rates. Of the layer groups: a count, a window.
  const std::size_t manager = (4 + 5) + 2 * 8 + 3 * 4;
  const std::size_t tiers = 4 + 1 + (4 + 4) + 8 + 8;
  const std::size_t groups = 4 + 4;
  const std::size_t at = 8 + 4 + 7 * 4 + (4 + 4) + (4 + 14) + (4 + 5) + 1 + manager + tiers + groups + 1 + 8 + 4;
  log[at] ^= std::byte{1};
  const Result<Replay> second = replay(log);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->first_difference, 1u);
}

TEST(CommandLog, ForeignBytesAndForeignVersionsAreRefused) {
  const auto message = [](std::vector<std::byte> log) { return replay(log).error().message; };
  EXPECT_EQ(message({}), "not a command log: it does not begin with QUIRELOG");
  EXPECT_EQ(message(std::vector<std::byte>(100)), "not a command log: it does not begin with QUIRELOG");
  std::vector<std::byte> log = recorded_log();
  log[8] = std::byte{1};
  EXPECT_EQ(message(log), "command log of version 1; this program reads version 10");
  log = recorded_log();
  log[12] = std::byte{9};
  EXPECT_EQ(message(log), "option block_size is 9; it must be 8, 16, 32, 64 or 128");
}

TEST(CommandLog, DamagedBytesNeverCrash) {
  const std::vector<std::byte> log = recorded_log();
  Rng rng(5);
  int num_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> damaged = log;
    for (std::int64_t i = rng.between(1, 3); i > 0; --i) {
      // Behind the pool size: a damaged header may ask for a large pool, which is allowed and slow.
      const std::int64_t at = rng.between(20, static_cast<std::int64_t>(log.size()) - 1);
      damaged[static_cast<std::size_t>(at)] = static_cast<std::byte>(rng.between(0, 255));
    }
    num_errors += !replay(damaged).ok();
  }
  EXPECT_GT(num_errors, 100);
}

TEST(ByteIo, IntegersAreLittleEndianAndReadingPastTheEndGivesZero) {
  ByteWriter out;
  out.put(std::uint32_t{0x01020304});
  out.put(std::int32_t{-2});
  out.put_text("ab");
  const std::vector<int> expected = {4, 3, 2, 1, 0xFE, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 'a', 'b'};
  std::vector<int> bytes;
  for (std::byte b : out.bytes()) bytes.push_back(std::to_integer<int>(b));
  EXPECT_EQ(bytes, expected);
  ByteReader in(out.bytes());
  EXPECT_EQ(in.get<std::uint32_t>(), 0x01020304u);
  EXPECT_EQ(in.get<std::int32_t>(), -2);
  EXPECT_EQ(in.get_text(), "ab");
  EXPECT_FALSE(in.failed());
  EXPECT_EQ(in.get<std::uint64_t>(), 0u);
  EXPECT_TRUE(in.failed());
}

TEST(ByteIo, ACountIsComparedWithTheBytesLeft) {
  ByteWriter out;
  out.put(~std::uint32_t{0});
  ByteReader in(out.bytes());
  EXPECT_EQ(in.get_count(1), 0u);
  EXPECT_TRUE(in.failed());
}

}  // namespace
}  // namespace quire
