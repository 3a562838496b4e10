// Memory saved by sharing the prompt among samples (figure 15 of the PagedAttention paper), by forks of the engine's
// own manager.

#include "quire/base/checked.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/sim/paper_systems.h"

namespace quire {
namespace {

constexpr std::int32_t kBlockSize = 16;

struct Saved {
  std::int64_t blocks = 0, without_sharing = 0;  ///< summed over steps
  double share() const { return 100.0 * static_cast<double>(blocks) / static_cast<double>(without_sharing); }
};

/// n samples of one prompt, decoded together to the end.
void decode_samples(const LengthPair& lengths, std::int32_t n, Saved& saved) {
  const auto pool = static_cast<std::int32_t>(
      n * (ceil_div(std::int64_t{lengths.prompt_tokens} + lengths.output_tokens, kBlockSize) + 1));
  PagedKvManager kv(pool, kBlockSize);
  KvChanges changes;
  std::vector<KvReservation> reservations;
  const auto reserve_all = [&](std::int32_t num_sequences, std::int64_t num_tokens) {
    kv.begin_plan();
    for (std::int32_t i = 1; i <= num_sequences; ++i)
      QUIRE_CHECK(kv.plan_reserve(SequenceId{static_cast<std::uint64_t>(i)}, num_tokens), "the pool holds all of it");
    changes = {};
    reservations.clear();
    kv.commit_plan(changes, reservations);
  };
  reserve_all(1, lengths.prompt_tokens);
  for (std::int32_t i = 2; i <= n; ++i)
    kv.fork(SequenceId{1}, SequenceId{static_cast<std::uint64_t>(i)}, lengths.prompt_tokens);
  for (std::int32_t g = 1; g <= lengths.output_tokens; ++g) {
    const std::int64_t num_tokens = std::int64_t{lengths.prompt_tokens} + g;
    reserve_all(n, num_tokens);
    const std::int64_t apart = n * kv.blocks_for(num_tokens);
    saved.blocks += apart - kv.capacity().used_blocks();
    saved.without_sharing += apart;
  }
}

/// (n - 1) floor(p / B) of n ceil((p + g) / B) blocks, over the answer.
void add_closed_form(const LengthPair& lengths, std::int32_t n, Saved& saved) {
  for (std::int32_t g = 1; g <= lengths.output_tokens; ++g) {
    saved.blocks += std::int64_t{n - 1} * (lengths.prompt_tokens / kBlockSize);
    saved.without_sharing += n * ceil_div(std::int64_t{lengths.prompt_tokens} + g, kBlockSize);
  }
}

}  // namespace

PaperFigure reproduce_sharing(const PaperInputs& inputs) {
  struct Case {
    std::int32_t n;
    std::optional<double> paper;
  };
  PaperFigure figure;
  figure.title = "Blocks saved by sharing the prompt among parallel samples (figure 15a): Alpaca";
  const IndependentLengths alpaca = alpaca_recipe();
  const EmpiricalLengths sharegpt = filtered_sharegpt(inputs);
  const int count = inputs.reduced ? 1000 : 4000;
  const auto measure = [&](const LengthSampler& lengths, int num_requests, std::int32_t n) {
    Rng rng(inputs.seed);
    Saved forked, closed;
    for (int i = 0; i < num_requests; ++i) {
      const LengthPair pair = lengths.sample(rng);
      decode_samples(pair, n, forked);
      add_closed_form(pair, n, closed);
    }
    return std::pair(forked.share(), closed.share());
  };
  for (const Case& c : {Case{2, 6.09}, Case{4, std::nullopt}, Case{6, 9.79}}) {
    const auto [ours, closed] = measure(alpaca, count, c.n);
    if (c.paper)
      figure.rows.push_back(
          {cat(c.n, " samples, against the paper"), c.paper, ours, *c.paper - 2, *c.paper + 2, "%", {}});
    figure.rows.push_back({cat(c.n, " samples, against the closed form"), closed, ours, closed - 2, closed + 2, "%",
                           "column 'paper' is the closed form"});
  }
  for (const Case& c : {Case{2, 16.2}, Case{6, 30.5}}) {
    const auto [ours, closed] = measure(sharegpt, count / 10, c.n);
    figure.rows.push_back({cat("ShareGPT, ", c.n, " samples"),
                           c.paper,
                           ours,
                           {},
                           {},
                           "%",
                           "our lengths have shorter prompts and longer answers than the paper's"});
  }
  figure.notes = {"Beam search: no verdict here; it needs the genealogy of real beams."};
  return figure;
}

}  // namespace quire
