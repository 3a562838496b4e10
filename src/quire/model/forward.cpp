#include "quire/model/forward.h"

#include <algorithm>
#include <array>

namespace quire::model {
namespace {

using ops::MatmulInput;
using ops::MatmulOutput;
using quant::PackedMatrix;

AlignedBuffer floats(std::int64_t count) {
  return AlignedBuffer(static_cast<std::size_t>(count) * sizeof(float), Pages::at_once);
}

const float* or_null(const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); }

/// Where a layer's K and V lie.
LayerGrouping::Place place_of(const ForwardInput& input, std::int64_t layer) {
  return input.grouping ? input.grouping->places[static_cast<std::size_t>(layer)] : LayerGrouping::Place{0, layer};
}

/// One step as seen by one worker.
class Step {
 public:
  Step(Worker& worker, const ForwardPass& pass, Scratch& scratch, attention::KvMemory memory, const ForwardInput& input)
      : worker_(worker),
        pass_(pass),
        config_(pass.config),
        ops_(ops::vector_ops(pass.tier)),
        scratch_(scratch),
        memory_(memory),
        input_(input),
        num_rows_(static_cast<std::int64_t>(input.tokens.size())) {}

  void run() {
    if (profiled()) input_.profile->start();
    embed();
    mark(Phase::embed);
    for (std::size_t i = 0; i < pass_.weights.layers.size(); ++i) {
      const LayerWeights& layer = pass_.weights.layers[i];
      project_qkv(layer);
      mark(Phase::qkv);
      write_kv(static_cast<std::int64_t>(i));
      mark(Phase::write_kv);
      attend(static_cast<std::int64_t>(i), config_.layers[i]);
      mark(Phase::attend);
      if (i + 1 == pass_.weights.layers.size()) keep_wanted_rows();
      if (num_rows_ == 0) return;
      for_rows(num_rows_, [&](std::int64_t row) { finish_row(scratch_.attended, row); });
      mark(Phase::attended);
      read_ahead({&layer.gate, &layer.up});
      project(layer.attn_out, scratch_.attended);
      mark(Phase::attn_out);
      add_product(layer.post_attn_norm, [&](std::int64_t row) { norm_row(row, layer.ffn_norm); });
      mark(Phase::attn_norm);
      feed_forward(layer);
      bool last = i + 1 == pass_.weights.layers.size();
      if (last) {
        read_ahead({&pass_.weights.output_head()});
      } else {
        read_ahead_qkv(pass_.weights.layers[i + 1]);
      }
      project(layer.down, scratch_.activated);
      mark(Phase::down);
      add_product(layer.post_ffn_norm, [&](std::int64_t row) {
        if (!last) norm_row_for_attention(row, pass_.weights.layers[i + 1].attn_norm);
      });
      mark(Phase::ffn_norm);
    }
    output_head();
  }

 private:
  bool profiled() const { return input_.profile != nullptr && worker_.index() == 0; }
  void mark(Phase phase) const {
    if (profiled()) input_.profile->mark(phase);
  }

  /// Runs body(row) for n rows, a few rows at a time.
  template <class Body>
  void for_rows(std::int64_t n, Body&& body) {
    worker_.for_each(n, std::clamp<std::int64_t>(n / (4 * worker_.count()), 1, 8), body,
                     [this] { return ahead_.fetch(); });
  }

  float* residual(std::int64_t row) { return scratch_.residual.as<float>() + row * config_.hidden; }

  float* product(std::int64_t row) { return scratch_.product.as<float>() + row * config_.hidden; }

  /// The residual stream starts as the token's embedding; its first norm comes along.
  void embed() {
    read_ahead_qkv(pass_.weights.layers.front());
    for_rows(num_rows_, [&](std::int64_t row) {
      pass_.weights.embedding.dequantize_row(input_.tokens[static_cast<std::size_t>(row)].value, residual(row));
      if (config_.embedding_scale != 1) ops_.scale(residual(row), config_.embedding_scale, config_.hidden);
      norm_row_for_attention(row, pass_.weights.layers.front().attn_norm);
    });
  }

