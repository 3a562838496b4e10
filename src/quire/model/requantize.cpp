#include "quire/model/requantize.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "quire/base/checked.h"
#include "quire/model/gguf.h"
#include "quire/model/gguf_reader.h"
#include "quire/model/gguf_writer.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/quantize.h"

namespace quire::model {
namespace {

constexpr std::string_view kFileTypeKey = "general.file_type", kVersionKey = "general.quantization_version";
constexpr std::uint32_t kQuantizationVersion = 2;

/// Elements that are encoded before they are written.
constexpr std::int64_t kSlabElements = 1 << 22;

/// The file type that llama.cpp gives a model of mostly this format.
std::uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q8_0:
      return 7;
    case DType::q5_0:
      return 8;
    case DType::q5_1:
      return 9;
    case DType::q4_k:
      return 14;
    case DType::q5_k:
      return 16;
    case DType::q6_k:
      return 18;
    case DType::bf16:
      return 32;
  }
  return 0;
}

bool fits(DType dtype, std::int64_t cols) { return cols % info(dtype).block_elements == 0; }

/// The format for rows that do not fit the one that was asked for.
DType fallback(DType dtype, std::int64_t cols) {
  const DType smaller = dtype == DType::q4_k   ? DType::q5_0
                        : dtype == DType::q5_k ? DType::q5_1
                        : dtype == DType::q6_k ? DType::q8_0
                                               : DType::f16;
  return fits(smaller, cols) ? smaller : DType::f16;
}

Result<void> refuse_same_file(const std::string& input, const std::string& output) {
  struct stat in, out;
  if (stat(input.c_str(), &in) != 0 || stat(output.c_str(), &out) != 0) return {};
  if (in.st_dev != out.st_dev || in.st_ino != out.st_ino) return {};
  return fail("'", input, "' and '", output, "' are one file; wanted another name for the result");
}

QuantizedTensor plan_tensor(const GgufTensor& tensor, const QuantizeOptions& options) {
  QuantizedTensor plan{.name = tensor.name, .from = tensor.dtype, .to = options.to, .shape = tensor.shape};
  plan.bytes_before = tensor.bytes;
  if (tensor.shape.size() < 2) {
    plan.to = DType::f32;
  } else {
    const auto rule = std::find_if(options.rules.begin(), options.rules.end(),
                                   [&](const TensorRule& r) { return matches(r.pattern, tensor.name); });
    if (rule != options.rules.end()) plan.to = rule->dtype;
    if (!fits(plan.to, tensor.cols())) {
      plan.why = cat("rows of ", tensor.cols(), " are no multiple of ", info(plan.to).block_elements, ", the block of ",
                     info(plan.to).name);
      plan.to = fallback(plan.to, tensor.cols());
    }
  }
  plan.bytes_after = tensor.rows() * row_bytes(plan.to, tensor.cols());
  return plan;
}

Result<void> refuse_idle_rules(const GgufFile& file, const QuantizeOptions& options) {
  for (const TensorRule& rule : options.rules) {
    const auto& tensors = file.tensors();
    const bool used = std::any_of(tensors.begin(), tensors.end(), [&](const GgufTensor& tensor) {
      return tensor.shape.size() >= 2 && matches(rule.pattern, tensor.name);
    });
    if (!used) {
      return fail("pattern '", rule.pattern, "' matches no tensor of two or more dimensions, such as ",
                  tensors.empty() ? "'token_embd.weight'" : gguf::quoted(tensors.front().name));
    }
  }
  return {};
}

std::vector<std::string> key_records(const GgufFile& file, DType to) {
  std::vector<std::string> records;
  bool has_type = false, has_version = false;
  const std::string type = key_record(kFileTypeKey, file_type(to));
  const std::string version = key_record(kVersionKey, kQuantizationVersion);
  for (const GgufKey& key : file.keys()) {
    has_type |= key.name == kFileTypeKey;
    has_version |= key.name == kVersionKey;
    records.emplace_back(key.name == kFileTypeKey ? type : key.name == kVersionKey ? version : std::string(key.record));
  }
  if (!has_type) records.push_back(type);
  if (!has_version) records.push_back(version);
  return records;
}

/// Sums over one row, so that the sums over all rows have one order.
struct RowSums {
  double squares = 0, error_squares = 0;
};

/// Decodes and encodes the rows of one tensor, slab by slab.
class TensorJob {
 public:
  TensorJob(const GgufTensor& tensor, QuantizedTensor& plan, ThreadPool& pool)
      : tensor_(tensor),
        plan_(plan),
        pool_(pool),
        row_bytes_(static_cast<std::size_t>(row_bytes(plan.to, tensor.cols()))),
        slab_rows_(std::clamp<std::int64_t>(kSlabElements / tensor.cols(), 1, tensor.rows())) {
    slab_.resize(static_cast<std::size_t>(slab_rows_) * row_bytes_);
    sums_.resize(static_cast<std::size_t>(slab_rows_));
    failures_.resize(static_cast<std::size_t>(slab_rows_));
    for (int i = 0; i < pool.num_threads(); ++i) scratch_.emplace_back(static_cast<std::size_t>(tensor.cols()) * 2);
  }

