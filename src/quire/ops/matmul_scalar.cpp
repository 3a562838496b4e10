// The reference: plain loops over the packed layout. Every other tier gives the same bits.

#include <cmath>
#include <vector>

#include "quire/ops/matmul_kernels.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/group_codes.h"
#include "quire/quant/packed_matrix.h"

namespace quire::ops {
namespace {

using quant::GroupCodes;
using quant::kStripRows;

/// Sum of (code - offset) * q over columns [begin, end) of the group; exact.
int integer_dot(DType dtype, const GroupCodes& codes, const std::int8_t* q, int begin, int end) {
  int sum = 0;
  for (int i = begin; i < end; ++i) sum += quant::signed_code(dtype, codes, i) * q[i];
  return sum;
}

/// Rule 6: one fma a group (Q6_K: one for each half), then one for the minimum.
float add_group(DType dtype, const GroupCodes& codes, const quant::ActivationGroup& x, float acc) {
  if (dtype == DType::q6_k) {
    for (int half = 0; half < 2; ++half) {
      int dot = integer_dot(dtype, codes, x.q, half * 16, half * 16 + 16);
      acc = std::fma(static_cast<float>(dot), quant::group_scale(dtype, codes, half) * x.d, acc);
    }
    return acc;
  }
  int dot = integer_dot(dtype, codes, x.q, 0, 32);
  acc = std::fma(static_cast<float>(dot), quant::group_scale(dtype, codes, 0) * x.d, acc);
  return quant::has_minimum(dtype) ? std::fma(quant::group_minimum(dtype, codes), x.s, acc) : acc;
}

void store_row(const MatmulTask& task, std::int64_t row, const std::vector<float>& sums) {
  for (std::int64_t t = 0; t < task.num_tokens; ++t) {
    float sum = sums[static_cast<std::size_t>(t)];
    task.out[t * task.out_stride + row] = task.bias != nullptr ? sum + task.bias[row] : sum;
  }
}

template <DType kDType>
void quantized(const MatmulTask& task) {
  std::int64_t groups = task.cols / 32;
  for (std::int64_t row = 0; row < task.num_rows; ++row) {
    const std::byte* strip = task.strips + row / kStripRows * task.strip_bytes;
    std::vector<float> sums(static_cast<std::size_t>(task.num_tokens), 0.0f);
    for (std::int64_t g = 0; g < groups; ++g) {
      GroupCodes codes = quant::read_packed_group(kDType, strip, g, static_cast<int>(row % kStripRows));
      for (std::int64_t t = 0; t < task.num_tokens; ++t) {
        float& sum = sums[static_cast<std::size_t>(t)];
        const std::int64_t block = t / quant::kRowBlock * groups;
        sum = add_group(kDType, codes, task.groups[(block + g) * quant::kRowBlock + t % quant::kRowBlock], sum);
      }
    }
    store_row(task, row, sums);
  }
}

template <DType kDType>
void floating(const MatmulTask& task) {
  constexpr std::int64_t kBytes = kDType == DType::f32 ? 4 : 2;
  for (std::int64_t row = 0; row < task.num_rows; ++row) {
    const std::byte* column = task.strips + row / kStripRows * task.strip_bytes + row % kStripRows * kBytes;
    std::vector<float> sums(static_cast<std::size_t>(task.num_tokens), 0.0f);
    for (std::int64_t k = 0; k < task.cols; ++k, column += kStripRows * kBytes) {
      float weight;
      quant::dequantize(kDType, column, 1, &weight);
      for (std::int64_t t = 0; t < task.num_tokens; ++t) {
        float& sum = sums[static_cast<std::size_t>(t)];
        sum = std::fma(weight, task.x[t * task.x_stride + k], sum);
      }
    }
    store_row(task, row, sums);
  }
}

}  // namespace

const MatmulKernels kMatmulScalar = {
    floating<DType::f32>,   floating<DType::f16>,   floating<DType::bf16>,  quantized<DType::q4_0>,
    quantized<DType::q4_1>, quantized<DType::q5_0>, quantized<DType::q5_1>, quantized<DType::q8_0>,
    quantized<DType::q4_k>, quantized<DType::q5_k>, quantized<DType::q6_k>,
};

}  // namespace quire::ops