  /// The input of gate and up.
  void norm_row(std::int64_t row, const std::vector<float>& weight) {
    ops_.rms_norm(residual(row), weight.data(), config_.rms_eps, config_.hidden, scratch_.normed.row(row));
    finish_row(scratch_.normed, row);
  }

  /// The input of q, k and v; overwrites the row's product, which has been added by then.
  void norm_row_for_attention(std::int64_t row, const std::vector<float>& weight) {
    norm_row(row, weight);
    if (!scratch_.remainder) return;
    bool ok = scratch_.remainder->finish_row(pass_.tier, scratch_.normed.row(row), *scratch_.normed.quantized(), row,
                                             product(row));
    if (!ok) fail_row(row);
  }

  void finish_row(ProductInput& rows, std::int64_t row) {
    if (!rows.finish_row(pass_.tier, row)) fail_row(row);
  }

  void project_qkv(const LayerWeights& layer) {
    auto output = [](const PackedMatrix& weights, const std::vector<float>& bias, AlignedBuffer& out) {
      return MatmulOutput{&weights, or_null(bias), out.as<float>(), weights.rows()};
    };
    std::array outputs{output(layer.q, layer.q_bias, scratch_.q), output(layer.k, layer.k_bias, scratch_.k),
                       output(layer.v, layer.v_bias, scratch_.v), MatmulOutput{}};
    std::span<const MatmulOutput> all(outputs.data(), 3);
    MatmulInput rest;
    if (adds_remainder(layer)) {
      rest = scratch_.remainder->view(num_rows_);
      outputs[3] = output(layer.v, {}, scratch_.v_remainder);
      outputs[3].input = &rest;
      all = outputs;
    }
    read_ahead({&layer.attn_out});
    multiply(scratch_.normed, all);
  }

  bool adds_remainder(const LayerWeights& layer) const {
    return scratch_.remainder.has_value() && is_quantized(layer.v.dtype());
  }

  /// Norms (where the family has them) and rotates the heads of q and k of a row; completes v.
  void complete_heads(const LayerWeights& layer, const ops::RopeTable& table, std::int64_t row, std::int64_t position) {
    rotate_row(scratch_.q.as<float>() + row * config_.num_heads * config_.head_dim, config_.num_heads, layer.q_norm,
               table, position);
    rotate_row(scratch_.k.as<float>() + row * config_.num_kv_heads * config_.head_dim, config_.num_kv_heads,
               layer.k_norm, table, position);
    if (!adds_remainder(layer)) return;
    const std::int64_t width = config_.num_kv_heads * config_.head_dim;
    ops_.add(scratch_.v.as<float>() + row * width, scratch_.v_remainder.as<float>() + row * width, width);
  }

  void rotate_row(float* heads, std::int64_t num_heads, const std::vector<float>& norm, const ops::RopeTable& table,
                  std::int64_t position) {
    auto rotate = config_.rope_style == RopeStyle::neox ? ops_.rope_neox : ops_.rope_interleaved;
    for (std::int64_t head = 0; head < num_heads; ++head) {
      float* x = heads + head * config_.head_dim;
      if (!norm.empty()) ops_.rms_norm(x, norm.data(), config_.rms_eps, config_.head_dim, x);
      rotate(x, table.cosine(position), table.sine(position), table.rotary_dim());
    }
  }

