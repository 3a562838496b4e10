#include "quire/quant/packed_matrix.h"

#include <gtest/gtest.h>

#include "quire/base/hash.h"
#include "quire/quant/group_codes.h"
#include "quire/quant/packed_layout.h"
#include "quire/quant/random_weights.h"

namespace quire::quant {
namespace {

class PackedMatrixOfFormat : public testing::TestWithParam<DType> {
 protected:
  std::vector<std::int64_t> columns() const {
    if (!is_quantized(GetParam())) return {1, 7, 64};
    if (info(GetParam()).block_elements == 256) return {256, 768};
    return {32, 96, 256};
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, PackedMatrixOfFormat, testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(quire::info(param.param).name); });

TEST_P(PackedMatrixOfFormat, RowsDecodeToTheValuesOfTheFile) {
  for (std::int64_t cols : columns()) {
    for (std::int64_t rows : {1, 15, 16, 17, 40}) {
      for (ScaleKind kind : {ScaleKind::usual, ScaleKind::extreme}) {
        auto source = random_weights(GetParam(), rows, cols, kind, 3);
        PackedMatrix packed = PackedMatrix::pack(GetParam(), rows, cols, source.data());
        std::vector<float> expected(static_cast<std::size_t>(cols)), actual(expected.size());
        for (std::int64_t row = 0; row < rows; ++row) {
          dequantize(GetParam(), source.data() + row * row_bytes(GetParam(), cols), cols, expected.data());
          packed.dequantize_row(row, actual.data());
          ASSERT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0)
              << rows << "x" << cols << " row " << row;
        }
      }
    }
  }
}

TEST_P(PackedMatrixOfFormat, IsAboutTheSizeOfTheFile) {
  auto source = random_weights(GetParam(), 64, 1024, ScaleKind::usual, 3);
  PackedMatrix packed = PackedMatrix::pack(GetParam(), 64, 1024, source.data());
  EXPECT_GE(packed.bytes(), source.size());
  EXPECT_LE(static_cast<double>(packed.bytes()), 1.03 * static_cast<double>(source.size()));
}

TEST_P(PackedMatrixOfFormat, StripsStartOnCacheLines) {
  for (std::int64_t cols : columns()) {
    auto source = random_weights(GetParam(), 33, cols, ScaleKind::usual, 3);
    PackedMatrix packed = PackedMatrix::pack(GetParam(), 33, cols, source.data());
    EXPECT_EQ(packed.num_strips(), 3);
    EXPECT_EQ(packed.strip_bytes() % 64, 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed.strip(0)) % 64, 0u);
    EXPECT_EQ(static_cast<std::int64_t>(packed.bytes()), 3 * packed.strip_bytes());
  }
}

TEST_P(PackedMatrixOfFormat, PaddingRowsAreZero) {
  if (!is_quantized(GetParam())) {
    auto source = random_weights(GetParam(), 17, 5, ScaleKind::usual, 3);
    PackedMatrix packed = PackedMatrix::pack(GetParam(), 17, 5, source.data());
    std::int64_t bytes = info(GetParam()).block_bytes;
    for (std::int64_t at = bytes; at < 16 * bytes; ++at) ASSERT_EQ(packed.strip(1)[at], std::byte{0});
    return;
  }
  auto source = random_weights(GetParam(), 17, 256, ScaleKind::usual, 3);
  PackedMatrix packed = PackedMatrix::pack(GetParam(), 17, 256, source.data());
  for (int lane = 1; lane < 16; ++lane) {
    for (std::int64_t group = 0; group < 8; ++group) {
      GroupCodes codes = read_packed_group(GetParam(), packed.strip(1), group, lane);
      ASSERT_EQ(codes.d, 0);
      ASSERT_EQ(codes.m, 0);
      for (int code : codes.code) ASSERT_EQ(code, 0);
    }
  }
}

TEST_P(PackedMatrixOfFormat, AViewOfPackedBytesIsTheSameMatrix) {
  auto source = random_weights(GetParam(), 33, 256, ScaleKind::usual, 3);
  PackedMatrix packed = PackedMatrix::pack(GetParam(), 33, 256, source.data());
  EXPECT_EQ(PackedMatrix::packed_bytes(GetParam(), 33, 256), packed.bytes());
  auto owner = std::make_shared<AlignedBuffer>(packed.bytes());
  std::memcpy(owner->data(), packed.strip(0), packed.bytes());
  const std::weak_ptr<AlignedBuffer> watched = owner;
  {
    PackedMatrix view = PackedMatrix::view(GetParam(), 33, 256, owner->data(), owner);
    owner.reset();
    EXPECT_EQ(view.bytes(), packed.bytes());
    EXPECT_EQ(view.strip_bytes(), packed.strip_bytes());
    EXPECT_EQ(std::memcmp(view.strip(2), packed.strip(2), static_cast<std::size_t>(view.strip_bytes())), 0);
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

// Packed matrices are kept in files: whoever moves a byte raises kPackedLayoutVersion and changes the digest with it.
TEST(PackedLayout, IsThatOfItsVersion) {
  Digest digest;
  for (DType dtype : kAllDTypes) {
    auto source = random_weights(dtype, 33, 768, ScaleKind::usual, 3);
    PackedMatrix packed = PackedMatrix::pack(dtype, 33, 768, source.data());
    digest.add_bytes({packed.strip(0), packed.bytes()});
  }
  EXPECT_EQ(kPackedLayoutVersion, 1u);
  EXPECT_EQ(digest.value(), 1738581622924572603u);
}

}  // namespace
}  // namespace quire::quant
