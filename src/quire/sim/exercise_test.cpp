#include "quire/sim/exercise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

class MemoryFile final : public BlockFile {
 public:
  Result<std::uint64_t> write(std::span<const std::byte> bytes) override {
    const std::uint64_t at = content_.size();
    content_.insert(content_.end(), bytes.begin(), bytes.end());
    if (damages_ && !content_.empty()) content_.back() ^= std::byte{1};
    return at;
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), content_.data() + at, bytes.size());
    return {};
  }
  void damage() { damages_ = true; }

 private:
  std::vector<std::byte> content_;
  bool damages_ = false;
};

const ExerciseReport& default_report() {
  static const ExerciseReport report = [] {
    MemoryFile file;
    return run_exercise({}, file).value();
  }();
  return report;
}

const ExerciseSetting& setting_of(std::int32_t max_len, LengthMode mode) {
  const auto& all = default_report().settings;
  return *std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.max_len == max_len && s.mode == mode; });
}

TEST(Exercise, HasThreeMaximumLengthsStaticAndGrowing) {
  ASSERT_EQ(default_report().settings.size(), 6u);
  EXPECT_EQ(default_report().lengths.size(), 100u);
  EXPECT_EQ(*std::min_element(default_report().lengths.begin(), default_report().lengths.end()) >= 50, true);
  EXPECT_LE(*std::max_element(default_report().lengths.begin(), default_report().lengths.end()), 500);
}

TEST(Exercise, StaticOccupationWithoutALimitIsAboutFiveNinthsOfTheArrays) {
  EXPECT_NEAR(static_cast<double>(default_report().unlimited_blocks), 1766, 3 * 81);  // 3 sigma of 100 draws
}

TEST(Exercise, PagingWastesAtMostFivePerCentOfWhatIsHeldAtBlockSize16) {
  for (const ExerciseSetting& setting : default_report().settings) {
    EXPECT_LE(setting.paged.internal_fragmentation, 0.05);
    EXPECT_GT(setting.paged.internal_fragmentation, 0.01);
    EXPECT_GT(setting.paged.utilisation, 0.93);
  }
}

TEST(Exercise, TheRatioStaysBelowItsBoundAndTheBoundsAreThoseOfTheArithmetic) {
  for (const ExerciseSetting& setting : default_report().settings)
    EXPECT_LT(setting.concurrency_ratio, setting.concurrency_bound);
  EXPECT_NEAR(setting_of(512, LengthMode::static_length).concurrency_bound, 1.81, 0.1);
  EXPECT_NEAR(setting_of(1024, LengthMode::static_length).concurrency_bound, 3.62, 0.2);
  EXPECT_NEAR(setting_of(2048, LengthMode::static_length).concurrency_bound, 7.25, 0.4);
  EXPECT_NEAR(setting_of(512, LengthMode::growing).concurrency_bound, 2.90, 0.1);
  EXPECT_NEAR(setting_of(512, LengthMode::static_length).concurrency_bound_by_step, 1.49, 0.1);
}

TEST(Exercise, ArraysHoldPoolOverMaximumLengthRequestsAtOnce) {
  for (const ExerciseSetting& setting : default_report().settings) {
    EXPECT_EQ(setting.contiguous.requests_at_once_max, 8192 / setting.max_len);
    EXPECT_DOUBLE_EQ(setting.contiguous.requests_at_once_mean, 8192.0 / setting.max_len);
    EXPECT_EQ(setting.contiguous.preemptions, 0u);
  }
}

TEST(Exercise, GrowingRequestsGoToTheFileAndComeBack) {
  const ExerciseSide& paged = setting_of(512, LengthMode::growing).paged;
  EXPECT_GT(paged.preemptions, 0u);
  EXPECT_GT(paged.bytes_written, 0u);
  EXPECT_EQ(paged.bytes_written, paged.bytes_read);
  EXPECT_EQ(setting_of(512, LengthMode::static_length).paged.bytes_written, 0u);
  EXPECT_GT(default_report().blocks_restored, 0u);
}