  /// Stores the step's K and V, each row once its heads are complete.
  void write_kv(std::int64_t layer) {
    const auto index = static_cast<std::size_t>(layer);
    const auto complete = [&](std::int64_t row, std::int64_t position) {
      const auto& table = pass_.rope[static_cast<std::size_t>(config_.layers[index].rope)];
      complete_heads(pass_.weights.layers[index], table, row, position);
    };
    const auto place = place_of(input_, layer);
    attention::KvWrite write;
    write.chunks = input_.chunks_of(place.group);
    write.k = scratch_.k.as<float>();
    write.v = scratch_.v.as<float>();
    write.k_stride = write.v_stride = config_.num_kv_heads * config_.head_dim;
    write.row_failed = scratch_.row_failed.data();
    write.before.context = &complete;
    write.before.complete = [](const void* context, std::int64_t row, std::int64_t position) {
      (*static_cast<const decltype(complete)*>(context))(row, position);
    };
    memory_.write(worker_, pass_.tier, place.index, write);
  }

  void attend(std::int64_t layer, const LayerConfig& layer_config) {
    const auto place = place_of(input_, layer);
    const auto chunks = input_.chunks_of(place.group);
    attention::AttentionCall call;
    call.chunks = chunks;
    call.q = scratch_.q.as<float>();
    call.out = scratch_.attended.row(0);
    call.q_stride = call.out_stride = config_.num_heads * config_.head_dim;
    call.num_heads = config_.num_heads;
    call.scale = config_.attention_scale;
    call.window = layer_config.window;
    call.plan = scratch_.layer_plans[static_cast<std::size_t>(layer)];
    memory_.attend(worker_, pass_.tier, place.index, call, scratch_.attention);
  }

  /// Once the last layer's attention is done only rows whose logits are wanted go on; they move to the front.
  void keep_wanted_rows() {
    const auto num_wanted = static_cast<std::int64_t>(input_.logit_rows.size());
    if (num_wanted == num_rows_) return;
    if (worker_.index() == 0) {
      // Rows rise, so none is overwritten before it has moved.
      for (std::int64_t i = 0; i < num_wanted; ++i) {
        const std::int64_t row = input_.logit_rows[static_cast<std::size_t>(i)];
        std::copy_n(residual(row), config_.hidden, residual(i));
        std::copy_n(scratch_.attended.row(row), scratch_.attended.cols(), scratch_.attended.row(i));
      }
    }
    worker_.barrier();
    num_rows_ = num_wanted;
    only_wanted_rows_ = true;
  }

  using Matrices = std::initializer_list<const PackedMatrix*>;

  /// From now on whoever waits fetches what it needs first of these.
  void read_ahead(Matrices next) { ahead_ = ops::share_of(worker_, {next.begin(), next.size()}, num_rows_); }

  void read_ahead_qkv(const LayerWeights& layer) {
    if (adds_remainder(layer)) {
      read_ahead({&layer.q, &layer.k, &layer.v, &layer.v});
    } else {
      read_ahead({&layer.q, &layer.k, &layer.v});
    }
  }

  void multiply(const ProductInput& input, std::span<const MatmulOutput> outputs) {
    ops::matmul(worker_, pass_.tier, input.view(num_rows_), outputs, ahead_);
  }

  /// product = weights * input
  void project(const PackedMatrix& weights, const ProductInput& input) {
    const std::array outputs{MatmulOutput{&weights, nullptr, scratch_.product.as<float>(), config_.hidden}};
    multiply(input, outputs);
  }

  /// residual += product (after its norm, where the family has one), then next(row).
  template <class Next>
  void add_product(const std::vector<float>& post_norm, Next&& next) {
    for_rows(num_rows_, [&](std::int64_t row) {
      float* y = product(row);
      if (!post_norm.empty()) ops_.rms_norm(y, post_norm.data(), config_.rms_eps, config_.hidden, y);
      ops_.add(residual(row), y, config_.hidden);
      next(row);
    });
  }

  /// activated = activation(gate) * up
  void feed_forward(const LayerWeights& layer) {
    const std::array outputs{MatmulOutput{&layer.gate, nullptr, scratch_.activated.row(0), config_.ffn},
                             MatmulOutput{&layer.up, nullptr, scratch_.up.as<float>(), config_.ffn}};
    read_ahead({&layer.down});
    multiply(scratch_.normed, outputs);
    mark(Phase::gate_up);
    auto activate = config_.activation == Activation::silu ? ops_.silu_mul : ops_.gelu_tanh_mul;
    for_rows(num_rows_, [&](std::int64_t row) {
      float* gate = scratch_.activated.row(row);
      activate(gate, scratch_.up.as<float>() + row * config_.ffn, config_.ffn, gate);
      finish_row(scratch_.activated, row);
    });
    mark(Phase::activate);
  }

