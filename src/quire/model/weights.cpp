#include "quire/model/weights.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>

#include "quire/model/gguf_reader.h"
#include "quire/model/repack_file.h"
#include "quire/quant/dequantize.h"

namespace quire::model {
namespace {

using quant::PackedMatrix;

/// Rows and cols of a matrix, as the configuration wants them.
struct Shape {
  std::int64_t rows, cols;
};

std::string text_of(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += cat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

/// The matrices that are to be packed and the vectors that are to be decoded, found and checked before any work is
/// done.
class LoadPlan {
 public:
  struct Job {
    const GgufTensor* tensor;
    PackedMatrix* target;
  };

  LoadPlan(const GgufFile& file) : file_(file) {}

  Result<void> matrix(const std::string& name, Shape wanted, PackedMatrix& target) {
    QUIRE_TRY(const GgufTensor* tensor, find(name, std::vector<std::int64_t>{wanted.cols, wanted.rows}));
    jobs_.push_back({tensor, &target});
    return {};
  }

  Result<void> vector(const std::string& name, std::int64_t length, std::vector<float>& target) {
    QUIRE_TRY(const GgufTensor* tensor, find(name, std::vector<std::int64_t>{length}));
    target.resize(static_cast<std::size_t>(length));
    vectors_.emplace_back(tensor, &target);
    return {};
  }

  void decode_vectors() const {
    for (const auto& [tensor, target] : vectors_)
      quant::dequantize(tensor->dtype, tensor->data, static_cast<std::int64_t>(target->size()), target->data());
  }

  /// A tensor that the configuration has read.
  void mark_used(const std::string& name) { used_.insert(name); }

  Result<void> refuse_unused(const std::string& architecture) const {
    for (const auto& tensor : file_.tensors()) {
      if (!used_.contains(tensor.name)) {
        return fail("tensor ", gguf::quoted(tensor.name), " is not part of the ", architecture,
                    " family as it is supported");
      }
    }
    return {};
  }

  /// Largest first, so that the threads finish together.
  std::vector<Job> take_jobs() {
    std::stable_sort(jobs_.begin(), jobs_.end(),
                     [](const Job& a, const Job& b) { return a.tensor->bytes > b.tensor->bytes; });
    return std::move(jobs_);
  }

 private:
  Result<const GgufTensor*> find(const std::string& name, const std::vector<std::int64_t>& shape) {
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) return fail("tensor '", name, "' is missing");
    if (tensor->shape != shape) {
      return fail("tensor '", name, "': found shape ", text_of(tensor->shape), ", wanted ", text_of(shape));
    }
    used_.insert(name);
    return tensor;
  }

  const GgufFile& file_;
  std::vector<Job> jobs_;
  std::vector<std::pair<const GgufTensor*, std::vector<float>*>> vectors_;
  std::unordered_set<std::string> used_;
};

Result<void> plan_layer(LoadPlan& plan, const ModelConfig& config, const std::string& prefix, LayerWeights& layer) {
  const std::int64_t q_rows = config.num_heads * config.head_dim, kv_rows = config.num_kv_heads * config.head_dim;
  QUIRE_TRY_VOID(plan.vector(prefix + "attn_norm.weight", config.hidden, layer.attn_norm));
  QUIRE_TRY_VOID(plan.matrix(prefix + "attn_q.weight", {q_rows, config.hidden}, layer.q));
  QUIRE_TRY_VOID(plan.matrix(prefix + "attn_k.weight", {kv_rows, config.hidden}, layer.k));
  QUIRE_TRY_VOID(plan.matrix(prefix + "attn_v.weight", {kv_rows, config.hidden}, layer.v));
  if (config.has_qkv_bias) {
    QUIRE_TRY_VOID(plan.vector(prefix + "attn_q.bias", q_rows, layer.q_bias));
    QUIRE_TRY_VOID(plan.vector(prefix + "attn_k.bias", kv_rows, layer.k_bias));
    QUIRE_TRY_VOID(plan.vector(prefix + "attn_v.bias", kv_rows, layer.v_bias));
  }
  if (config.has_qk_norm) {
    QUIRE_TRY_VOID(plan.vector(prefix + "attn_q_norm.weight", config.head_dim, layer.q_norm));
    QUIRE_TRY_VOID(plan.vector(prefix + "attn_k_norm.weight", config.head_dim, layer.k_norm));
  }
  QUIRE_TRY_VOID(plan.matrix(prefix + "attn_output.weight", {config.hidden, q_rows}, layer.attn_out));
  QUIRE_TRY_VOID(plan.vector(prefix + "ffn_norm.weight", config.hidden, layer.ffn_norm));
  QUIRE_TRY_VOID(plan.matrix(prefix + "ffn_gate.weight", {config.ffn, config.hidden}, layer.gate));
  QUIRE_TRY_VOID(plan.matrix(prefix + "ffn_up.weight", {config.ffn, config.hidden}, layer.up));
  QUIRE_TRY_VOID(plan.matrix(prefix + "ffn_down.weight", {config.hidden, config.ffn}, layer.down));
  if (config.has_post_norms) {
    QUIRE_TRY_VOID(plan.vector(prefix + "post_attention_norm.weight", config.hidden, layer.post_attn_norm));
    QUIRE_TRY_VOID(plan.vector(prefix + "post_ffw_norm.weight", config.hidden, layer.post_ffn_norm));
  }
  return {};
}

Result<void> plan_model(LoadPlan& plan, const ModelConfig& config, Weights& weights) {
  const Shape table{config.vocab_size, config.hidden};
  QUIRE_TRY_VOID(plan.matrix("token_embd.weight", table, weights.embedding));
  if (!config.tied_output) QUIRE_TRY_VOID(plan.matrix("output.weight", table, weights.output));
  QUIRE_TRY_VOID(plan.vector("output_norm.weight", config.hidden, weights.output_norm));
  plan.mark_used("rope_freqs.weight");
  weights.layers.resize(static_cast<std::size_t>(config.num_layers));
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    QUIRE_TRY_VOID(plan_layer(plan, config, cat("blk.", i, "."), weights.layers[i]));
  }
  return plan.refuse_unused(config.architecture);
}

DType packed_type(const GgufTensor& tensor, WeightFormat format) {
  return format == WeightFormat::f32 ? DType::f32 : tensor.dtype;
}

PackedMatrix pack(const GgufTensor& tensor, WeightFormat format) {
  if (format == WeightFormat::as_in_file) {
    return PackedMatrix::pack(tensor.dtype, tensor.rows(), tensor.cols(), tensor.data);
  }
  const std::int64_t elements = tensor.rows() * tensor.cols();
  AlignedBuffer decoded(static_cast<std::size_t>(elements) * sizeof(float));
  quant::dequantize(tensor.dtype, tensor.data, elements, decoded.as<float>());
  return PackedMatrix::pack(packed_type(tensor, format), tensor.rows(), tensor.cols(), decoded.data());
}

/// Runs the jobs on the pool. False if memory ran out.
bool run_jobs(const GgufFile& file, std::span<const LoadPlan::Job> jobs, ThreadPool& pool,
              const WeightsOptions& options) {
  std::int64_t total_bytes = 0;
  for (const auto& job : jobs) total_bytes += job.tensor->bytes;
  std::atomic<std::int64_t> done_bytes{0};
  std::atomic<bool> out_of_memory{false};
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<std::int64_t>(jobs.size()), 1, [&](std::int64_t i) {
      const auto& job = jobs[static_cast<std::size_t>(i)];
      try {
        *job.target = pack(*job.tensor, options.format);
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
      file.drop_pages(*job.tensor);
      std::int64_t done = done_bytes += job.tensor->bytes;
      // Worker 0 is the calling thread.
      if (options.progress && worker.index() == 0) {
        options.progress(static_cast<double>(done) / static_cast<double>(total_bytes));
      }
    });
  });
  return !out_of_memory;
}

