// matrix products: every weight format x 1 to 512 rows, from memory and cached, as a share of bandwidth or peak

#include <algorithm>
#include <memory>

#include "bench/roofline.h"
#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/ops/matmul.h"
#include "quire/quant/random_weights.h"

namespace quire::bench {
namespace {

struct Shape {
  std::int64_t rows, cols;
  std::int64_t matrices;  ///< multiplied in turn
};
constexpr Shape kInMemory = {6144, 2048, 4};  ///< together they do not fit the caches
constexpr Shape kCached = {768, 768, 1};      ///< quantised, fits a core's second-level cache
constexpr std::int64_t kTokens[] = {1, 8, 32, 512}, kCachedTokens[] = {8, 16, 32};

/// A few matrices of one format.
class Product {
 public:
  Product(DType dtype, const Shape& shape, ThreadPool& pool, CpuTier tier)
      : dtype_(dtype), shape_(shape), pool_(pool), tier_(tier) {
    const auto source = quant::random_weights(dtype, shape.rows, shape.cols, quant::ScaleKind::usual, 1);
    matrices_.resize(static_cast<std::size_t>(shape.matrices));
    pool.run([&](Worker& worker) {
      worker.for_each(shape.matrices, 1, [&](std::int64_t i) {
        matrices_[static_cast<std::size_t>(i)] =
            quant::PackedMatrix::pack(dtype, shape.rows, shape.cols, source.data());
      });
    });
  }

  /// Multiplies all of them with this many rows; seconds for one of them.
  double seconds(std::int64_t tokens, double at_least) {
    const auto x = quant::random_activations(tokens, shape_.cols, 2);
    quant::QuantizedRows quantized(tokens, shape_.cols);
    quantized.reshape(tokens, shape_.cols);
    for (std::int64_t t = 0; t < tokens; ++t) quant::quantize_row(tier_, &x[t * shape_.cols], t, quantized);
    std::vector<float> out(static_cast<std::size_t>(tokens * shape_.rows));
    const ops::MatmulInput input{x.data(), shape_.cols, &quantized, tokens};
    const double all = seconds_per_call(at_least, [&] {
      pool_.run([&](Worker& worker) {
        for (const auto& matrix : matrices_) {
          const ops::MatmulOutput output{&matrix, nullptr, out.data(), shape_.rows};
          ops::matmul(worker, tier_, input, {&output, 1});
        }
      });
      keep(out[0]);
    });
    return all / static_cast<double>(shape_.matrices);
  }

  double operations(std::int64_t tokens) const { return 2.0 * static_cast<double>(shape_.rows * shape_.cols * tokens); }
  double bytes() const { return static_cast<double>(matrices_[0].bytes()); }

  /// Gop/s that the arithmetic of this format allows.
  double peak(Roofline& roofline) const {
    if (!is_quantized(dtype_)) return roofline.fma();
    const bool four_bits = dtype_ == DType::q4_0 || dtype_ == DType::q4_1 || dtype_ == DType::q4_k;
    return four_bits ? roofline.dot4() : roofline.dot8();
  }

 private:
  DType dtype_;
  Shape shape_;
  ThreadPool& pool_;
  CpuTier tier_;
  std::vector<quant::PackedMatrix> matrices_;
};

/// The limit is whichever is later: the last byte of the weights, or the last operation.
Result<void> format(DType dtype, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  Product product(dtype, kInMemory, roofline.pool(), options.tier);
  std::vector<Measure> measures = {[&] { return roofline.dram(); }, [&] { return product.peak(roofline); }};
  for (std::int64_t tokens : kTokens) {
    measures.push_back([&product, &options, tokens] { return product.seconds(tokens, options.seconds); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 0; i < std::size(kTokens); ++i) {
    const double operations = product.operations(kTokens[i]) * 1e-9;
    std::vector<double> reached, limit;
    std::size_t rounds_by_bytes = 0;
    for (std::size_t round = 0; round < figures[0].size(); ++round) {
      const double read_seconds = product.bytes() * 1e-9 / figures[0][round];
      const double compute_seconds = operations / figures[1][round];
      rounds_by_bytes += read_seconds > compute_seconds ? 1 : 0;
      reached.push_back(operations / figures[2 + i][round]);
      limit.push_back(operations / std::max(read_seconds, compute_seconds));
    }
    const bool by_bytes = rounds_by_bytes * 2 > figures[0].size();
    report.rows.push_back(report::make_row({cat(info(dtype).name, ", ", kTokens[i], " rows"), "Gop/s"}, reached,
                                           by_bytes              ? "by DRAM read"
                                           : is_quantized(dtype) ? "by int8 peak"
                                                                 : "by FMA peak",
                                           limit));
  }
  return {};
}

/// With weights in the caches only operations limit.
Result<void> cached_format(DType dtype, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  Product product(dtype, kCached, roofline.pool(), options.tier);
  std::vector<Measure> measures = {[&] { return product.peak(roofline); }};
  for (std::int64_t tokens : kCachedTokens) {
    measures.push_back([&product, &options, tokens] {
      return product.operations(tokens) * 1e-9 / product.seconds(tokens, options.seconds);
    });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 0; i < std::size(kCachedTokens); ++i) {
    report.rows.push_back(report::make_row({cat(info(dtype).name, ", ", kCachedTokens[i], " rows, cached"), "Gop/s"},
                                           figures[1 + i], "int8 peak", figures[0]));
  }
  return {};
}

template <DType kDtype>
Result<void> cached(const Options& options, report::Report& report) {
  return cached_format(kDtype, options, report);
}

template <DType kDtype>
Result<void> section(const Options& options, report::Report& report) {
  return format(kDtype, options, report);
}

constexpr Section kSections[] = {
    {"Q4_0", section<DType::q4_0>},       {"Q4_1", section<DType::q4_1>},       {"Q5_0", section<DType::q5_0>},
    {"Q5_1", section<DType::q5_1>},       {"Q8_0", section<DType::q8_0>},       {"Q4_K", section<DType::q4_k>},
    {"Q5_K", section<DType::q5_k>},       {"Q6_K", section<DType::q6_k>},       {"F16", section<DType::f16>},
    {"BF16", section<DType::bf16>},       {"F32", section<DType::f32>},         {"cached-Q4_0", cached<DType::q4_0>},
    {"cached-Q4_1", cached<DType::q4_1>}, {"cached-Q5_0", cached<DType::q5_0>}, {"cached-Q5_1", cached<DType::q5_1>},
    {"cached-Q8_0", cached<DType::q8_0>}, {"cached-Q4_K", cached<DType::q4_k>}, {"cached-Q5_K", cached<DType::q5_k>},
    {"cached-Q6_K", cached<DType::q6_k>},
};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