  /// The rows that have come here are the wanted ones.
  void output_head() {
    const std::int64_t num_wanted = num_rows_;
    for (std::int64_t first = 0; first < num_wanted; first += scratch_.logit_slice) {
      logits_of(first, std::min(scratch_.logit_slice, num_wanted - first));
    }
  }

  /// Computes the logits of the wanted rows [first, first + count) and hands them out.
  void logits_of(std::int64_t first, std::int64_t count) {
    for_rows(count, [&](std::int64_t i) {
      ops_.rms_norm(residual(first + i), pass_.weights.output_norm.data(), config_.rms_eps, config_.hidden,
                    scratch_.final.row(i));
      if (!scratch_.final.finish_row(pass_.tier, i)) fail_row(first + i);
    });
    float* logits = scratch_.logits.as<float>();
    const std::array outputs{MatmulOutput{&pass_.weights.output_head(), nullptr, logits, config_.vocab_size}};
    ops::matmul(worker_, pass_.tier, scratch_.final.view(count), outputs);
    mark(Phase::head);
    worker_.for_each(count, 1, [&](std::int64_t i) {
      if (!ops_.all_finite(logits + i * config_.vocab_size, config_.vocab_size)) fail_row(first + i);
    });
    if (input_.on_logits) input_.on_logits(worker_, LogitsSlice{first, count, logits});
    mark(Phase::logits);
    worker_.barrier();  // the next slice overwrites the logits
  }

  void fail_row(std::int64_t row) {
    if (only_wanted_rows_) row = input_.logit_rows[static_cast<std::size_t>(row)];
    scratch_.row_failed[static_cast<std::size_t>(row)] = 1;
  }

  Worker& worker_;
  const ForwardPass& pass_;
  const ModelConfig& config_;
  const ops::VectorOps& ops_;
  Scratch& scratch_;
  const attention::KvMemory memory_;
  const ForwardInput& input_;
  std::int64_t num_rows_;          ///< of the rows that still go on
  ops::WeightsAhead ahead_;        ///< of the product that follows
  bool only_wanted_rows_ = false;  ///< the rows are those of input.logit_rows
};

/// Whether one of the layers' matrices wants int8 activations.
template <class Matrices>
ProductInput::Quantized any_quantized(const Weights& weights, Matrices matrices_of) {
  for (const auto& layer : weights.layers) {
    for (const PackedMatrix* matrix : matrices_of(layer)) {
      if (is_quantized(matrix->dtype())) return ProductInput::Quantized::yes;
    }
  }
  return ProductInput::Quantized::no;
}

}  // namespace

ProductInput::ProductInput(std::int64_t max_rows, std::int64_t cols, Quantized quantized)
    : cols_(cols), values_(floats(max_rows * cols)) {
  if (quantized == Quantized::yes) quantized_.emplace(max_rows, cols).reshape(max_rows, cols);
}

bool ProductInput::finish_row(CpuTier tier, std::int64_t index) {
  return !quantized_ || quant::quantize_row(tier, row(index), index, *quantized_);
}

MatmulInput ProductInput::view(std::int64_t num_rows) const {
  MatmulInput input;
  input.f32 = values_.as<float>();
  input.f32_stride = cols_;
  input.quantized = quantized_ ? &*quantized_ : nullptr;
  input.num_tokens = num_rows;
  return input;
}

std::size_t ProductInput::bytes() const { return values_.size() + (quantized_ ? quantized_->bytes() : 0); }

Remainder::Remainder(std::int64_t max_rows, std::int64_t cols) : quantized_(max_rows, cols) {
  quantized_.reshape(max_rows, cols);
}

