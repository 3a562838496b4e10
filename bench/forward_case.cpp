#include "bench/forward_case.h"

#include "quire/base/rng.h"

namespace quire::bench {
namespace {

/// The phase in which a layer's matrix is read.
std::optional<model::Phase> phase_of(std::string_view tensor) {
  using model::Phase;
  constexpr std::pair<std::string_view, Phase> kPhases[] = {
      {".attn_q.weight", Phase::qkv},          {".attn_k.weight", Phase::qkv},     {".attn_v.weight", Phase::qkv},
      {".ffn_gate.weight", Phase::gate_up},    {".ffn_up.weight", Phase::gate_up}, {".ffn_down.weight", Phase::down},
      {".attn_output.weight", Phase::attn_out}};
  for (const auto& [suffix, phase] : kPhases) {
    if (tensor.ends_with(suffix)) return phase;
  }
  return std::nullopt;
}

}  // namespace

Work::Work(const model::GgufFile& file, std::int64_t bytes_of_weights) : weight_bytes(bytes_of_weights) {
  for (const auto& tensor : file.tensors()) {
    if (tensor.name == "token_embd.weight") head_weights = tensor.rows() * tensor.cols();
    const auto phase = phase_of(tensor.name);
    if (!phase) continue;
    layer_weights += tensor.rows() * tensor.cols();
    phase_weights[static_cast<std::size_t>(*phase)] += tensor.rows() * tensor.cols();
    phase_bytes[static_cast<std::size_t>(*phase)] += tensor.bytes;
  }
  constexpr auto kHead = static_cast<std::size_t>(model::Phase::head);
  const std::int64_t in_layers = std::accumulate(phase_bytes.begin(), phase_bytes.end(), std::int64_t{0});
  phase_weights[kHead] = head_weights;
  phase_bytes[kHead] = weight_bytes - in_layers;
}

report::Row share_of_limit(std::string metric, std::int64_t tokens, double bytes, double operations,
                           const std::vector<std::vector<double>>& figures) {
  std::vector<double> reached, limit;
  bool by_bytes = false;
  for (std::size_t round = 0; round < figures[0].size(); ++round) {
    const double read = bytes * 1e-9 / figures[0][round], compute = operations * 1e-9 / figures[1][round];
    by_bytes = read > compute;
    reached.push_back(static_cast<double>(tokens) / figures[2][round]);
    limit.push_back(static_cast<double>(tokens) / std::max(read, compute));
  }
  return report::make_row({std::move(metric), "tokens/s"}, reached, by_bytes ? "by DRAM read" : "by int8 peak", limit);
}

Result<std::unique_ptr<Forward>> Forward::open(const Options& options, ThreadPool& pool, std::int64_t batch) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  QUIRE_TRY(auto file, model::GgufFile::open(options.model));
  model::LoadOptions load;
  load.tier = options.tier;
  load.max_context = kContext + kMaxSteps;
  load.max_batch_tokens = kContext;
  load.max_logit_rows = batch;
  QUIRE_TRY(auto model, model::Model::load(file, pool, load));
  const Work work(file, static_cast<std::int64_t>(model->weight_bytes()));
  return std::unique_ptr<Forward>(new Forward(std::move(model), work, pool, batch));
}

void Forward::prefill() {
  runner_.reset();
  for (std::int64_t s = 0; s < batch_; ++s) {
    const model::SequenceRunner::Piece piece{s, prompt_, prompt_.size() - 1};
    runner_.step({&piece, 1});
  }
}

double Forward::decode_seconds(const Options& options) {
  double seconds = 0;
  std::int64_t steps = 0;
  while (seconds < options.seconds || steps == 0) {
    if (runner_.length(0) == 0 || runner_.length(0) >= kContext + kMaxSteps) prefill();
    std::vector<model::SequenceRunner::Piece> pieces;
    for (std::int64_t s = 0; s < batch_; ++s) pieces.push_back({s, std::span(prompt_).first(1)});
    runner_.set_profile(profile_);
    seconds += seconds_of([&] { runner_.step(pieces); });
    runner_.set_profile(nullptr);
    ++steps;
  }
  return seconds / static_cast<double>(steps);
}

Forward::Forward(std::unique_ptr<model::Model> model, const Work& work, ThreadPool& pool, std::int64_t batch)
    : model_(std::move(model)),
      work_(work),
      batch_(batch),
      runner_(*model_, pool, {.num_blocks = batch * (kContext + kMaxSteps) / 16}) {
  Rng rng(1);
  for (std::int64_t i = 0; i < kContext; ++i) {
    prompt_.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, model_->config().vocab_size - 1))});
  }
}

}  // namespace quire::bench
