#include "quire/model/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "quire/base/rng.h"
#include "quire/model/gguf_builder.h"

namespace quire::model {
namespace {

Result<GgufFile> parse(const std::string& image) {
  return GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())));
}

/// Expects a refusal whose message holds all the words.
void expect_refused(const std::string& image, std::initializer_list<std::string_view> words) {
  auto file = parse(image);
  ASSERT_FALSE(file.ok());
  for (auto word : words) EXPECT_NE(file.error().message.find(word), std::string::npos) << file.error().message;
}

/// The first 24 bytes of a file with the given counts.
ByteWriter header(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
  ByteWriter out;
  out.raw("GGUF").number(version).number(num_tensors).number(num_keys);
  return out;
}

std::string one_key(std::uint32_t type, std::string_view body, std::string_view name = "some.key") {
  return GgufBuilder().key_raw(name, type, body).build();
}

/// A file with tensors "a" (F32, 8 x 2) and "b" (Q8_0, 32 x 3).
GgufBuilder two_tensors() {
  GgufBuilder builder;
  builder.key_string("general.architecture", "llama").key_u32("n", 7);
  builder.tensor("a", {8, 2}, DType::f32, std::string(64, '\1'));
  builder.tensor("b", {32, 3}, DType::q8_0, std::string(34 * 3, '\2'));
  return builder;
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  GgufBuilder builder;
  builder.key_raw("u8", 0, ByteWriter().number<std::uint8_t>(200).take());
  builder.key_raw("i8", 1, ByteWriter().number<std::int8_t>(-5).take());
  builder.key_raw("u16", 2, ByteWriter().number<std::uint16_t>(65535).take());
  builder.key_raw("i16", 3, ByteWriter().number<std::int16_t>(-300).take());
  builder.key_u32("u32", 4000000000u).key_i32("i32", -7).key_f32("f32", 0.5f).key_bool("yes", true);
  builder.key_string("text", "h\xc3\xa9").key_u64("u64", 1ull << 40).key_u64("huge", ~0ull);
  builder.key_raw("i64", 11, ByteWriter().number<std::int64_t>(-1).take());
  builder.key_raw("f64", 12, ByteWriter().number<double>(1e300).take());
  std::vector<std::string> words = {"a", "", "ccc"};
  std::vector<float> floats = {1.5f, -2};
  std::vector<std::int32_t> ints = {3, -4, 5};
  builder.key_strings("words", words).key_f32s("floats", floats).key_i32s("ints", ints);
  std::string image = builder.build();
  auto file = parse(image);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file->get_int("u8"), 200);
  EXPECT_EQ(*file->get_int("i8"), -5);
  EXPECT_EQ(*file->get_int("u16"), 65535);
  EXPECT_EQ(*file->get_int("i16"), -300);
  EXPECT_EQ(*file->get_int("u32"), 4000000000);
  EXPECT_EQ(*file->get_int("i32"), -7);
  EXPECT_EQ(*file->get_float("f32"), 0.5);
  EXPECT_EQ(*file->get_optional_bool("yes"), true);
  EXPECT_EQ(*file->get_string("text"), "h\xc3\xa9");
  EXPECT_EQ(*file->get_int("u64"), std::int64_t{1} << 40);
  EXPECT_FALSE(file->get_int("huge").ok());
  EXPECT_EQ(std::get<std::uint64_t>(*file->find_key("huge")), ~0ull);
  EXPECT_EQ(*file->get_int("i64"), -1);
  EXPECT_EQ(*file->get_float("f64"), 1e300);
  const auto& read_words = std::get<GgufArray>(*file->find_key("words"));
  EXPECT_EQ(std::get<std::vector<std::string_view>>(read_words.values),
            (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(std::get<std::vector<double>>(std::get<GgufArray>(*file->find_key("floats")).values),
            (std::vector<double>{1.5, -2}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(std::get<GgufArray>(*file->find_key("ints")).values),
            (std::vector<std::int64_t>{3, -4, 5}));
}

TEST(Gguf, ReadsTensorsOfBothVersions) {
  for (std::uint32_t version : {2u, 3u}) {
    GgufBuilder builder = two_tensors();
    builder.version = version;
    std::string image = builder.build();
    auto file = parse(image);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->version(), version);
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* b = file->find_tensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->dtype, DType::q8_0);
    EXPECT_EQ(b->cols(), 32);
    EXPECT_EQ(b->rows(), 3);
    EXPECT_EQ(b->bytes, 102);
    EXPECT_EQ(b->data[101], std::byte{2});
    EXPECT_EQ(file->find_tensor("c"), nullptr);
  }
}