  Result<void> run(NewFile& out, const std::function<void(std::int64_t)>& on_bytes_done) {
    RowSums total;
    for (std::int64_t first = 0; first < tensor_.rows(); first += slab_rows_) {
      const std::int64_t count = std::min(slab_rows_, tensor_.rows() - first);
      pool_.run([&](Worker& worker) {
        worker.for_each(count, 1, [&](std::int64_t i) { encode_row(first, i, worker.index()); });
      });
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        if (failures_[i])
          return fail("tensor ", gguf::quoted(tensor_.name), ", row ", first + static_cast<std::int64_t>(i), ", ",
                      *failures_[i]);
        total.squares += sums_[i].squares;
        total.error_squares += sums_[i].error_squares;
      }
      QUIRE_TRY_VOID(out.write(std::span(slab_).first(static_cast<std::size_t>(count) * row_bytes_)));
      on_bytes_done(tensor_.bytes * (first + count) / tensor_.rows());
    }
    const auto elements = static_cast<double>(tensor_.rows()) * static_cast<double>(tensor_.cols());
    plan_.rms = std::sqrt(total.squares / elements);
    plan_.rmse = std::sqrt(total.error_squares / elements);
    return {};
  }

 private:
  void encode_row(std::int64_t first, std::int64_t i, int worker) {
    const auto at = static_cast<std::size_t>(i);
    const auto cols = static_cast<std::size_t>(tensor_.cols());
    const std::byte* source = tensor_.data + (first + i) * row_bytes(tensor_.dtype, tensor_.cols());
    std::byte* target = slab_.data() + at * row_bytes_;
    const std::span<float> both(scratch_[static_cast<std::size_t>(worker)]);
    const std::span<float> values = both.first(cols), decoded = both.subspan(cols);
    quant::dequantize(tensor_.dtype, source, tensor_.cols(), values.data());
    failures_[at].reset();
    if (tensor_.dtype == plan_.to) {
      std::copy_n(source, row_bytes_, target);
    } else if (auto done = quant::quantize(plan_.to, values, target); !done.ok()) {
      failures_[at] = done.error().message;
      return;
    }
    quant::dequantize(plan_.to, target, tensor_.cols(), decoded.data());
    RowSums sums;
    for (std::size_t c = 0; c < cols; ++c) {
      const double value = double{values[c]}, error = double{decoded[c]} - value;
      sums.squares += value * value;
      sums.error_squares += error * error;
    }
    sums_[at] = sums;
  }

  const GgufTensor& tensor_;
  QuantizedTensor& plan_;
  ThreadPool& pool_;
  const std::size_t row_bytes_;
  const std::int64_t slab_rows_;
  std::vector<std::byte> slab_;                       ///< [slab_rows][row_bytes]
  std::vector<RowSums> sums_;                         ///< [slab_rows]
  std::vector<std::optional<std::string>> failures_;  ///< [slab_rows]
  std::vector<std::vector<float>> scratch_;           ///< [threads][2][cols]: the row, and as it will be read
};

Result<void> write_tensors(const GgufFile& file, const QuantizeOptions& options, ThreadPool& pool,
                           QuantizeReport& report, NewFile& out) {
  std::int64_t total = 0, done = 0;
  for (const auto& tensor : file.tensors()) total += tensor.bytes;
  const auto show = [&](std::int64_t of_tensor) {
    if (options.progress) options.progress(static_cast<double>(done + of_tensor) / static_cast<double>(total));
  };
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    QuantizedTensor& plan = report.tensors[i];
    QUIRE_TRY_VOID(TensorJob(tensor, plan, pool).run(out, show));
    const std::vector<std::byte> padding(
        static_cast<std::size_t>(round_up(plan.bytes_after, file.alignment()) - plan.bytes_after));
    QUIRE_TRY_VOID(out.write(padding));
    report.bytes_after += static_cast<std::uint64_t>(plan.bytes_after) + padding.size();
    file.drop_pages(tensor);
    done += tensor.bytes;
  }
  return {};
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, star_ends = 0;  // the last '*' met, and where its text ends for now
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_ends = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_ends;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<QuantizeReport> quantize_file(const QuantizeOptions& options, ThreadPool& pool) {
  QUIRE_TRY_VOID(refuse_same_file(options.input, options.output));
  QUIRE_TRY(GgufFile file, GgufFile::open(options.input));
  QUIRE_TRY_VOID(refuse_idle_rules(file, options));
  QuantizeReport report;
  report.bytes_before = file.file_bytes();
  std::vector<PlannedTensor> planned;
  for (const GgufTensor& tensor : file.tensors()) {
    report.tensors.push_back(plan_tensor(tensor, options));
    planned.push_back({tensor.name, report.tensors.back().to, tensor.shape});
  }
  QUIRE_TRY(NewFile out, NewFile::create(options.output, options.existing));
  const std::string header = gguf_header(key_records(file, options.to), planned, file.alignment());
  report.bytes_after = header.size();
  QUIRE_TRY_VOID(out.write(std::as_bytes(std::span(header))));
  QUIRE_TRY_VOID(write_tensors(file, options, pool, report, out));
  QUIRE_TRY_VOID(out.keep());
  return report;
}

}  // namespace quire::model
