#include "quire/planning/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "quire/planning/calibration_fit.h"
#include "quire/planning/fidelity.h"

namespace quire::planning {
namespace {

/// A machine whose steps take exactly this.
CalibratedCost known_cost() {
  CalibratedCost cost;
  for (double tokens = 1; tokens <= 16; ++tokens)
    cost.by_tokens.points.push_back({tokens, 2e6 + 4e5 * tokens + (tokens == 16 ? 2e6 : 0)});
  cost.by_tokens.points.push_back({64, 27e6});
  cost.by_remainder = {0, 9e5, 8e5, -4e5, 4e5, 5e5, 3e5, 2e5};
  cost.by_logits.points = {{0, 0}, {1, 3e5}, {8, 1.5e6}, {32, 6e6}};
  cost.decode_context = 700;
  cost.prefill_row = 2e4;
  cost.prefill_square = 60;
  cost.prefill_read = 200;
  cost.lone_context = 300;
  cost.shared_context = 150;
  cost.shared_walk = 900;
  return cost;
}

std::vector<StepShape> shapes() {
  std::vector<StepShape> shapes;
  const auto add = [&](std::int64_t rows, std::int64_t context, std::int64_t chunks, std::int64_t begin,
                       std::int64_t tokens, std::int64_t logits) {
    StepShape shape;
    for (std::int64_t i = 0; i < rows; ++i) shape.add_decode(context);
    for (std::int64_t i = 0; i < chunks; ++i) shape.add_prefill(begin, begin + tokens, logits);
    shapes.push_back(shape);
  };
  for (std::int64_t tokens :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 33, 35, 64})
    for (std::int64_t logits : {0, 1}) add(0, 0, 1, 0, tokens, logits);
  for (std::int64_t rows : {1, 8, 32})
    for (std::int64_t context : {32, 512, 2048}) add(rows, context, 0, 0, 0, 0);
  for (std::int64_t begin : {512, 1024})
    for (std::int64_t tokens : {8, 16, 64}) add(0, 0, 1, begin, tokens, 1);
  for (std::int64_t chunks : {2, 4, 8}) add(0, 0, chunks, 0, 8, 1);
  add(8, 300, 1, 100, 40, 0);
  for (std::int64_t rows : {2, 8, 32}) {
    StepShape& shape = shapes.emplace_back();
    for (std::int64_t i = 0; i < rows; ++i) shape.add_decode(600);
    shape.shared = {rows * 512, 512 * (rows > 16 ? 2 : 1)};
  }
  return shapes;
}

Calibration sample() {
  Calibration calibration;
  calibration.setting = {"A CPU", "avx2", 2, "a model, 5 bytes", "00ff", "f16", 16, "0.1.0"};
  calibration.fitted = known_cost();
  calibration.fitted.outside_step = 41'000.5;
  calibration.fitted.outside_row = 1'250.25;
  calibration.fitted.wake = 90'000;
  calibration.fitted.name = cost_name(calibration.setting);
  calibration.fitted.interruptions = {12.5, {300'000, 5'000'000.5}};
  calibration.fit = {80, 0.011, 0.04, 0.03, 39.5};
  return calibration;
}

/// The sample's JSON with `from` replaced; the message it is refused with.
std::string refusal(const std::string& from, const std::string& to) {
  std::string text = as_json(sample());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto parsed = parse_calibration(text, "f.json");
  EXPECT_FALSE(parsed.ok()) << to;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(CalibrationFit, RecoversTheCostOfAKnownMachine) {
  const CalibratedCost known = known_cost();
  std::vector<CostPoint> points;
  for (const StepShape& shape : shapes()) points.push_back({shape, static_cast<double>(known.execute_ns(shape))});
  const auto fitted = fit_steps(points);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_LT(fitted->fit.p95_error, 0.01);
  StepShape mixed;  // of which there was no point
  for (int i = 0; i < 6; ++i) mixed.add_decode(700);
  mixed.add_prefill(64, 90, 1);
  StepShape lone;
  lone.add_decode(1500);
  for (const StepShape& shape : {mixed, lone, shapes()[5], shapes().back()}) {
    const auto wanted = static_cast<double>(known.execute_ns(shape));
    EXPECT_NEAR(static_cast<double>(fitted->cost.execute_ns(shape)), wanted, 0.02 * wanted);
  }
}

TEST(CalibrationFit, WithoutSharedContextsOneCostsWhatAnyOtherDoes) {
  const CalibratedCost known = known_cost();
  std::vector<CostPoint> points;
  for (const StepShape& shape : shapes())
    if (shape.shared.walked == 0) points.push_back({shape, static_cast<double>(known.execute_ns(shape))});
  const auto fitted = fit_steps(points);
  ASSERT_TRUE(fitted.ok());
  EXPECT_EQ(fitted->cost.shared_context, fitted->cost.decode_context);
}

TEST(Calibration, OfABusyMachineSaysSo) {
  const auto text = [](double disturbance, double median_error) {
    Calibration calibration;
    calibration.fitted.interruptions = {100, {disturbance * 1e7}};
    calibration.fit.median_error = median_error;
    calibration.fit.repeat_deviation = 0.031;
    return steadiness_text(calibration);
  };
  EXPECT_EQ(text(0.0123, 0.018),
            "while calibrating, steps took 1.2 % longer on average than typically, single ones differed by 3.1 %, and "
            "they fit with a median error of 1.8 %");
  EXPECT_NE(text(0.2, 0).find("20.0 % longer"), std::string::npos);
  EXPECT_NE(text(0.2, 0).find("busy"), std::string::npos);
  EXPECT_NE(text(0, 0.1).find("busy"), std::string::npos);
}

TEST(CalibrationFit, APointThatIsFarOffMovesTheOthersLittle) {
  const CalibratedCost known = known_cost();
  std::vector<CostPoint> points;
  for (const StepShape& shape : shapes()) points.push_back({shape, static_cast<double>(known.execute_ns(shape))});
  points[points.size() - 5].ns *= 4;
  const auto fitted = fit_steps(points);
  ASSERT_TRUE(fitted.ok());
  const auto wanted = static_cast<double>(known.execute_ns(shapes()[6]));
  EXPECT_NEAR(static_cast<double>(fitted->cost.execute_ns(shapes()[6])), wanted, 0.02 * wanted);
}

TEST(CalibrationFit, TooFewPointsAndTimesThatAreNoneAreRefused) {
  EXPECT_NE(fit_steps({}).error().message.find("found 0 measured steps"), std::string::npos);
  std::vector<CostPoint> points;
  for (const StepShape& shape : shapes()) points.push_back({shape, 1e6});
  points[3].ns = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(fit_steps(points).error().message.find("wanted more than 0"), std::string::npos);
}

TEST(Calibration, ComesBackFromItsJsonAsItWas) {
  const Calibration written = sample();
  const auto read = parse_calibration(as_json(written), "f.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->setting, written.setting);
  EXPECT_EQ(read->fit, written.fit);
  EXPECT_EQ(as_json(*read), as_json(written));
  for (const StepShape& shape : shapes()) EXPECT_EQ(read->cost()->step_ns(shape), written.fitted.step_ns(shape));
  EXPECT_EQ(read->cost()->description(), "calibrated: a model, 5 bytes, A CPU, 2 threads, avx2, KV f16");
}

TEST(Calibration, WhatIsWrongInAFileIsSaidInOneLine) {
  EXPECT_EQ(refusal("\"version\":4", "\"version\":3"),
            "calibration 'f.json': 'version': found 3, wanted 4; `quire calibrate` makes a new one");
  EXPECT_NE(refusal("quire calibration", "something").find("'format'"), std::string::npos);
  EXPECT_NE(refusal("\"decode_context\":700.0", "\"decode_context\":NaN").find("f.json"), std::string::npos);
  EXPECT_NE(refusal("\"decode_context\":700.0", "\"decode_context\":1e999").find("f.json"), std::string::npos);
  EXPECT_NE(refusal("\"decode_context\":700.0", "\"decode_context\":-1").find("'cost.decode_context'"),
            std::string::npos);
  EXPECT_NE(refusal("\"decode_context\":700.0,", "").find("'cost.decode_context'"), std::string::npos);
  EXPECT_NE(refusal("\"threads\":2", "\"threads\":\"2\"").find("'setting.threads'"), std::string::npos);
  EXPECT_NE(refusal("\"cpu\":\"A CPU\",", "").find("'setting.cpu'"), std::string::npos);
  EXPECT_NE(refusal("\"outside_row\"", "\"outside\":1, \"outside_row\"").find("outside"), std::string::npos);
  for (const std::string& message : {refusal("\"seconds\"", "\"hours\""), refusal("}\n", "")})
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Calibration, CurvesRiseAndHavePoints) {
  Calibration broken = sample();
  broken.fitted.by_logits.points[1].x = 0;
  EXPECT_NE(parse_calibration(as_json(broken), "f").error().message.find("'cost.by_logits[1]'"), std::string::npos);
  broken.fitted.by_logits.points.clear();
  EXPECT_NE(parse_calibration(as_json(broken), "f").error().message.find("at least one"), std::string::npos);
}

TEST(Calibration, AFileCutAnywhereIsRefused) {
  const std::string text = as_json(sample());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    ASSERT_FALSE(parse_calibration(text.substr(0, size), "f").ok()) << size;
}

TEST(Calibration, AFileThatIsNotThereSaysHowToMakeOne) {
  const auto missing = load_calibration("/nowhere/c.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("'/nowhere/c.json'"), std::string::npos);
  EXPECT_NE(missing.error().message.find("quire calibrate"), std::string::npos);
}

TEST(Calibration, IsOfOneSettingAndNoOther) {
  const CalibrationSetting wanted = sample().setting;
  EXPECT_TRUE(check_setting(wanted, wanted).ok());
  CalibrationSetting other = wanted;
  other.kv_type = "int8";
  EXPECT_EQ(check_setting(other, wanted).error().message,
            "the calibration is of another KV type: found int8, wanted f16; `quire calibrate` makes a new one");
  other = wanted;
  other.threads = 4;
  EXPECT_NE(check_setting(other, wanted).error().message.find("found 4, wanted 2"), std::string::npos);
  EXPECT_NE(default_calibration_path(other), default_calibration_path(wanted));
  other = wanted;
  other.model_digest = "ff00";
  EXPECT_NE(check_setting(other, wanted).error().message.find("model file"), std::string::npos);
}

TEST(Fidelity, ErrorsOfStepsAreRelativeAndWithoutSign) {
  const CalibratedCost cost = known_cost();
  std::vector<RecordedStep> steps;
  for (const StepShape& shape : shapes()) steps.push_back({steps.size() + 1, shape, cost.execute_ns(shape)});
  EXPECT_EQ(step_errors(cost, steps).num_steps, steps.size());
  EXPECT_EQ(step_errors(cost, steps).p95, 0);
  for (RecordedStep& step : steps) step.elapsed_ns *= 2;
  EXPECT_NEAR(step_errors(cost, steps).median, 0.5, 1e-6);
  EXPECT_NEAR(step_errors(cost, steps).total_ratio, 0.5, 1e-6);
  EXPECT_NEAR(step_errors(cost, steps).scatter, 0, 1e-6) << "one factor fits them all";
  EXPECT_EQ(
      step_errors(cost, steps, StepKind::decodes).num_steps + step_errors(cost, steps, StepKind::prompts).num_steps,
      steps.size());
  std::vector<RecordedStep> scattered;
  StepShape shape;
  shape.add_decode(100);
  for (std::uint64_t percent : {80, 100, 125, 100, 160}) scattered.push_back({1, shape, 10'000 * percent});
  EXPECT_NEAR(step_errors(cost, scattered).scatter, 0.2, 1e-6);
  CalibratedCost slower = cost;
  for (CostCurve::Point& point : slower.by_tokens.points) point.ns *= 1.5;
  EXPECT_GT(drift(cost, slower, steps), 0.1);
  EXPECT_EQ(drift(cost, cost, steps), 0);
}

}  // namespace
}  // namespace quire::planning