TEST(Gguf, MissingAndMistypedKeysAreErrorsThatSaySo) {
  std::string image = two_tensors().build();
  auto file = parse(image);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->get_int("absent").error().message, "key 'absent' is missing; wanted an integer");
  EXPECT_EQ(file->get_float("n").error().message, "key 'n': found an integer, wanted a float");
  EXPECT_EQ(*file->get_optional_int("absent"), std::nullopt);
  EXPECT_FALSE(file->get_optional_string("n").ok());
}

TEST(Gguf, EveryTruncationIsRefused) {
  std::string image = two_tensors().build();
  for (std::size_t length = 0; length < image.size(); ++length) {
    // A copy of exactly this length, so that a sanitizer sees an over-read.
    std::vector<std::byte> cut(length);
    if (length > 0) std::memcpy(cut.data(), image.data(), length);
    EXPECT_FALSE(GgufFile::parse(cut).ok()) << length;
  }
}

TEST(Gguf, EveryFlippedByteIsReadOrRefusedWithoutHarm) {
  std::string image = two_tensors().build();
  for (std::size_t at = 0; at < image.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> changed(image.size());
      std::memcpy(changed.data(), image.data(), image.size());
      changed[at] ^= std::byte{1} << bit;
      auto file = GgufFile::parse(changed);
      if (!file.ok()) continue;
      for (const auto& tensor : file->tensors()) {
        EXPECT_GE(tensor.data, changed.data());
        EXPECT_LE(tensor.data + tensor.bytes, changed.data() + changed.size());
      }
    }
  }
}

TEST(Gguf, CountsLargerThanTheFileAreRefused) {
  expect_refused(header(1ull << 61, 0).take(), {"tensor count", "2305843009213693952"});
  expect_refused(header(0, 1ull << 63).take(), {"key count", "9223372036854775808"});
  expect_refused(header(0, ~0ull).take(), {"key count"});
  expect_refused(header(~0ull, ~0ull).take(), {"tensor count"});
}

TEST(Gguf, StringLengthsLargerThanTheFileAreRefused) {
  for (std::uint64_t length : {~0ull, 1ull << 40, 1ull << 63, 30ull}) {
    expect_refused(header(0, 1).number(length).raw("abcdefghijklmn").take(), {"name of key 0", "byte 24"});
    expect_refused(one_key(8, ByteWriter().number(length).raw("abc").take()), {"'some.key'", cat(length)});
  }
}

TEST(Gguf, ArrayLengthsLargerThanTheFileAreRefused) {
  for (std::uint32_t type = 0; type < 13; ++type) {
    if (type == 9) continue;
    ByteWriter body;
    body.number(type).number<std::uint64_t>(1ull << 62);
    expect_refused(one_key(9, body.take()), {"'some.key'", "4611686018427387904"});
  }
}

TEST(Gguf, AnArrayElementLongerThanTheFileIsRefused) {
  ByteWriter body;
  body.number<std::uint32_t>(8).number<std::uint64_t>(1).number<std::uint64_t>(~0ull);
  expect_refused(one_key(9, body.take()), {"element 0", "'some.key'"});
}

