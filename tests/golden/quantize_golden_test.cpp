// A real model in another format scores like the file that it comes from.

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <string>

#include "quire/model/requantize.h"
#include "tests/support/loaded_model.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

constexpr std::size_t kWindows = 8;  ///< of 512 tokens

double perplexity_of_file(const std::string& path) {
  test::Loaded loaded = test::load(path, test::kServed);
  EXPECT_NE(loaded.model, nullptr);
  return test::perplexity_of(loaded, *loaded.runner, kWindows).value;
}

/// The perplexity of SmolLM2 in that format, as a share of that of the Q4_1 file, minus 1.
double perplexity_gained(DType to) {
  const std::string source = test::model_path(test::kSmolLm2);
  const test::TemporaryDirectory directory;
  const std::string output = directory.path() + "/model.gguf";
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  auto report = model::quantize_file({.input = source, .output = output, .to = to}, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  const double gained = perplexity_of_file(output) / perplexity_of_file(source) - 1;
  std::cout << info(to).name << ": perplexity " << 100 * gained << " % above that of the source\n";
  return gained;
}

/// Either file's int8 activations alone move it by 0.3 %.
TEST(QuantizeGolden, SmolLm2AsQ8ScoresLikeItsSourceWithinHalfAPercent) {
  EXPECT_LT(std::fabs(perplexity_gained(DType::q8_0)), 0.005);
}

}  // namespace
}  // namespace quire
