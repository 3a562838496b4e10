#include "quire/model/sequence_runner.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire::model {
namespace {

attention::KvLayout layout_of(const ModelConfig& config, const RunnerOptions& options) {
  attention::KvLayout layout;
  layout.num_layers = config.num_layers;
  layout.num_kv_heads = config.num_kv_heads;
  layout.head_dim = config.head_dim;
  layout.block_size = options.block_size;
  layout.type = options.kv_type;
  return layout;
}

std::vector<BlockId> block_order(const RunnerOptions& options) {
  std::vector<BlockId> order;
  for (std::int64_t i = 1; i <= options.num_blocks; ++i) order.push_back(BlockId{static_cast<std::uint32_t>(i)});
  if (options.shuffle_seed == 0) return order;
  Rng rng(options.shuffle_seed);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(i) - 1))]);
  }
  return order;
}

}  // namespace

SequenceRunner::SequenceRunner(Model& model, ThreadPool& pool, const RunnerOptions& options)
    : model_(model),
      pool_(pool),
      store_(layout_of(model.config(), options), options.num_blocks + 1),
      free_(block_order(options)) {}

SequenceRunner::Sequence& SequenceRunner::sequence(std::int64_t index) {
  if (static_cast<std::size_t>(index) >= sequences_.size()) sequences_.resize(static_cast<std::size_t>(index) + 1);
  return sequences_[static_cast<std::size_t>(index)];
}

std::int64_t SequenceRunner::length(std::int64_t index) const {
  return static_cast<std::size_t>(index) < sequences_.size() ? sequences_[static_cast<std::size_t>(index)].length : 0;
}

void SequenceRunner::reset() {
  sequences_.clear();
  num_taken_ = 0;
}

std::vector<std::uint8_t> SequenceRunner::step(std::span<const Piece> pieces, const OnRow& on_row) {
  struct Place {
    std::size_t piece, index;
  };
  std::vector<TokenId> tokens;
  std::vector<std::int64_t> logit_rows;
  std::vector<Place> places;  ///< as logit_rows
  std::vector<attention::SequenceChunk> chunks;
  for (const Piece& piece : pieces) sequence(piece.sequence);  // references below stay valid
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    Sequence& owner = sequence(piece.sequence);
    attention::SequenceChunk chunk;
    chunk.first_position = owner.length;
    chunk.num_tokens = static_cast<std::int64_t>(piece.tokens.size());
    chunk.first_row = static_cast<std::int64_t>(tokens.size());
    owner.length += chunk.num_tokens;
    while (static_cast<std::int64_t>(owner.blocks.size()) < ceil_div(owner.length, store_.layout().block_size)) {
      QUIRE_CHECK(num_taken_ < free_.size(), "the runner has ", free_.size(), " blocks");
      owner.blocks.push_back(free_[num_taken_++]);
    }
    chunk.blocks = owner.blocks;
    chunks.push_back(chunk);
    for (std::size_t i = 0; i < piece.tokens.size(); ++i) {
      if (i >= piece.logits_from) {
        logit_rows.push_back(static_cast<std::int64_t>(tokens.size()));
        places.push_back({p, i});
      }
      tokens.push_back(piece.tokens[i]);
    }
  }
  ForwardInput input;
  input.tokens = tokens;
  input.chunks = chunks;
  input.logit_rows = logit_rows;
  input.profile = profile_;
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  input.on_logits = [&](Worker& worker, const LogitsSlice& slice) {
    worker.for_each(slice.count, 1, [&](std::int64_t i) {
      const Place& place = places[static_cast<std::size_t>(slice.first + i)];
      if (on_row) on_row(place.piece, place.index, {slice.logits + static_cast<std::size_t>(i) * vocab, vocab});
    });
  };
  ForwardOutput output = model_.forward(pool_, store_, input);
  return {output.row_failed.begin(), output.row_failed.end()};
}

bool SequenceRunner::feed(const Piece& piece, std::int64_t chunk, const OnRow& on_row) {
  bool ok = true;
  for (std::size_t at = 0; at < piece.tokens.size(); at += static_cast<std::size_t>(chunk)) {
    Piece part;
    part.sequence = piece.sequence;
    part.tokens = piece.tokens.subspan(at, std::min(static_cast<std::size_t>(chunk), piece.tokens.size() - at));
    part.logits_from = piece.logits_from > at ? piece.logits_from - at : 0;
    auto failed =
        step({&part, 1}, [&](std::size_t p, std::size_t i, std::span<const float> row) { on_row(p, at + i, row); });
    ok = ok && std::count(failed.begin(), failed.end(), 1) == 0;
  }
  return ok;
}

std::vector<float> SequenceRunner::all_logits(std::int64_t index, std::span<const TokenId> tokens, std::int64_t chunk) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  std::vector<float> logits(tokens.size() * vocab);
  feed({index, tokens, 0}, chunk, [&](std::size_t, std::size_t i, std::span<const float> row) {
    std::copy(row.begin(), row.end(), logits.begin() + static_cast<std::ptrdiff_t>(i * vocab));
  });
  return logits;
}

}  // namespace quire::model
