// the model alone: decode at context 512 and prefill 512 as a share of what the machine allows, speed-up by threads

#include <algorithm>

#include "bench/roofline.h"
#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace quire::bench {
namespace {

constexpr std::int64_t kContext = 512, kMaxSteps = 128;

/// What a step has to do at least, for models whose output head is the embedding or has its size.
struct Work {
  std::int64_t layer_weights = 0, head_weights = 0;  ///< elements
  std::int64_t weight_bytes = 0;                     ///< read once a step

  explicit Work(const model::GgufFile& file, const model::Model& model)
      : weight_bytes(static_cast<std::int64_t>(model.weight_bytes())) {
    head_weights = model.config().vocab_size * model.config().hidden;
    for (const auto& tensor : file.tensors()) {
      if (tensor.rows() > 1 && tensor.name.starts_with("blk.")) layer_weights += tensor.rows() * tensor.cols();
    }
  }

  double operations(std::int64_t tokens, std::int64_t logit_rows) const {
    return 2.0 * static_cast<double>(layer_weights * tokens + head_weights * logit_rows);
  }
};

/// A model with room for `batch` sequences of the context and some steps.
class Forward {
 public:
  static Result<std::unique_ptr<Forward>> open(const Options& options, ThreadPool& pool, std::int64_t batch) {
    if (options.model.empty()) return fail("wants a model: --model FILE");
    QUIRE_TRY(auto file, model::GgufFile::open(options.model));
    model::LoadOptions load;
    load.tier = options.tier;
    load.max_context = kContext + kMaxSteps;
    load.max_batch_tokens = kContext;
    load.max_logit_rows = batch;
    QUIRE_TRY(auto model, model::Model::load(file, pool, load));
    const Work work(file, *model);
    return std::unique_ptr<Forward>(new Forward(std::move(model), work, pool, batch));
  }

  const Work& work() const { return work_; }
  std::int64_t kv_bytes() { return batch_ * kContext / 16 * runner_.store().layout().block_bytes(); }

  /// All sequences get their context.
  void prefill() {
    runner_.reset();
    for (std::int64_t s = 0; s < batch_; ++s) {
      const model::SequenceRunner::Piece piece{s, prompt_, prompt_.size() - 1};
      runner_.step({&piece, 1});
    }
  }

  /// One token each; computes the context anew when it has grown too long.
  double decode_seconds(const Options& options) {
    double seconds = 0;
    std::int64_t steps = 0;
    while (seconds < options.seconds || steps == 0) {
      if (runner_.length(0) == 0 || runner_.length(0) >= kContext + kMaxSteps) prefill();
      std::vector<model::SequenceRunner::Piece> pieces;
      for (std::int64_t s = 0; s < batch_; ++s) pieces.push_back({s, std::span(prompt_).first(1)});
      seconds += seconds_of([&] { runner_.step(pieces); });
      ++steps;
    }
    return seconds / static_cast<double>(steps);
  }

 private:
  Forward(std::unique_ptr<model::Model> model, const Work& work, ThreadPool& pool, std::int64_t batch)
      : model_(std::move(model)),
        work_(work),
        batch_(batch),
        runner_(*model_, pool, {.num_blocks = batch * (kContext + kMaxSteps) / 16}) {
    Rng rng(1);
    for (std::int64_t i = 0; i < kContext; ++i) {
      prompt_.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, model_->config().vocab_size - 1))});
    }
  }

  std::unique_ptr<model::Model> model_;
  Work work_;
  std::int64_t batch_;
  model::SequenceRunner runner_;
  std::vector<TokenId> prompt_;
};

/// figures: DRAM read, int8 peak, seconds. The limit is the later of the last byte and the last operation.
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

Result<void> decode(std::int64_t batch, const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto forward, Forward::open(options, roofline.pool(), batch));
  forward->prefill();
  const auto figures = run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                                   [&] { return forward->decode_seconds(options); }});
  const auto bytes = static_cast<double>(forward->work().weight_bytes + forward->kv_bytes());
  report.rows.push_back(share_of_limit(cat("decode, batch ", batch, ", context ", kContext), batch, bytes,
                                       forward->work().operations(batch, batch), figures));
  return {};
}

template <std::int64_t kBatch>
Result<void> decode_batch(const Options& options, report::Report& report) {
  return decode(kBatch, options, report);
}

Result<void> prefill(const Options& options, report::Report& report) {
  Roofline roofline(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto forward, Forward::open(options, roofline.pool(), 1));
  const auto figures = run_rounds(options.rounds, {[&] { return roofline.dram(); }, [&] { return roofline.dot4(); },
                                                   [&] { return seconds_of([&] { forward->prefill(); }); }});
  report.rows.push_back(share_of_limit(cat("prefill ", kContext), kContext,
                                       static_cast<double>(forward->work().weight_bytes),
                                       forward->work().operations(kContext, 1), figures));
  return {};
}

/// How much faster all threads are than one, against how much faster the limit itself gets.
report::Row speed_up(std::string metric, const std::vector<double>& one, const std::vector<double>& all,
                     const std::vector<double>& limit_of_one, const std::vector<double>& limit_of_all) {
  std::vector<double> reached, limit;
  for (std::size_t round = 0; round < one.size(); ++round) {
    reached.push_back(one[round] / all[round]);  // seconds
    limit.push_back(limit_of_all[round] / limit_of_one[round]);
  }
  return report::make_row({std::move(metric), "x", report::at_least(0.95)}, reached, "that of the limit", limit);
}

Result<void> threads(const Options& options, report::Report& report) {
  if (options.threads < 2) return {};
  Roofline one(options.tier, 1, options.seconds), all(options.tier, options.threads, options.seconds);
  QUIRE_TRY(auto by_one, Forward::open(options, one.pool(), 1));
  QUIRE_TRY(auto by_all, Forward::open(options, all.pool(), 1));
  const auto figures = run_rounds(
      options.rounds,
      {[&] { return one.dot4(); }, [&] { return all.dot4(); }, [&] { return seconds_of([&] { by_one->prefill(); }); },
       [&] { return seconds_of([&] { by_all->prefill(); }); }, [&] { return one.dram(); }, [&] { return all.dram(); },
       [&] { return by_one->decode_seconds(options); }, [&] { return by_all->decode_seconds(options); }});
  const std::string what = cat(", ", options.threads, " threads over 1");
  report.rows.push_back(speed_up("prefill 512" + what, figures[2], figures[3], figures[0], figures[1]));
  report.rows.push_back(speed_up("decode, batch 1" + what, figures[6], figures[7], figures[4], figures[5]));
  return {};
}

constexpr Section kSections[] = {{"prefill", prefill},
                                 {"threads", threads},
                                 {"decode-1", decode_batch<1>},
                                 {"decode-8", decode_batch<8>},
                                 {"decode-32", decode_batch<32>}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
