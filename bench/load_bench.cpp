// loading a model: weights packed from the file against packed ones mapped from disk, and decoding with both

#include "bench/measure.h"
#include "bench/scratch_directory.h"
#include "quire/base/cat.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace quire::bench {
namespace {

using ModelPointer = std::unique_ptr<model::Model>;

Result<ModelPointer> load_model(const model::GgufFile& file, ThreadPool& pool, const Options& options,
                                const std::string& cache) {
  model::LoadOptions load;
  load.tier = options.tier;
  load.max_context = load.max_batch_tokens = 256;
  load.max_logit_rows = 1;
  load.repack_cache.dir = cache;
  return model::Model::load(file, pool, load);
}

/// One sequence that decodes; begins anew when it is long.
class Decoding {
 public:
  Decoding(model::Model& model, ThreadPool& pool) : runner_(model, pool, {}) {}

  double tokens_per_second(const Options& options) {
    return 1 / seconds_per_call(options.seconds, [this] {
             if (runner_.length(0) >= 256) runner_.reset();
             const TokenId token{7};
             const model::SequenceRunner::Piece piece{0, {&token, 1}};
             keep(runner_.step({&piece, 1}).size());
           });
  }

 private:
  model::SequenceRunner runner_;
};

Result<void> weights(const Options& options, report::Report& report) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  QUIRE_TRY(auto file, model::GgufFile::open(options.model));
  ThreadPool pool(options.threads);
  const ScratchDirectory scratch;
  if (scratch.path().empty()) return fail("cannot make a temporary directory");
  QUIRE_TRY(auto packed, load_model(file, pool, options, scratch.path()));
  QUIRE_TRY(auto mapped, load_model(file, pool, options, scratch.path()));
  if (mapped->repack().outcome != model::RepackReport::Outcome::used) return fail(mapped->repack().note);
  const double megabytes = static_cast<double>(packed->weight_bytes()) * 1e-6;
  const auto rate = [&](const std::string& cache) {
    return megabytes /
           seconds_of([&] { QUIRE_CHECK(load_model(file, pool, options, cache).ok(), "it loaded before"); });
  };
  const auto loads = run_rounds(options.rounds, {[&] { return rate(scratch.path()); }, [&] { return rate(""); }});
  report.rows.push_back(
      report::make_row({cat("weights of ", static_cast<std::int64_t>(megabytes), " MB mapped, checked"), "MB/s"},
                       loads[0], "packed anew", loads[1]));
  Decoding from_map(*mapped, pool), from_memory(*packed, pool);
  const auto rates = run_rounds(options.rounds, {[&] { return from_map.tokens_per_second(options); },
                                                 [&] { return from_memory.tokens_per_second(options); }});
  report.rows.push_back(
      report::make_row({"decode, batch 1, mapped weights", "tokens/s"}, rates[0], "packed anew", rates[1]));
  return {};
}

constexpr Section kSections[] = {{"weights", weights}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
