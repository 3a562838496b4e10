#include "quire/report/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "quire/json/json.h"

namespace quire::report {
namespace {

TEST(Report, TheRatioIsTheMedianOfTheRoundsRatiosNotTheRatioOfTheMedians) {
  const Row row = make_row({"speed", "GB/s"}, {10, 40, 30}, "read", {10, 20, 60});
  EXPECT_EQ(row.value, 30);
  EXPECT_EQ(row.peer, 20);
  EXPECT_EQ(row.ratio, 1.0);  // of 1, 2 and 0.5
  EXPECT_EQ(row.against, "read");
}

TEST(Report, TheSpreadIsTheInterquartileRangeOverTheMedian) {
  EXPECT_EQ(relative_spread({1, 2, 3, 4, 5}), 2.0 / 3.0);
  EXPECT_EQ(relative_spread({4, 4, 4}), 0.0);
  EXPECT_EQ(relative_spread({1, 2}), std::nullopt);
  EXPECT_EQ(relative_spread({0, 0, 0}), std::nullopt);
}

TEST(Report, TheMedianOfAnEvenNumberLiesBetweenTheMiddleTwo) {
  EXPECT_EQ(median({4, 1}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Report, ATargetIsForTheRatioIfThereIsOne) {
  Row row{.metric = "m", .value = 5, .unit = "us", .against = ""};
  EXPECT_EQ(row.holds(), std::nullopt);
  row.target = at_most(5);
  EXPECT_EQ(row.holds(), true);
  row.target = at_least(5.1);
  EXPECT_EQ(row.holds(), false);
  row.ratio = 6;
  EXPECT_EQ(row.holds(), true);
}

TEST(Report, JsonHasEveryFieldOfEveryRowAndNullWhereThereIsNothing) {
  const Report report{.name = "kv",
                      .machine = "a machine",
                      .rows = {make_row({"fork", "us", at_most(20)}, {12}),
                               make_row({"order", "GB/s", at_least(0.95)}, {9}, "in order", {10})}};
  EXPECT_EQ(
      as_json(report),
      R"({"name":"kv","machine":"a machine","subject":null,"rows":[{"metric":"fork","value":12.0,"unit":"us","against":null,)"
      R"("peer":null,"ratio":null,"spread":null,"target":20.0,"bound":"<=","holds":true},{"metric":"order",)"
      R"("value":9.0,"unit":"GB/s","against":"in order","peer":10.0,"ratio":0.9,"spread":null,"target":0.95,)"
      R"("bound":">=","holds":false}]})"
      "\n");
}

TEST(Report, AValueThatIsNotFiniteIsNullInJson) {
  const Report report{.name = "x", .machine = "y", .rows = {make_row({"m", "s"}, {0.0 / 0.0})}};
  EXPECT_NE(as_json(report).find(R"("value":null)"), std::string::npos);
}

TEST(Report, TheTableSaysWhichTargetsWereMissed) {
  const Report report{.name = "kv",
                      .machine = "a machine",
                      .rows = {make_row({"fork", "us", at_most(20)}, {12.3456}),
                               make_row({"order", "GB/s", at_least(0.95)}, {9, 9, 9}, "in order", {10, 10, 10})}};
  EXPECT_EQ(as_table(report),
            "kv on a machine\n\n"
            "metric  value  unit  peer             ratio  spread  target\n"
            "fork    12.35  us                                    <= 20     holds\n"
            "order   9.000  GB/s  10.00 in order  0.900x   0.0 %  >= 0.95x  MISSED\n");
}

TEST(Report, AFileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const auto result = write_json({.name = "x", .machine = "y"}, "/nonexistent-folder/file.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "cannot write /nonexistent-folder/file.json");
}

TEST(Report, WrittenJsonIsWhatIsRead) {
  const Report report{.name = "x", .machine = "y", .rows = {make_row({"m", "s"}, {1})}};
  const std::string path = testing::TempDir() + "report.json";
  ASSERT_TRUE(write_json(report, path).ok());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), as_json(report));
}

}  // namespace
}  // namespace quire::report