TEST(Exercise, TheGrowingSettingIsRecordedStepByStep) {
  const SimulationResult& growing = default_report().growing;
  const ExerciseSide& side = setting_of(512, LengthMode::growing).paged;
  EXPECT_EQ(growing.samples.size(), side.num_steps);
  EXPECT_EQ(growing.end_ns, side.virtual_ns);
  EXPECT_EQ(growing.film.num_blocks, 512);
  ASSERT_EQ(growing.records.size(), 100u);
  std::uint64_t preemptions = 0;
  for (const RequestRecord& record : growing.records) {
    preemptions += record.preempted_ns.size();
    ASSERT_EQ(record.restored.size(), record.preempted_ns.size());
    for (std::size_t i = 0; i < record.restored.size(); ++i)
      EXPECT_LE(record.preempted_ns[i], record.restored[i].begin_ns);
    EXPECT_GT(record.finish_ns, record.first_token_ns);
  }
  EXPECT_EQ(preemptions, side.preemptions);
  std::int64_t held = 0;
  for (const BlockSpan& span : growing.film.spans)
    held += span.begin_ns <= growing.samples[300].begin_ns && growing.samples[300].begin_ns < span.end_ns ? 1 : 0;
  const MemoryUse& use = growing.samples[300].memory;
  EXPECT_EQ(held * 16, use.written_slots + use.unused_slots);
}

TEST(Exercise, ContentThatComesBackDifferentIsAnErrorThatNamesThePlace) {
  MemoryFile file;
  file.damage();
  const auto report = run_exercise({}, file);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("in its blocks, wanted"), std::string::npos);
}

TEST(Exercise, EqualSeedsGiveEqualRunsAndTheCommittedDigest) {
  MemoryFile file;
  const ExerciseReport again = run_exercise({}, file).value();
  EXPECT_EQ(again.settings[1].paged.digest, setting_of(512, LengthMode::growing).paged.digest);
  EXPECT_EQ(again.settings[1].paged.digest, 3068395498591404884ull);
}

TEST(Exercise, OptionsThatMakeNoSenseAreRefusedWithTheNumbers) {
  MemoryFile file;
  ExerciseOptions options;
  options.max_lens = {256};
  EXPECT_EQ(
      run_exercise(options, file).error().message,
      "found a maximum length of 256, wanted at least the longest request, 500, and less than the pool, 8192 slots");
  options = {};
  options.block_size = 12;
  EXPECT_FALSE(run_exercise(options, file).ok());
  options = {};
  options.num_requests = 0;
  EXPECT_FALSE(run_exercise(options, file).ok());
  options = {};
  options.shortest = 600;
  EXPECT_FALSE(run_exercise(options, file).ok());
}

TEST(Exercise, ThePoolNeedNotBeAMultipleOfEveryBlockSize) {
  ExerciseOptions options;
  options.num_blocks = 33;
  options.num_requests = 3;
  options.max_lens = {520};
  MemoryFile file;
  const auto report = run_exercise(options, file);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->sweep.size(), 4u);
  EXPECT_EQ(report->sweep.back().block_size, 16);
  EXPECT_EQ(report->unlimited_arrays, 3 * 33) << "an array is of whole blocks";
  EXPECT_EQ(report->settings.front().contiguous.blocks_occupied, 33);
}

TEST(Exercise, TheBoundCountsTheArraysThatFit) {
  ExerciseOptions options;
  options.max_lens = {4200};  // of 8,192 slots
  MemoryFile file;
  const ExerciseReport report = run_exercise(options, file).value();
  for (const ExerciseSetting& setting : report.settings) {
    EXPECT_EQ(setting.contiguous.requests_at_once_max, 1);
    EXPECT_LT(setting.concurrency_ratio, setting.concurrency_bound);
    EXPECT_NEAR(setting.concurrency_bound, 16 * setting_of(512, setting.mode).concurrency_bound, 1e-9);
  }
}

TEST(Exercise, TooManyRequestsForOneStepAreRefusedAsSuch) {
  ExerciseOptions options;
  options.num_requests = 1'000'000;
  MemoryFile file;
  EXPECT_EQ(run_exercise(options, file).error().message,
            "found 1000000 requests of a maximum length of 2048, wanted at most 1073741824 tokens in all");
}

TEST(Exercise, FewRequestsThatNeverWaitHaveMeansToo) {
  for (const std::int32_t count : {1, 5, 16, 20}) {
    ExerciseOptions options;
    options.num_requests = count;
    MemoryFile file;
    const ExerciseReport report = run_exercise(options, file).value();
    for (const ExerciseSetting& setting : report.settings) {
      EXPECT_GT(setting.paged.requests_at_once_mean, 0);
      EXPECT_GT(setting.concurrency_ratio, 0) << count;
      EXPECT_LT(setting.concurrency_ratio, 100) << count;
    }
  }
}

}  // namespace
}  // namespace quire
