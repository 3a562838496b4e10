// matrix products: every weight format x 1, 8, 32 and 512 rows of activations, as a share of bandwidth or int8 peak

#include <algorithm>
#include <memory>

#include "bench/roofline.h"
#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/ops/matmul.h"
#include "quire/quant/random_weights.h"

namespace quire::bench {
namespace {

constexpr std::int64_t kRows = 6144, kCols = 2048;
constexpr std::int64_t kMatrices = 4;  ///< multiplied in turn, so that together they do not fit the caches
constexpr std::int64_t kTokens[] = {1, 8, 32, 512};

/// A few matrices of one format.
class Product {
 public:
  Product(DType dtype, ThreadPool& pool, CpuTier tier) : dtype_(dtype), pool_(pool), tier_(tier) {
    const auto source = quant::random_weights(dtype, kRows, kCols, quant::ScaleKind::usual, 1);
    matrices_.resize(kMatrices);
    pool.run([&](Worker& worker) {
      worker.for_each(kMatrices, 1, [&](std::int64_t i) {
        matrices_[static_cast<std::size_t>(i)] = quant::PackedMatrix::pack(dtype, kRows, kCols, source.data());
      });
    });
  }

  /// Multiplies all of them with this many rows; seconds for one of them.
  double seconds(std::int64_t tokens, double at_least) {
    const auto x = quant::random_activations(tokens, kCols, 2);
    quant::QuantizedRows quantized(tokens, kCols);
    quantized.reshape(tokens, kCols);
    for (std::int64_t t = 0; t < tokens; ++t) quant::quantize_row(tier_, &x[t * kCols], t, quantized);
    std::vector<float> out(static_cast<std::size_t>(tokens * kRows));
    const ops::MatmulInput input{x.data(), kCols, &quantized, tokens};
    const double all = seconds_per_call(at_least, [&] {
      pool_.run([&](Worker& worker) {
        for (const auto& matrix : matrices_) {
          const ops::MatmulOutput output{&matrix, nullptr, out.data(), kRows};
          ops::matmul(worker, tier_, input, {&output, 1});
        }
      });
      keep(out[0]);
    });
    return all / kMatrices;
  }

  double operations(std::int64_t tokens) const { return 2.0 * kRows * kCols * static_cast<double>(tokens); }
  double bytes() const { return static_cast<double>(matrices_[0].bytes()); }

  /// Gop/s that the arithmetic of this format allows.
  double peak(Roofline& roofline) const {
    if (!is_quantized(dtype_)) return roofline.fma();
    const bool four_bits = dtype_ == DType::q4_0 || dtype_ == DType::q4_1 || dtype_ == DType::q4_k;
    return four_bits ? roofline.dot4() : roofline.dot8();
  }

 private:
  DType dtype_;
  ThreadPool& pool_;
  CpuTier tier_;
  std::vector<quant::PackedMatrix> matrices_;
};

/// The limit is whichever is later: the last byte of the weights, or the last operation.
Result<void> format(DType dtype, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  Product product(dtype, roofline.pool(), options.tier);
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

template <DType kDtype>
Result<void> section(const Options& options, report::Report& report) {
  return format(kDtype, options, report);
}

constexpr Section kSections[] = {
    {"Q4_0", section<DType::q4_0>}, {"Q4_1", section<DType::q4_1>}, {"Q5_0", section<DType::q5_0>},
    {"Q5_1", section<DType::q5_1>}, {"Q8_0", section<DType::q8_0>}, {"Q4_K", section<DType::q4_k>},
    {"Q5_K", section<DType::q5_k>}, {"Q6_K", section<DType::q6_k>}, {"F16", section<DType::f16>},
    {"BF16", section<DType::bf16>}, {"F32", section<DType::f32>},
};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
