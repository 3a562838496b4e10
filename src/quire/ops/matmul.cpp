#include "quire/ops/matmul.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/ops/matmul_kernels.h"

namespace quire::ops {
namespace {

constexpr std::int64_t kTokensPerItem = 4 * quant::kRowBlock;  // their activations stay in the second-level cache
constexpr std::int64_t kStripMultiple = 4;  // of float weights: kernels for one token walk this many strips at a time
constexpr std::int64_t kMaxStripsPerItem = 64;
constexpr std::int64_t kItemsPerWorker = 8;  // enough for the last items to even out

const MatmulKernels& kernels_of(CpuTier tier) {
  switch (tier) {
    case CpuTier::scalar:
      return kMatmulScalar;
    case CpuTier::avx2:
      return kMatmulAvx2;
    case CpuTier::avxvnni:
      return kMatmulAvxVnni;
    case CpuTier::avx512:
      return kMatmulAvx512;
    case CpuTier::avx512vnni:
      return kMatmulAvx512Vnni;
  }
  QUIRE_CHECK(false, "unknown tier");
}

MatmulKernel kernel_of(const MatmulKernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kernels.f32;
    case DType::f16:
      return kernels.f16;
    case DType::bf16:
      return kernels.bf16;
    case DType::q4_0:
      return kernels.q4_0;
    case DType::q4_1:
      return kernels.q4_1;
    case DType::q5_0:
      return kernels.q5_0;
    case DType::q5_1:
      return kernels.q5_1;
    case DType::q8_0:
      return kernels.q8_0;
    case DType::q4_k:
      return kernels.q4_k;
    case DType::q5_k:
      return kernels.q5_k;
    case DType::q6_k:
      return kernels.q6_k;
  }
  QUIRE_CHECK(false, "unknown dtype");
}

void check_input(const MatmulInput& input, const quant::PackedMatrix& weights) {
  if (is_quantized(weights.dtype())) {
    QUIRE_CHECK(input.quantized != nullptr, info(weights.dtype()).name, " weights need quantised activations");
    QUIRE_CHECK(input.quantized->cols() == weights.cols() && input.quantized->rows() >= input.num_tokens,
                input.quantized->rows(), " x ", input.quantized->cols(), " for ", input.num_tokens, " x ",
                weights.cols());
  } else {
    QUIRE_CHECK(input.f32 != nullptr, info(weights.dtype()).name, " weights need f32 activations");
    QUIRE_CHECK(input.num_tokens <= 1 || input.f32_stride >= weights.cols(), input.f32_stride, " ", weights.cols());
  }
}

/// The part of `output` in strips [first, first + count) and tokens [token, token + tokens).
struct Range {
  std::int64_t first, count, token, tokens;
};

MatmulTask make_task(const MatmulInput& input, const MatmulOutput& output, const Range& range) {
  const quant::PackedMatrix& weights = *output.weights;
  std::int64_t row = range.first * quant::kStripRows;
  MatmulTask task{};
  task.strips = weights.strip(range.first);
  task.strip_bytes = weights.strip_bytes();
  task.num_strips = range.count;
  task.num_rows = std::min(weights.rows() - row, range.count * quant::kStripRows);
  task.cols = weights.cols();
  task.num_tokens = range.tokens;
  if (is_quantized(weights.dtype())) {
    task.groups = input.quantized->row(range.token);
  } else {
    task.x = input.f32 + range.token * input.f32_stride;
    task.x_stride = input.f32_stride;
  }
  task.bias = output.bias != nullptr ? output.bias + row : nullptr;
  task.out = output.out + range.token * output.out_stride + row;
  task.out_stride = output.out_stride;
  return task;
}

/// How a call is cut into items. The cut decides who computes what, never a result.
struct Cut {
  std::int64_t token_blocks, strips_per_item;
};

Cut choose_cut(std::int64_t num_strips, std::int64_t num_tokens, int workers) {
  std::int64_t token_blocks = ceil_div(num_tokens, kTokensPerItem);
  std::int64_t strip_items = ceil_div(kItemsPerWorker * workers, std::max<std::int64_t>(token_blocks, 1));
  std::int64_t strips = round_up(ceil_div(num_strips, strip_items), kStripMultiple);
  return {token_blocks, std::min(strips, kMaxStripsPerItem)};
}

}  // namespace

void matmul(Worker& worker, CpuTier tier, const MatmulInput& input, std::span<const MatmulOutput> outputs) {
  const MatmulKernels& kernels = kernels_of(tier);
  std::int64_t num_strips = 0;
  for (const auto& output : outputs) {
    check_input(input, *output.weights);
    num_strips += output.weights->num_strips();
  }
  Cut cut = choose_cut(num_strips, input.num_tokens, worker.count());
  std::int64_t num_items = 0;
  for (const auto& output : outputs) num_items += ceil_div(output.weights->num_strips(), cut.strips_per_item);

  // Token blocks of the same strips are neighbours, so that the strips stay in the cache.
  worker.for_each_in_shares(num_items * cut.token_blocks, 1, [&](std::int64_t item) {
    std::int64_t strip_item = item / cut.token_blocks;
    auto output = outputs.begin();
    for (; strip_item >= ceil_div(output->weights->num_strips(), cut.strips_per_item); ++output) {
      strip_item -= ceil_div(output->weights->num_strips(), cut.strips_per_item);
    }
    Range range;
    range.first = strip_item * cut.strips_per_item;
    range.count = std::min(cut.strips_per_item, output->weights->num_strips() - range.first);
    range.token = item % cut.token_blocks * kTokensPerItem;
    range.tokens = std::min(kTokensPerItem, input.num_tokens - range.token);
    kernel_of(kernels, output->weights->dtype())(make_task(input, *output, range));
  });
}

}  // namespace quire::ops
