#include "quire/ops/matmul.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/ops/matmul_kernels.h"

namespace quire::ops {
namespace {

constexpr std::int64_t kTokensPerItem = 4 * quant::kRowBlock;  // their activations stay in the second-level cache
constexpr std::int64_t kFloatStripMultiple = 4;  // kernels of float weights for one token walk this many at a time
constexpr std::int64_t kMaxStripsPerItem = 64;
constexpr std::int64_t kItemsPerWorker = 16;  // enough for the last items to even out

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
  task.stretch_end = task.then = weights.strip(weights.num_strips());
  return task;
}

const quant::PackedMatrix& matrix_of(const quant::PackedMatrix* matrix) { return *matrix; }
const quant::PackedMatrix& matrix_of(const MatmulOutput& output) { return *output.weights; }

/// How a call is cut into items: so many strips of one matrix times a block of tokens. The cut decides who computes
/// what, never a result. Products is a span of matrices or of outputs.
template <class Products>
class Cut {
 public:
  Cut(Products products, std::int64_t num_tokens, int workers)
      : products_(products), num_tokens_(num_tokens), token_blocks_(ceil_div(num_tokens, kTokensPerItem)) {
    std::int64_t num_strips = 0;
    bool any_float = false;
    for (const auto& product : products_) {
      num_strips += matrix_of(product).num_strips();
      any_float = any_float || !is_quantized(matrix_of(product).dtype());
    }
    const std::int64_t strip_items = ceil_div(kItemsPerWorker * workers, std::max<std::int64_t>(token_blocks_, 1));
    const std::int64_t strips = round_up(ceil_div(num_strips, strip_items), any_float ? kFloatStripMultiple : 1);
    strips_per_item_ = std::min(strips, kMaxStripsPerItem);
  }

  std::int64_t num_items() const {
    std::int64_t items = 0;
    for (const auto& product : products_) items += items_of(product);
    return items * token_blocks_;
  }

  struct Item {
    std::size_t product;
    Range range;
  };
  Item item(std::int64_t index) const {
    // Token blocks of the same strips are neighbours, so that the strips stay in the cache.
    std::int64_t strip_item = index / token_blocks_;
    std::size_t product = 0;
    for (; strip_item >= items_of(products_[product]); ++product) strip_item -= items_of(products_[product]);
    Range range;
    range.first = strip_item * strips_per_item_;
    range.count = std::min(strips_per_item_, matrix_of(products_[product]).num_strips() - range.first);
    range.token = index % token_blocks_ * kTokensPerItem;
    range.tokens = std::min(kTokensPerItem, num_tokens_ - range.token);
    return {product, range};
  }

 private:
  template <class Product>
  std::int64_t items_of(const Product& product) const {
    return ceil_div(matrix_of(product).num_strips(), strips_per_item_);
  }

  Products products_;
  std::int64_t num_tokens_, token_blocks_, strips_per_item_;
};

}  // namespace

void matmul(Worker& worker, CpuTier tier, const MatmulInput& input, std::span<const MatmulOutput> outputs,
            WeightsAhead& ahead) {
  const MatmulKernels& kernels = kernels_of(tier);
  auto input_of = [&input](const MatmulOutput& output) -> const MatmulInput& {
    return output.input != nullptr ? *output.input : input;
  };
  for (const auto& output : outputs) {
    QUIRE_CHECK(input_of(output).num_tokens == input.num_tokens, input_of(output).num_tokens, " ", input.num_tokens);
    check_input(input_of(output), *output.weights);
  }
  const Cut cut(outputs, input.num_tokens, worker.count());
  const std::int64_t num_items = cut.num_items();
  if (num_items == 0) return worker.barrier();
  const std::int64_t first = worker.share_begin(num_items, worker.index());
  const std::int64_t end = worker.share_begin(num_items, worker.index() + 1);
  const auto last = cut.item(std::min(std::max(end - 1, first), num_items - 1));

  auto multiply = [&](std::int64_t index) {
    const auto item = cut.item(index);
    const MatmulOutput& output = outputs[item.product];
    MatmulTask task = make_task(input_of(output), output, item.range);
    if (index >= first && index < end) {
      if (item.product != last.product) {
        task.then = outputs[item.product + 1].weights->strip(0);
      } else if (ahead.begin() != nullptr) {
        task.stretch_end = output.weights->strip(last.range.first + last.range.count);
        task.then = ahead.begin();
      }
    }
    kernel_of(kernels, output.weights->dtype())(task);
  };
  worker.for_each_in_shares(num_items, 1, multiply, [&ahead] { return ahead.fetch(); });
}

void matmul(Worker& worker, CpuTier tier, const MatmulInput& input, std::span<const MatmulOutput> outputs) {
  WeightsAhead unknown;
  matmul(worker, tier, input, outputs, unknown);
}

WeightsAhead share_of(const Worker& worker, std::span<const quant::PackedMatrix* const> matrices,
                      std::int64_t num_tokens) {
  const Cut cut(matrices, num_tokens, worker.count());
  const std::int64_t num_items = cut.num_items();
  const std::int64_t first = worker.share_begin(num_items, worker.index());
  if (first >= worker.share_begin(num_items, worker.index() + 1)) return {};
  const auto item = cut.item(first);
  const quant::PackedMatrix& matrix = *matrices[item.product];
  return {matrix.strip(item.range.first),
          static_cast<std::size_t>((matrix.num_strips() - item.range.first) * matrix.strip_bytes())};
}

}  // namespace quire::ops