std::vector<RepackEntry> repack_entries(std::span<const LoadPlan::Job> jobs) {
  std::vector<RepackEntry> entries;
  for (const auto& job : jobs)
    entries.push_back({job.tensor->name, job.tensor->dtype, job.tensor->rows(), job.tensor->cols()});
  return entries;
}

/// True if all matrices were found there.
bool map_packed(const GgufFile& file, std::span<const LoadPlan::Job> jobs, const RepackCache& cache, ThreadPool& pool,
                RepackReport& report) {
  auto found = RepackFile::open(report.path, cache.digest, repack_entries(jobs), pool);
  if (!found.ok()) report.note = cat("ignored ", report.path, ": ", found.error().message);
  if (!found.ok() || !*found) return false;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    *jobs[i].target = (*found)->matrix(i);
    file.drop_pages(*jobs[i].tensor);
  }
  report.outcome = RepackReport::Outcome::used;
  return true;
}

void keep_packed(std::span<const LoadPlan::Job> jobs, const RepackCache& cache, ThreadPool& pool,
                 RepackReport& report) {
  std::vector<const PackedMatrix*> matrices;
  for (const auto& job : jobs) matrices.push_back(job.target);
  const auto made = make_directory(cache.dir);
  const auto written =
      made.ok() ? RepackFile::write(report.path, cache.digest, repack_entries(jobs), matrices, pool) : made;
  report.outcome = written.ok() ? RepackReport::Outcome::written : RepackReport::Outcome::not_written;
  if (written.ok()) return;
  if (!report.note.empty()) report.note += "; ";
  report.note += cat("could not write ", report.path, ": ", written.error().message);
}

}  // namespace