bool Remainder::finish_row(CpuTier tier, const float* x, const quant::QuantizedRows& rows, std::int64_t index,
                           float* spare) {
  for (std::int64_t first = 0; first < rows.cols(); first += quant::kGroup) {
    const quant::ActivationGroup& group = rows.group(index, first / quant::kGroup);
    for (std::int64_t i = 0; i < quant::kGroup; ++i) {
      spare[first + i] = x[first + i] - group.d * static_cast<float>(group.q[i]);
    }
  }
  return quant::quantize_row(tier, spare, index, quantized_);
}

MatmulInput Remainder::view(std::int64_t num_rows) const {
  MatmulInput input;
  input.quantized = &quantized_;
  input.num_tokens = num_rows;
  return input;
}

std::size_t Remainder::bytes() const { return quantized_.bytes(); }

Scratch::Scratch(const ModelConfig& config, const Weights& weights, const LoadOptions& options)
    : logit_slice(std::min(options.max_logit_rows, options.max_batch_tokens)),
      residual(floats(options.max_batch_tokens * config.hidden)),
      q(floats(options.max_batch_tokens * config.num_heads * config.head_dim)),
      k(floats(options.max_batch_tokens * config.num_kv_heads * config.head_dim)),
      v(floats(options.max_batch_tokens * config.num_kv_heads * config.head_dim)),
      up(floats(options.max_batch_tokens * config.ffn)),
      product(floats(options.max_batch_tokens * config.hidden)),
      normed(options.max_batch_tokens, config.hidden,
             any_quantized(weights,
                           [](const LayerWeights& layer) {
                             return std::array{&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up};
                           })),
      v_remainder(floats(options.max_batch_tokens * config.num_kv_heads * config.head_dim)),
      attended(options.max_batch_tokens, config.num_heads * config.head_dim,
               any_quantized(weights, [](const LayerWeights& layer) { return std::array{&layer.attn_out}; })),
      activated(options.max_batch_tokens, config.ffn,
                any_quantized(weights, [](const LayerWeights& layer) { return std::array{&layer.down}; })),
      final(logit_slice, config.hidden,
            is_quantized(weights.output_head().dtype()) ? ProductInput::Quantized::yes : ProductInput::Quantized::no),
      logits(floats(logit_slice * config.vocab_size)),
      row_failed(static_cast<std::size_t>(options.max_batch_tokens)) {
  auto v_of = [](const LayerWeights& layer) { return std::array{&layer.v}; };
  if (any_quantized(weights, v_of) == ProductInput::Quantized::yes) {
    remainder.emplace(options.max_batch_tokens, config.hidden);
  }
}

std::size_t Scratch::bytes() const {
  std::size_t total = normed.bytes() + attended.bytes() + activated.bytes() + final.bytes() + row_failed.size();
  for (const auto* buffer : {&residual, &q, &k, &v, &v_remainder, &up, &product, &logits}) total += buffer->size();
  return total + (remainder ? remainder->bytes() : 0);
}

void plan_attention(const ForwardPass& pass, Scratch& scratch, attention::KvMemory memory, const ForwardInput& input,
                    int num_workers) {
  scratch.plans.clear();
  scratch.layer_plans.clear();
  for (std::size_t i = 0; i < pass.config.layers.size(); ++i) {
    const auto chunks = input.chunks_of(place_of(input, static_cast<std::int64_t>(i)).group);
    scratch.layer_plans.push_back(&scratch.plans.plan(memory.layout(), {.chunks = chunks,
                                                                        .num_heads = pass.config.num_heads,
                                                                        .window = pass.config.layers[i].window,
                                                                        .num_workers = num_workers}));
  }
}

void run_forward(Worker& worker, const ForwardPass& pass, Scratch& scratch, attention::KvMemory memory,
                 const ForwardInput& input) {
  Step(worker, pass, scratch, memory, input).run();
}

}  // namespace quire::model
