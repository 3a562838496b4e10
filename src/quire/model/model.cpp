#include "quire/model/model.h"

#include <algorithm>
#include <new>

#include "quire/base/check.h"
#include "quire/model/forward.h"
#include "quire/model/weights.h"

namespace quire::model {

struct Model::State {
  ModelConfig config;
  Weights weights;
  std::vector<ops::RopeTable> rope;  ///< as config.rope
  CpuTier tier;
  LoadOptions options;
  Scratch scratch;
};

namespace {

Result<void> check_options(const LoadOptions& options, const ModelConfig& config) {
  if (options.max_context < 1 || options.max_context > config.context) {
    return fail("context: found ", options.max_context, ", supported by this model: 1 to ", config.context);
  }
  if (options.max_batch_tokens < 1)
    return fail("batch tokens: found ", options.max_batch_tokens, ", wanted at least 1");
  if (options.max_logit_rows < 1) return fail("logit rows: found ", options.max_logit_rows, ", wanted at least 1");
  return {};
}

WeightFormat weight_format(const LoadOptions& options) {
  return options.f32_weights ? WeightFormat::f32 : WeightFormat::as_in_file;
}

Error no_scratch(const LoadOptions& options) {
  return fail("not enough memory for the working buffers of ", options.max_batch_tokens, " tokens and ",
              options.max_logit_rows, " rows of logits");
}

void check_chunks(std::span<const attention::SequenceChunk> chunks, std::int64_t num_rows, std::int64_t max_context) {
  std::int64_t next_row = 0;
  for (const auto& chunk : chunks) {
    QUIRE_CHECK(chunk.first_row == next_row && chunk.num_tokens >= 1, "chunk at row ", chunk.first_row);
    QUIRE_CHECK(chunk.first_position >= 0 && chunk.first_position + chunk.num_tokens <= max_context, "position ",
                chunk.first_position, " + ", chunk.num_tokens);
    next_row += chunk.num_tokens;
  }
  QUIRE_CHECK(next_row == num_rows, next_row, " rows in chunks, ", num_rows, " tokens");
}

void check_input(const Model& model, const LoadOptions& options, const ForwardInput& input) {
  const auto num_rows = static_cast<std::int64_t>(input.tokens.size());
  QUIRE_CHECK(num_rows >= 1 && num_rows <= options.max_batch_tokens, num_rows, " rows");
  for (TokenId token : input.tokens) {
    QUIRE_CHECK(token.value >= 0 && token.value < model.config().vocab_size, "token ", token);
  }
  const std::int64_t num_groups = input.grouping ? input.grouping->num_groups() : 1;
  QUIRE_CHECK(static_cast<std::int64_t>(input.chunks.size()) % num_groups == 0, input.chunks.size(), " chunks");
  for (std::int64_t group = 0; group < num_groups; ++group)
    check_chunks(input.chunks_of(group), num_rows, options.max_context);
  std::int64_t previous = -1;
  for (std::int64_t row : input.logit_rows) {
    QUIRE_CHECK(row > previous && row < num_rows, "logit row ", row);
    previous = row;
  }
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

Result<ModelBytes> Model::plan_bytes(const GgufFile& file, const LoadOptions& options) {
  QUIRE_TRY(const ModelConfig config, read_config(file));
  QUIRE_TRY_VOID(check_options(options, config));
  QUIRE_TRY(const Weights outline, outline_weights(file, config, weight_format(options)));
  try {
    // Its buffers are addresses until somebody writes to them.
    ModelBytes bytes{outline.bytes(), Scratch(config, outline, options).bytes()};
    for (const auto& params : config.rope) bytes.scratch += ops::RopeTable::bytes_for(params, options.max_context);
    return bytes;
  } catch (const std::bad_alloc&) {
    return no_scratch(options);
  }
}

Result<std::unique_ptr<Model>> Model::load(const GgufFile& file, ThreadPool& pool, const LoadOptions& options) {
  QUIRE_TRY(auto config, read_config(file));
  QUIRE_TRY_VOID(check_options(options, config));
  WeightsOptions weights_options;
  weights_options.format = weight_format(options);
  weights_options.repack_cache = options.repack_cache;
  weights_options.progress = options.progress;
  QUIRE_TRY(auto weights, load_weights(file, config, pool, weights_options));
  try {
    std::vector<ops::RopeTable> rope;
    for (const auto& params : config.rope) rope.emplace_back(params, options.max_context);
    Scratch scratch(config, weights, options);
    auto state = std::make_unique<State>(
        State{std::move(config), std::move(weights), std::move(rope), options.tier, options, std::move(scratch)});
    return std::unique_ptr<Model>(new Model(std::move(state)));
  } catch (const std::bad_alloc&) {
    return no_scratch(options);
  }
}

const ModelConfig& Model::config() const { return state_->config; }
const RepackReport& Model::repack() const { return state_->weights.repack; }
std::size_t Model::weight_bytes() const { return state_->weights.bytes(); }

std::size_t Model::scratch_bytes() const {
  std::size_t total = state_->scratch.bytes();
  for (const auto& table : state_->rope) total += table.bytes();
  return total;
}

ForwardOutput Model::forward(ThreadPool& pool, attention::KvMemory memory, const ForwardInput& input) {
  check_input(*this, state_->options, input);
  Scratch& scratch = state_->scratch;
  std::fill_n(scratch.row_failed.begin(), input.tokens.size(), std::uint8_t{0});
  const ForwardPass pass{state_->config, state_->weights, state_->rope, state_->tier};
  plan_attention(pass, scratch, memory, input, pool.num_threads());
  struct Arguments {
    const ForwardPass& pass;
    Scratch& scratch;
    attention::KvMemory memory;
    const ForwardInput& input;
  } arguments{pass, scratch, memory, input};
  // One reference, so that std::function holds it without memory of its own.
  pool.run([&arguments](Worker& worker) {
    run_forward(worker, arguments.pass, arguments.scratch, arguments.memory, arguments.input);
  });
  ForwardOutput output{std::span(scratch.row_failed).first(input.tokens.size()), {}};
  for (const auto* plan : scratch.layer_plans) {
    output.cascade.shared += plan->shared_positions();
    output.cascade.unshared += plan->unshared_positions();
  }
  return output;
}

}  // namespace quire::model