TEST(Gguf, ArraysOfArraysAreRefusedAtAnyDepth) {
  ByteWriter body;
  for (int depth = 0; depth < 10'000; ++depth) body.number<std::uint32_t>(9).number<std::uint64_t>(1);
  expect_refused(one_key(9, body.take()), {"'some.key'", "array of arrays"});
}

TEST(Gguf, UnknownValueTypesAreRefused) {
  expect_refused(one_key(13, std::string(16, 0)), {"'some.key'", "value type 13"});
  expect_refused(one_key(0xFFFFFFFF, std::string(16, 0)), {"'some.key'", "4294967295"});
  expect_refused(one_key(9, ByteWriter().number<std::uint32_t>(99).number<std::uint64_t>(0).take()), {"99"});
}

TEST(Gguf, BoolsOtherThanZeroAndOneAreRefused) { expect_refused(one_key(7, "\2"), {"'some.key'", "bool"}); }

TEST(Gguf, EmptyAndDuplicateNamesAreRefused) {
  expect_refused(GgufBuilder().key_u32("", 1).build(), {"key 0", "empty name"});
  expect_refused(GgufBuilder().key_u32("k", 1).key_u32("x", 1).key_string("k", "v").build(), {"'k'", "more than once"});
  GgufBuilder builder = two_tensors();
  builder.entries()[1].name = "a";
  expect_refused(builder.build(), {"tensor 'a'", "more than once"});
  builder.entries()[1].name = "";
  expect_refused(builder.build(), {"tensor 1", "empty name"});
}

TEST(Gguf, AlignmentsThatAreNoPowerOfTwoInRangeOrOfAnotherTypeAreRefused) {
  for (std::uint32_t value : {0u, 3u, 1u, 48u, 1u << 31, 0xFFFFFFFFu}) {
    expect_refused(GgufBuilder().key_u32("general.alignment", value).build(), {"general.alignment", cat(value)});
  }
  expect_refused(GgufBuilder().key_i32("general.alignment", 32).build(), {"general.alignment", "int32"});
  expect_refused(GgufBuilder().key_string("general.alignment", "32").build(), {"general.alignment", "string"});
  std::vector<std::int32_t> array = {32};
  expect_refused(GgufBuilder().key_i32s("general.alignment", array).build(), {"general.alignment", "array"});
}

TEST(Gguf, TheAlignmentOfTheFileIsUsed) {
  GgufBuilder builder;
  builder.alignment = 256;
  builder.key_u32("general.alignment", 256);
  builder.tensor("a", {1}, DType::f32, "1234").tensor("b", {1}, DType::f32, "5678");
  std::string image = builder.build();
  auto file = parse(image);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(std::memcmp(file->find_tensor("b")->data, "5678", 4), 0);
  builder.entries()[1].offset = 32;
  expect_refused(builder.build(), {"tensor 'b'", "32", "256"});
}

TEST(Gguf, DimensionsOutOfRangeAreRefused) {
  auto with_dims = [](std::vector<std::uint64_t> dims) {
    GgufBuilder builder = two_tensors();
    builder.entries()[0].dims = std::move(dims);
    return builder.build();
  };
  expect_refused(with_dims({4, 0}), {"tensor 'a'", "dimension 1 = 0"});
  expect_refused(with_dims({0, 4}), {"tensor 'a'", "dimension 0 = 0"});
  expect_refused(with_dims({}), {"tensor 'a'", "0 dimensions"});
  expect_refused(with_dims(std::vector<std::uint64_t>(9, 1)), {"tensor 'a'", "9 dimensions"});
  expect_refused(with_dims(std::vector<std::uint64_t>(255, 1)), {"tensor 'a'", "255 dimensions"});
  expect_refused(with_dims({(1ull << 63) - 1, 2}), {"tensor 'a'", "overflows"});
  expect_refused(with_dims({1ull << 32, 1ull << 32, 2}), {"tensor 'a'", "overflows"});
  expect_refused(with_dims({1ull << 61, 2}), {"tensor 'a'", "overflows"});
  expect_refused(with_dims({32, (1ull << 42) + 1}), {"tensor 'a'", "past the end"});
  expect_refused(with_dims({~0ull}), {"tensor 'a'", "overflows"});
}

TEST(Gguf, ANumberOfDimensionsOfTwoToThe32IsRefused) {
  auto out = header(1, 0);
  out.string("t").number<std::uint32_t>(0xFFFFFFFF).raw(std::string(64, '\1'));
  expect_refused(out.take(), {"tensor 't'", "4294967295 dimensions"});
}

TEST(Gguf, UnsupportedAndRemovedTensorTypesAreNamed) {
  auto with_type = [](std::uint32_t type) {
    GgufBuilder builder = two_tensors();
    builder.entries()[0].type = type;
    return builder.build();
  };
  for (std::uint32_t type : {0xFFFFFFFFu, 255u, 40u}) {
    expect_refused(with_type(type), {"tensor 'a'", cat("type ", type, " (unknown)"), "Q4_K"});
  }
  for (std::uint32_t type : {4u, 5u, 31u, 33u, 36u}) {
    expect_refused(with_type(type), {"tensor 'a'", cat("type ", type), "removed"});
  }
  expect_refused(with_type(10), {"tensor 'a'", "type 10 (Q2_K)", "supported"});
  expect_refused(with_type(24), {"tensor 'a'", "type 24 (I8)", "supported"});
  expect_refused(with_type(8), {"tensor 'a'", "rows of 8", "32", "Q8_0"});
}

TEST(Gguf, TensorsOutsideTheFileAreRefused) {
  auto with_offset = [](std::uint64_t offset) {
    GgufBuilder builder = two_tensors();
    builder.entries()[1].offset = offset;
    return builder.build();
  };
  expect_refused(with_offset(96), {"tensor 'b'", "past the end"});
  expect_refused(with_offset(1ull << 40), {"tensor 'b'", "past the end"});
  expect_refused(with_offset(~0ull - 31), {"tensor 'b'", "past the end"});
  expect_refused(with_offset(65), {"tensor 'b'", "65", "alignment"});
  GgufBuilder builder = two_tensors();
  builder.entries()[1].dims = {32, 4};
  expect_refused(builder.build(), {"tensor 'b'", "past the end"});
}

TEST(Gguf, OverlappingTensorsAreRefused) {
  GgufBuilder builder = two_tensors();
  builder.entries()[1].offset = 32;
  expect_refused(builder.build(), {"'b'", "overlaps", "'a'"});
  builder.entries()[1].offset = 0;
  expect_refused(builder.build(), {"overlaps"});
}

TEST(Gguf, OtherFilesAreRefusedByWhatTheyAre) {
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 98362432\n", {"Git LFS pointer"});
  expect_refused("<!DOCTYPE html><html></html>", {"web page"});
  expect_refused("lmgg\1\0\0\0", {"before GGUF"});
  expect_refused(std::string("\x1b[2J", 4), {"\\x1b[2J"});
  expect_refused(header(0, 0, 1).take(), {"version 1", "supported: 2 and 3"});
  expect_refused(header(0, 0, 4).take(), {"version 4"});
  expect_refused(header(0, 0, 0x03000000).take(), {"big-endian"});
  expect_refused("GG", {"too short"});
}

TEST(Gguf, PartsOfSplitModelsAreRefusedWithAdvice) {
  GgufBuilder builder = two_tensors();
  builder.key_u32("split.no", 1).key_u32("split.count", 3);
  expect_refused(builder.build(), {"part 2 of 3", "--merge"});
  GgufBuilder single = two_tensors();
  single.key_u32("split.no", 0).key_u32("split.count", 1);
  std::string image = single.build();
  EXPECT_TRUE(parse(image).ok());
}

TEST(Gguf, NamesInMessagesAreEscapedAndCut) {
  auto file = parse(one_key(13, "", "\x1b]0;x\x07" + std::string(500, 'n')));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message.find('\x1b'), std::string::npos);
  EXPECT_LT(file.error().message.size(), 300u);
}

