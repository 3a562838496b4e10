#include "quire/planning/gpu_profile.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::planning {
namespace {

const std::string kProfile = std::string(QUIRE_SOURCE_DIR) + "/tests/data/gpu_profiles/profiler-a100-80g.vllm.json";

StepShape prompt_of(std::int32_t tokens) {
  StepShape shape;
  shape.add_prefill(0, tokens);
  return shape;
}

StepShape decodes(int rows, std::int64_t context) {
  StepShape shape;
  for (int i = 0; i < rows; ++i) shape.add_decode(context);
  return shape;
}

TEST(GpuProfile, APublishedFileIsTheModelOfThatName) {
  const auto file = open_cost_model(kProfile + ",facebook/opt-13b,1");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->description(), "facebook/opt-13b on 1 GPU");
  const auto named = *open_cost_model("opt-13b");
  for (const StepShape& shape : {prompt_of(1), prompt_of(700), decodes(1, 10), decodes(94, 500), decodes(95, 500)})
    EXPECT_EQ((*file)->step_ns(shape), named->step_ns(shape));
  EXPECT_TRUE(open_cost_model(kProfile + ",facebook/opt-66b,4").ok());
}

TEST(GpuProfile, PointsAreMetAndJoinedByLines) {
  const auto cost =
      read_gpu_profile("mine.csv", "ms,prompt_tokens,decode_rows\n10,100,0\n30,300,0\n4,0,1\n5,0,3\n", "", "");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  EXPECT_EQ((*cost)->step_ns(prompt_of(100)), 10'000'000u);
  EXPECT_EQ((*cost)->step_ns(prompt_of(200)), 20'000'000u);
  EXPECT_EQ((*cost)->step_ns(decodes(2, 50)), 4'500'000u);
}

std::string error_of(std::string_view text, std::string_view model = "", std::string_view gpus = "") {
  const auto cost = read_gpu_profile("f", text, model, gpus);
  return cost.ok() ? "none" : cost.error().message;
}

TEST(GpuProfile, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_EQ(error_of(""), "f, row 1, column 1: the file is empty, wanted a head with columns");
  EXPECT_EQ(error_of("prompt_tokens,ms\n"),
            "f, row 1, column decode_rows: is missing, wanted prompt_tokens, decode_rows, ms");
  const std::string head = "prompt_tokens,decode_rows,ms\n";
  EXPECT_EQ(error_of(head + "5,0\n"), "f, row 2, column 3: found 2 columns, wanted 3");
  EXPECT_EQ(error_of(head + "5,0,nan\n"), "f, row 2, column ms: found 'nan', wanted milliseconds above 0");
  EXPECT_EQ(error_of(head + "-5,0,1\n"),
            "f, row 2, column prompt_tokens: found '-5', wanted a whole number from 0 to 16777216");
  EXPECT_EQ(error_of(head + "5,5,1\n"),
            "f, row 2, column decode_rows: found 5 tokens of prompts and 5 decodes, wanted steps of one of them");
  EXPECT_EQ(error_of(head + "5,0,1\n4,0,1\n"), "f, row 3, column prompt_tokens: found 4 behind 5, wanted more");
  EXPECT_EQ(error_of(head + "5,0,1\n"),
            "f, row 3, column decode_rows: no step has any, wanted steps of prompts and steps of decodes");

  EXPECT_EQ(error_of("{\"a\": {}, \"b\": {}}"), "f: found no choice of a model, wanted one of a, b");
  EXPECT_EQ(error_of("{\"a\": {}}", "c"), "f: found 'c' of a model, wanted one of a");
  EXPECT_EQ(error_of("{\"a\": {\"2\": {\"prefill\": [1, 2]}}}"),
            "f: 'a.2.prefill': found 2 coefficients, wanted 3, in milliseconds");
  EXPECT_NE(error_of("{\"a\": {").find("f, row 1, column 8: "), std::string::npos) << error_of("{\"a\": {");
}

TEST(GpuProfile, AnUnknownNameSaysWhatCouldBeGiven) {
  const auto cost = open_cost_model("h100");
  ASSERT_FALSE(cost.ok());
  EXPECT_EQ(cost.error().message, "found 'h100', wanted one of opt-13b, yi-34b, or a profile, FILE[,MODEL[,GPUS]]");
}

}  // namespace
}  // namespace quire::planning
