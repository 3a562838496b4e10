#include "bench/tier_sections.h"

#include <condition_variable>
#include <mutex>

#include "bench/measure.h"
#include "bench/scratch_directory.h"
#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"
#include "quire/engine/tier_store.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace quire::bench {
namespace {

constexpr std::int64_t kLengths[] = {64, 256, 1024, 4096};
constexpr std::int64_t kLongest = 4096, kChunk = 512, kBlockSize = 16;

/// A model with one sequence, and tiers behind the blocks of its store.
class Tiers {
 public:
  static Result<std::unique_ptr<Tiers>> open(const Options& options, ThreadPool& pool) {
    if (options.model.empty()) return fail("wants a model: --model FILE");
    auto made = std::unique_ptr<Tiers>(new Tiers);
    if (made->directory_.path().empty()) return fail("cannot make a temporary directory");
    QUIRE_TRY(auto file, model::GgufFile::open(options.model));
    model::LoadOptions load;
    load.tier = options.tier;
    load.max_context = kLongest;
    load.max_batch_tokens = kChunk;
    load.max_logit_rows = 1;
    QUIRE_TRY(made->model_, model::Model::load(file, pool, load));
    model::RunnerOptions runner;
    runner.block_size = kBlockSize;
    runner.num_blocks = kLongest / kBlockSize;
    made->runner_ = std::make_unique<model::SequenceRunner>(*made->model_, pool, runner);
    Rng rng(1);
    for (std::int64_t i = 0; i < kLongest; ++i) {
      made->prompt_.push_back(
          TokenId{static_cast<std::int32_t>(rng.between(0, made->model_->config().vocab_size - 1))});
    }
    engine::TierStoreOptions tiers;
    tiers.num_frames = runner.num_blocks;
    tiers.directory = made->directory_.path();
    tiers.file_bytes = std::uint64_t{4} << 30;
    QUIRE_TRY(made->store_, engine::TierStore::open(tiers, made->runner_->store(), [tiers_ptr = made.get()] {
                const std::lock_guard lock(tiers_ptr->mutex_);
                ++tiers_ptr->num_ended_;
                tiers_ptr->wake_.notify_all();
              }));
    QUIRE_TRY_VOID(made->write_files());
    return made;
  }

  double recompute_ms(std::int64_t tokens) {
    return 1e3 * seconds_of([&] {
             runner_->reset();
             const auto all = std::span(prompt_).first(static_cast<std::size_t>(tokens));
             runner_->feed({0, all, all.size() - 1}, kChunk, [](auto...) {});
           });
  }

  /// To RAM and back.
  double swap_ms(std::int64_t tokens, const Options& options) {
    TierChanges out, back;
    for (std::uint32_t i = 1; i <= num_blocks(tokens); ++i) {
      out.stores.push_back({BlockId{i}, FrameId{i}});
      back.loads.push_back({FrameId{i}, BlockId{i}});
    }
    return 1e3 * seconds_per_call(options.seconds, [&] {
             store_->start(out);
             store_->start(back);
           });
  }

  /// From files, that the system may still have in its memory.
  double read_ms(std::int64_t tokens) {
    TierChanges reads, loads;
    for (std::uint32_t i = 1; i <= num_blocks(tokens); ++i) {
      reads.reads.push_back({next_transfer(), FrameId{i}, content_of(i, reads)});
      loads.loads.push_back({FrameId{i}, BlockId{i}});
    }
    bool done = true;
    const double seconds = seconds_of([&] {
      store_->start(reads);
      done = wait_for(reads.reads.size());
      store_->start(loads);
    });
    QUIRE_CHECK(done, "a block file that was written could not be read");
    return 1e3 * seconds;
  }

 private:
  Tiers() = default;

  static std::uint32_t num_blocks(std::int64_t tokens) {
    return static_cast<std::uint32_t>(ceil_div(tokens, kBlockSize));
  }
  TransferId next_transfer() { return TransferId{++last_transfer_}; }

  FileContent content_of(std::uint32_t block, TierChanges& changes) const {
    FileContent content;
    std::memcpy(content.key.bytes.data(), &block, sizeof block);
    content.num_tokens = static_cast<std::int32_t>(block * kBlockSize);
    content.tokens_offset = changes.add_tokens(std::span(prompt_).first(static_cast<std::size_t>(content.num_tokens)));
    return content;
  }

  Result<void> write_files() {
    for (std::uint32_t i = 1; i <= num_blocks(kLongest); ++i) {
      TierChanges changes;
      changes.writes.push_back({next_transfer(), BlockId{i}, kNoFrame, content_of(i, changes)});
      store_->start(changes);
      if (!wait_for(1)) return fail("a block file could not be written");
    }
    return {};
  }

  /// False if one of so many transfers went wrong.
  bool wait_for(std::size_t count) {
    bool done = true;
    for (std::size_t seen = 0; seen < count;) {
      std::size_t before;
      {
        const std::lock_guard lock(mutex_);
        before = num_ended_;
      }
      for (const TransferEnd& end : store_->take_ended()) {
        done = done && end.outcome == TransferOutcome::done;
        ++seen;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return seen >= count || num_ended_ != before; });
    }
    return done;
  }

  ScratchDirectory directory_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<model::SequenceRunner> runner_;
  std::vector<TokenId> prompt_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::size_t num_ended_ = 0;
  std::uint64_t last_transfer_ = 0;
  std::unique_ptr<engine::TierStore> store_;  ///< its thread calls back: the first to go
};

}  // namespace

Result<void> swap_against_recompute(const Options& options, report::Report& report) {
  ThreadPool pool(options.threads);
  QUIRE_TRY(auto tiers, Tiers::open(options, pool));
  for (std::int64_t tokens : kLengths) {
    const auto figures = run_rounds(
        options.rounds, {[&] { return tiers->recompute_ms(tokens); }, [&] { return tiers->swap_ms(tokens, options); },
                         [&] { return tiers->read_ms(tokens); }});
    const report::Metric metric{cat("KV of ", tokens, " tokens computed again"), "ms"};
    report.rows.push_back(report::make_row(metric, figures[0], "swapped to RAM and back", figures[1]));
    report.rows.push_back(report::make_row(metric, figures[0], "read from block files", figures[2]));
  }
  return {};
}

}  // namespace quire::bench