/// Overwrites random bytes, and numbers with values near the limits, at random places.
TEST(Gguf, RandomDamageIsReadOrRefusedWithoutHarm) {
  std::string image = two_tensors().build();
  Rng rng(20);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> changed(image.size());
    std::memcpy(changed.data(), image.data(), image.size());
    for (auto edits = rng.between(1, 4); edits > 0; --edits) {
      auto at = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(image.size()) - 8));
      std::uint64_t values[] = {0, ~0ull, 1ull << 63, rng(), 1ull << rng.between(0, 63)};
      std::memcpy(changed.data() + at, &values[rng.between(0, 4)], static_cast<std::size_t>(rng.between(1, 8)));
    }
    auto file = GgufFile::parse(changed);
    EXPECT_TRUE(file.ok() || !file.error().message.empty());
  }
}

TEST(Gguf, OpensAFileAndRefusesWhatIsNone) {
  std::string path = testing::TempDir() + "quire_gguf_test.gguf";
  std::ofstream(path, std::ios::binary) << two_tensors().build();
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  GgufFile moved = *std::move(file);
  const GgufTensor* tensor = moved.find_tensor("a");
  moved.drop_pages(*tensor);
  EXPECT_EQ(tensor->data[0], std::byte{1});
  std::ofstream(path, std::ios::binary) << "";
  EXPECT_NE(GgufFile::open(path).error().message.find("is empty"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(GgufFile::open(path).error().message.find("cannot open"), std::string::npos);
  EXPECT_NE(GgufFile::open(testing::TempDir()).error().message.find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace quire::model
