#include "quire/model/repack_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "quire/base/hash.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"
#include "quire/model/tiny_model.h"

namespace quire::model {
namespace {

namespace fs = std::filesystem;
using Outcome = RepackReport::Outcome;

/// A tiny model, its file image and a directory of its own for packed weights.
class RepackCacheTest : public testing::Test {
 protected:
  RepackCacheTest() {
    std::string name = testing::TempDir() + "repack.XXXXXX";
    root_ = mkdtemp(name.data());
    use(TinyModel{});
  }
  ~RepackCacheTest() override { fs::remove_all(root_); }

  void use(const TinyModel& model) {
    image_ = build_tiny_model(model).build();
    Digest digest;
    digest.add_text(image_);
    const std::uint64_t value = digest.value();
    std::memcpy(cache_.digest.data(), &value, sizeof value);
    cache_.dir = root_ + "/strips";
  }

  std::string path() const { return repack_path(cache_); }

  /// Loads the model; the report and the logits of a few tokens.
  struct Loaded {
    RepackReport report;
    std::vector<float> logits;
  };
  Loaded load(bool f32_weights = false) {
    auto file = GgufFile::parse(std::as_bytes(std::span(image_.data(), image_.size())));
    EXPECT_TRUE(file.ok());
    ThreadPool pool(2);
    LoadOptions options;
    options.max_context = options.max_batch_tokens = 16;
    options.max_logit_rows = 4;
    options.repack_cache = cache_;
    options.f32_weights = f32_weights;
    auto model = Model::load(*file, pool, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    SequenceRunner runner(**model, pool, {});
    const std::vector<TokenId> tokens = {TokenId{3}, TokenId{41}, TokenId{59}, TokenId{26}};
    return {(*model)->repack(), runner.all_logits(0, tokens, 4)};
  }

  std::string contents() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace(const std::string& bytes) const { std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes; }

  /// What is there is not used, the reason is given, and the next start finds a good file again.
  void expect_rebuilt(const std::string& reason) {
    const Loaded rebuilt = load();
    EXPECT_EQ(rebuilt.report.outcome, Outcome::written) << reason;
    EXPECT_EQ(rebuilt.report.note, "ignored " + path() + ": " + reason);
    EXPECT_EQ(rebuilt.logits, expected_) << reason;
    EXPECT_EQ(load().report.outcome, Outcome::used) << reason;
  }

  std::string root_, image_;
  RepackCache cache_;
  std::vector<float> expected_ = {};
};

TEST_F(RepackCacheTest, ASecondStartMapsWhatTheFirstOnePackedAndComputesTheSameBits) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                      DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    TinyModel tiny = TinyModel::wide("llama", dtype);
    tiny.tied_output = false;
    use(tiny);
    const RepackCache cache = std::exchange(cache_, {});
    const Loaded without = load();
    cache_ = cache;
    EXPECT_EQ(without.report.outcome, Outcome::off);
    const Loaded first = load(), second = load();
    EXPECT_EQ(first.report.outcome, Outcome::written) << first.report.note;
    EXPECT_EQ(second.report.outcome, Outcome::used) << second.report.note;
    EXPECT_EQ(second.report.path, path());
    EXPECT_EQ(second.report.note, "");
    EXPECT_EQ(first.logits, without.logits) << info(dtype).name;
    EXPECT_EQ(second.logits, without.logits) << info(dtype).name;
  }
}

TEST_F(RepackCacheTest, FileAndDirectoryAreForTheirOwnerOnly) {
  load();
  struct stat status;
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(cache_.dir.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache_.dir), {}), 1) << "a temporary file was left";
}

TEST_F(RepackCacheTest, AFlippedBitAnywhereIsFoundAndTheFileRebuilt) {
  expected_ = load().logits;
  const std::string good = contents();
  const auto expect_found = [&](std::size_t at, const std::string& part) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    replace(bad);
    const Loaded rebuilt = load();
    EXPECT_EQ(rebuilt.report.outcome, Outcome::written) << "byte " << at;
    EXPECT_NE(rebuilt.report.note.find(part), std::string::npos) << "byte " << at << ": " << rebuilt.report.note;
    EXPECT_EQ(rebuilt.logits, expected_) << "byte " << at;
    EXPECT_EQ(contents(), good);
  };
  expect_found(0, "no file of ours");
  expect_found(8, "layout version");
  expect_found(12, "header is damaged");  // number of matrices
  expect_found(17, "another model");
  expect_found(48, "header is damaged");  // file bytes
  expect_found(56, "header is damaged");  // zero
  expect_found(60, "header is damaged");  // CRC
  for (std::size_t field : {0, 8, 12, 16, 24, 32, 40, 48}) {
    expect_found(64 + 64 + field, "header is damaged");  // of the second matrix
  }
  expect_found(4096 + 100, "are damaged");  // in the first matrix
  std::size_t last = good.size() - 1;
  while (good[last] == 0) --last;
  expect_found(last, "are damaged");
}

TEST_F(RepackCacheTest, AFileThatIsCutOffIsRebuilt) {
  expected_ = load().logits;
  const std::string good = contents();
  const std::string wanted = std::to_string(good.size());
  for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4096},
                             good.size() / 2, good.size() - 1}) {
    replace(good.substr(0, length));
    expect_rebuilt("found " + std::to_string(length) + " bytes, wanted " + wanted);
  }
  replace(good + "x");
  expect_rebuilt("found " + std::to_string(good.size() + 1) + " bytes, wanted " + wanted);
}

TEST_F(RepackCacheTest, AFileOfAnotherModelIsNotUsedUnderThisName) {
  TinyModel other;
  other.seed = 2;
  use(other);
  load();
  const std::string foreign = contents();
  use(TinyModel{});
  const Loaded first = load();
  expected_ = first.logits;
  ASSERT_EQ(foreign.size(), contents().size());
  replace(foreign);
  expect_rebuilt("it belongs to another model file");
}

TEST_F(RepackCacheTest, AFileThatOthersMayWriteToIsNotUsed) {
  expected_ = load().logits;
  ASSERT_EQ(chmod(path().c_str(), 0622), 0);
  expect_rebuilt("other users may write to it");
}

TEST_F(RepackCacheTest, ALinkIsNotFollowed) {
  expected_ = load().logits;
  fs::rename(path(), root_ + "/elsewhere");
  fs::create_symlink(root_ + "/elsewhere", path());
  expect_rebuilt("Too many levels of symbolic links");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path())));
}

TEST_F(RepackCacheTest, WithoutAPlaceToWriteTheModelStillLoads) {
  expected_ = load().logits;
  cache_.dir = root_ + "/missing/strips";
  const Loaded loaded = load();
  EXPECT_EQ(loaded.report.outcome, Outcome::not_written);
  EXPECT_EQ(loaded.report.note, "could not write " + path() + ": No such file or directory");
  EXPECT_EQ(loaded.logits, expected_);
}

TEST_F(RepackCacheTest, ADirectoryInTheFilesPlaceIsLeftAlone) {
  cache_.dir = root_;
  fs::create_directories(path());
  const Loaded loaded = load();
  EXPECT_EQ(loaded.report.outcome, Outcome::not_written);
  EXPECT_NE(loaded.report.note.find("it is no regular file; could not write"), std::string::npos) << loaded.report.note;
  EXPECT_TRUE(fs::is_directory(path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1) << "a temporary file was left";
}

TEST_F(RepackCacheTest, DecodedWeightsAreNotKept) {
  EXPECT_EQ(load(true).report.outcome, Outcome::off);
  EXPECT_FALSE(fs::exists(cache_.dir));
}

}  // namespace
}  // namespace quire::model
