#include "quire/model/requantize.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "quire/base/rng.h"
#include "quire/model/gguf.h"
#include "quire/model/gguf_builder.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/random_weights.h"

namespace quire::model {
namespace {

/// A folder that goes with the object.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire_test.XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string at(const std::string& name) const { return path + "/" + name; }
  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
  std::string path;
};

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string random_floats(std::int64_t count, std::uint64_t seed) {
  const auto bytes = quant::random_weights(DType::f32, 1, count, quant::ScaleKind::usual, seed);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Matrices of 512, 288 and 40 columns, a norm, and keys of every type.
GgufBuilder source() {
  GgufBuilder builder;
  const std::string words[] = {"a", "", "h\xc3\xa9"};
  const float floats[] = {1.5f, -2};
  builder.alignment = 64;
  builder.key_string("general.architecture", "llama").key_u32("general.alignment", 64);
  builder.key_u32("general.file_type", 1).key_i32("minus", -7).key_f32("half", 0.5f).key_bool("yes", true);
  builder.key_u64("huge", ~0ull).key_raw("small", 1, "\xFB").key_strings("words", words).key_f32s("floats", floats);
  builder.tensor("wide.weight", {512, 6}, DType::f32, random_floats(512 * 6, 1));
  builder.tensor("norm.weight", {512}, DType::f32, random_floats(512, 2));
  builder.tensor("middle.weight", {288, 3}, DType::f32, random_floats(288 * 3, 3));
  builder.tensor("narrow.weight", {40, 2, 2}, DType::f32, random_floats(40 * 4, 4));
  return builder;
}

Result<QuantizeReport> run(const QuantizeOptions& options, int threads = 1) {
  ThreadPool pool(threads);
  return quantize_file(options, pool);
}

std::vector<float> values_of(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows() * tensor.cols()));
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    quant::dequantize(tensor.dtype, tensor.data + row * row_bytes(tensor.dtype, tensor.cols()), tensor.cols(),
                      values.data() + row * tensor.cols());
  }
  return values;
}

TEST(Requantize, KeepsEveryKeyAndSaysWhatTheNewFileIs) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  ASSERT_TRUE(run({.input = folder.at("in"), .output = folder.at("out"), .to = DType::q6_k}).ok());
  auto in = GgufFile::open(folder.at("in")), out = GgufFile::open(folder.at("out"));
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(out->version(), 3u);
  EXPECT_EQ(out->alignment(), 64u);
  ASSERT_EQ(out->keys().size(), in->keys().size() + 1);
  for (std::size_t i = 0; i < in->keys().size(); ++i) {
    if (in->keys()[i].name == "general.file_type") continue;
    EXPECT_EQ(out->keys()[i].record, in->keys()[i].record) << in->keys()[i].name;
  }
  EXPECT_EQ(*out->get_int("general.file_type"), 18);
  EXPECT_EQ(*out->get_int("general.quantization_version"), 2);
}

TEST(Requantize, GivesEachTensorTheFormatThatFitsItsRows) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  auto report = run({.input = folder.at("in"), .output = folder.at("out"), .to = DType::q4_k});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const DType expected[] = {DType::q4_k, DType::f32, DType::q5_0, DType::f16};
  auto out = GgufFile::open(folder.at("out"));
  ASSERT_TRUE(out.ok()) << out.error().message;
  ASSERT_EQ(out->tensors().size(), 4u);
  auto in = GgufFile::open(folder.at("in"));
  for (std::size_t i = 0; i < 4; ++i) {
    const QuantizedTensor& told = report->tensors[i];
    const GgufTensor& written = out->tensors()[i];
    EXPECT_EQ(written.dtype, expected[i]) << written.name;
    EXPECT_EQ(told.to, expected[i]);
    EXPECT_EQ(told.name, written.name);
    EXPECT_EQ(written.shape, in->tensors()[i].shape);
    EXPECT_EQ(told.bytes_after, written.bytes);
    const auto before = values_of(in->tensors()[i]), after = values_of(written);
    double squares = 0;
    for (std::size_t v = 0; v < before.size(); ++v) squares += std::pow(double{after[v]} - double{before[v]}, 2);
    EXPECT_NEAR(told.rmse, std::sqrt(squares / static_cast<double>(before.size())), 1e-12) << written.name;
    EXPECT_LT(told.rmse, 0.1 * told.rms) << written.name;
  }
  EXPECT_EQ(report->tensors[1].rmse, 0);
  EXPECT_NE(report->tensors[2].why.find("288 are no multiple of 256, the block of Q4_K"), std::string::npos);
  EXPECT_EQ(report->tensors[0].why, "");
  EXPECT_EQ(report->bytes_after, read_file(folder.at("out")).size());
}

TEST(Requantize, FromEveryFormatToEveryFormat) {
  for (DType from : kAllDTypes) {
    Folder folder;
    const auto bytes = quant::random_weights(from, 5, 512, quant::ScaleKind::usual, 9);
    GgufBuilder builder;
    builder.tensor("m", {512, 5}, from, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    write_file(folder.at("in"), builder.build());
    for (DType to : kAllDTypes) {
      auto report =
          run({.input = folder.at("in"), .output = folder.at("out"), .to = to, .existing = Existing::replace});
      ASSERT_TRUE(report.ok()) << report.error().message;
      auto out = GgufFile::open(folder.at("out"));
      ASSERT_TRUE(out.ok()) << out.error().message;
      EXPECT_EQ(out->tensors()[0].dtype, to);
      EXPECT_LT(report->tensors[0].rmse, 0.13 * report->tensors[0].rms) << info(from).name << " " << info(to).name;
      if (from == to) {
        EXPECT_EQ(std::memcmp(out->tensors()[0].data, bytes.data(), bytes.size()), 0) << info(to).name;
      }
    }
  }
}

TEST(Requantize, TheFileIsTheSameForAnyNumberOfThreads) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  ASSERT_TRUE(run({.input = folder.at("in"), .output = folder.at("one"), .to = DType::q5_k}).ok());
  auto report = run({.input = folder.at("in"), .output = folder.at("three"), .to = DType::q5_k}, 3);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(read_file(folder.at("one")), read_file(folder.at("three")));
}