std::string repack_path(const RepackCache& cache) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string name;
  for (std::byte byte : std::span(cache.digest).first(16)) {
    name += kHex[std::to_integer<int>(byte) >> 4];
    name += kHex[std::to_integer<int>(byte) & 15];
  }
  return cat(cache.dir, cache.dir.ends_with('/') ? "" : "/", name, ".strips");
}

std::size_t Weights::bytes() const {
  std::size_t total = embedding.bytes() + output.bytes() + output_norm.size() * sizeof(float);
  for (const auto& layer : layers) {
    for (const auto* matrix : {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
      total += matrix->bytes();
    }
    for (const auto* values : {&layer.attn_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm,
                               &layer.k_norm, &layer.post_attn_norm, &layer.ffn_norm, &layer.post_ffn_norm}) {
      total += values->size() * sizeof(float);
    }
  }
  return total;
}

Result<Weights> outline_weights(const GgufFile& file, const ModelConfig& config, WeightFormat format) {
  Weights weights;
  LoadPlan plan(file);
  QUIRE_TRY_VOID(plan_model(plan, config, weights));
  for (const auto& [tensor, target] : plan.take_jobs())
    *target = PackedMatrix::view(packed_type(*tensor, format), tensor->rows(), tensor->cols(), nullptr, nullptr);
  return weights;
}

Result<Weights> load_weights(const GgufFile& file, const ModelConfig& config, ThreadPool& pool,
                             const WeightsOptions& options) {
  Weights weights;
  LoadPlan plan(file);
  QUIRE_TRY_VOID(plan_model(plan, config, weights));
  plan.decode_vectors();
  const auto jobs = plan.take_jobs();
  const bool keeps = !options.repack_cache.dir.empty() && options.format == WeightFormat::as_in_file;
  if (keeps) weights.repack.path = repack_path(options.repack_cache);
  if (keeps && map_packed(file, jobs, options.repack_cache, pool, weights.repack)) {
    if (options.progress) options.progress(1.0);
    return weights;
  }
  if (!run_jobs(file, jobs, pool, options)) {
    return fail("not enough memory to load the weights (", file.file_bytes(), " bytes in the file)");
  }
  if (keeps) keep_packed(jobs, options.repack_cache, pool, weights.repack);
  if (options.progress) options.progress(1.0);
  return weights;
}

}  // namespace quire::model
