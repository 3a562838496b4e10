// Memory saved by sharing (figure 15 of the PagedAttention paper), by forks of the engine's own manager: of the prompt
// among samples, and of all that beams have in common, as recorded searches had it.

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

/// Sequences of one prompt, all of one length, on a pool that holds them.
class Family {
 public:
  Family(std::int32_t n, std::int32_t prompt_tokens, std::int64_t most_tokens)
      : num_tokens_(prompt_tokens),
        kv_(static_cast<std::int32_t>(n * (ceil_div(most_tokens, kBlockSize) + 1)), kBlockSize) {
    members_ = {SequenceId{next_id_++}};
    reserve();
    for (std::int32_t i = 1; i < n; ++i) members_.push_back(fork(members_.front()));
  }

  /// A token of each is written.
  void grow(Saved& saved) {
    ++num_tokens_;
    reserve();
    const std::int64_t apart = static_cast<std::int64_t>(members_.size()) * kv_.blocks_for(num_tokens_);
    saved.blocks += apart - kv_.capacity().used_blocks();
    saved.without_sharing += apart;
  }

  /// Member i of the next step continues member parents[i], as the scheduler does it: the last child of a beam inherits
  /// its table, the others fork it, and who has no child gives it up.
  void continue_from(const std::uint8_t* parents) {
    std::vector<std::size_t> last_child(members_.size(), members_.size());
    for (std::size_t i = 0; i < members_.size(); ++i) last_child[parents[i]] = i;
    std::vector<SequenceId> next;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const SequenceId parent = members_[parents[i]];
      next.push_back(last_child[parents[i]] == i ? parent : fork(parent));
    }
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (last_child[i] == members_.size()) kv_.release(members_[i]);
    members_ = std::move(next);
  }

 private:
  SequenceId fork(SequenceId parent) {
    const SequenceId child{next_id_++};
    kv_.fork(parent, child, num_tokens_);
    return child;
  }
  void reserve() {
    kv_.begin_plan();
    for (const SequenceId member : members_)
      QUIRE_CHECK(kv_.plan_reserve(member, num_tokens_), "the pool holds all of it");
    changes_ = {};
    reservations_.clear();
    kv_.commit_plan(changes_, reservations_);
  }

  std::int64_t num_tokens_;
  PagedKvManager kv_;
  std::vector<SequenceId> members_;
  std::uint64_t next_id_ = 1;
  KvChanges changes_;
  std::vector<KvReservation> reservations_;
};

/// n samples of one prompt, decoded together to the end.
void decode_samples(const LengthPair& lengths, std::int32_t n, Saved& saved) {
  Family samples(n, lengths.prompt_tokens, std::int64_t{lengths.prompt_tokens} + lengths.output_tokens);
  for (std::int32_t g = 1; g <= lengths.output_tokens; ++g) samples.grow(saved);
}

void replay_beams(const BeamForks& search, Saved& saved) {
  const auto num_steps = static_cast<std::int64_t>(search.num_steps());
  Family beams(search.width, search.prompt_tokens, search.prompt_tokens + num_steps + 1);
  beams.grow(saved);
  for (std::size_t step = 0; step < search.num_steps(); ++step) {
    beams.continue_from(search.step(step));
    beams.grow(saved);
  }
}

/// The recorded searches of a set, by width.
void add_beam_rows(const PaperInputs& inputs, PaperFigure& figure) {
  struct Case {
    std::string_view set, name;
    std::int32_t width;
    std::optional<double> paper;
  };
  constexpr double kBand = 10;  // points: the paper's model is a hundred times larger, and its texts are others
  for (const Case& c : {Case{"alpaca", "Alpaca", 2, 37.56}, Case{"alpaca", "Alpaca", 4, std::nullopt},
                        Case{"alpaca", "Alpaca", 6, 55.16}, Case{"sharegpt", "ShareGPT", 2, 44.3},
                        Case{"sharegpt", "ShareGPT", 4, std::nullopt}, Case{"sharegpt", "ShareGPT", 6, 66.3}}) {
    Saved saved;
    for (const BeamForks& search : inputs.beam_searches)
      if (search.set == c.set && search.width == c.width) replay_beams(search, saved);
    if (saved.without_sharing == 0) continue;
    PaperRow row{cat("beam search, width ", c.width, ", ", c.name), c.paper, saved.share(), {}, {}, "%", {}};
    if (c.paper) row.low = *c.paper - kBand, row.high = *c.paper + kBand;
    figure.rows.push_back(std::move(row));
  }
  figure.notes.push_back(
      "Beam search: which beam continued which was recorded from the engine with SmolLM2-135M-Instruct on texts of the "
      "two workloads' lengths (data/README.md), and is replayed on the block manager. A smaller model on other texts: "
      "the band is 10 points.");
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
  figure.title = "Blocks saved by sharing: among parallel samples (figure 15a), among beams (15b)";
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
  add_beam_rows(inputs, figure);
  return figure;
}

}  // namespace quire