TEST(Requantize, TheFirstRuleThatMatchesCounts) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  auto report = run({.input = folder.at("in"),
                     .output = folder.at("out"),
                     .to = DType::q4_0,
                     .rules = {{"mid*", DType::q8_0}, {"*.weight", DType::bf16}}});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->tensors[0].to, DType::bf16);
  EXPECT_EQ(report->tensors[1].to, DType::f32) << "one dimension";
  EXPECT_EQ(report->tensors[2].to, DType::q8_0);
}

TEST(Requantize, ARuleThatMatchesNothingIsRefused) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  for (const char* pattern : {"nothing", "norm.weight"}) {
    auto report = run({.input = folder.at("in"), .output = folder.at("out"), .rules = {{pattern, DType::f16}}});
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error().message.find(pattern), std::string::npos) << report.error().message;
  }
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(Requantize, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "axxbyyc"));
  EXPECT_TRUE(matches("blk.*.ffn_down.weight", "blk.12.ffn_down.weight"));
  EXPECT_TRUE(matches("abc", "abc"));
  EXPECT_FALSE(matches("abc", "abcd"));
  EXPECT_FALSE(matches("a*b", "a"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches(std::string(40, '*') + "b", std::string(4000, 'a')));
}

TEST(Requantize, AFileIsNeverReplacedUnasked) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  write_file(folder.at("out"), "mine");
  QuantizeOptions options{.input = folder.at("in"), .output = folder.at("out")};
  auto refused = run(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("exists already"), std::string::npos);
  EXPECT_EQ(read_file(folder.at("out")), "mine");
  options.existing = Existing::replace;
  EXPECT_TRUE(run(options).ok());
  EXPECT_TRUE(GgufFile::open(folder.at("out")).ok());
  EXPECT_EQ(folder.num_files(), 2u) << "no temporary file is left";
}

TEST(Requantize, InputAndOutputMayNotBeOneFileByAnyName) {
  Folder folder;
  write_file(folder.at("in"), source().build());
  std::filesystem::create_symlink(folder.at("in"), folder.at("link"));
  std::filesystem::create_hard_link(folder.at("in"), folder.at("hard"));
  for (const char* name : {"in", "link", "hard"}) {
    auto refused = run({.input = folder.at("in"), .output = folder.at(name), .existing = Existing::replace});
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_NE(refused.error().message.find("are one file"), std::string::npos) << refused.error().message;
  }
}

TEST(Requantize, AValueThatDoesNotFitIsNamedAndNothingIsLeftBehind) {
  Folder folder;
  std::vector<float> values(128, 1.0f);
  values[97] = std::numeric_limits<float>::quiet_NaN();
  GgufBuilder builder;
  builder.tensor_f32("bad", {64, 2}, values);
  write_file(folder.at("in"), builder.build());
  auto refused = run({.input = folder.at("in"), .output = folder.at("out"), .to = DType::q8_0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "tensor 'bad', row 1, element 33: found nan, wanted a finite number");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(Requantize, AnOutputThatCannotBeMadeIsAnErrorInTheSystemsWords) {
  auto created = NewFile::create("/dev/full", Existing::replace);
  ASSERT_FALSE(created.ok());
  EXPECT_NE(created.error().message.find("not a regular file"), std::string::npos);
  auto missing = NewFile::create("/nonexistent/folder/file", Existing::refuse);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
}

TEST(NewFile, OfAKilledProcessNothingIsLeftWhereFilesCanBeNameless) {
  Folder folder;
  const int probe = open(std::filesystem::path(folder.at("x")).parent_path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  const pid_t child = fork();
  if (child == 0) {
    auto file = NewFile::create(folder.at("x"), Existing::refuse);
    if (file.ok()) static_cast<void>(file->write(std::as_bytes(std::span("abc", 3))));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.num_files(), probe >= 0 ? 0u : 1u);
  if (probe >= 0) close(probe);
}

TEST(NewFile, ReplacesWhatIsThereIfAsked) {
  Folder folder;
  write_file(folder.at("x"), "old");
  auto file = NewFile::create(folder.at("x"), Existing::replace);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write(std::as_bytes(std::span("new", 3))).ok());
  EXPECT_EQ(read_file(folder.at("x")), "old");
  ASSERT_TRUE(file->keep().ok());
  EXPECT_EQ(read_file(folder.at("x")), "new");
  EXPECT_EQ(folder.num_files(), 1u);
}

TEST(NewFile, IsNotThereUntilItIsKept) {
  Folder folder;
  {
    auto file = NewFile::create(folder.at("x"), Existing::refuse);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(std::as_bytes(std::span("abc", 3))).ok());
    EXPECT_FALSE(std::filesystem::exists(folder.at("x")));
  }
  EXPECT_EQ(folder.num_files(), 0u);
  auto file = NewFile::create(folder.at("x"), Existing::refuse);
  ASSERT_TRUE(file.ok());
  write_file(folder.at("x"), "came first");
  auto kept = file->keep();
  ASSERT_FALSE(kept.ok());
  EXPECT_NE(kept.error().message.find("exists already"), std::string::npos);
  EXPECT_EQ(read_file(folder.at("x")), "came first");
}

}  // namespace
}  // namespace quire::model
