#pragma once
// StepShape: what a step computes, as far as its time depends on it. The one place that derives it from a plan serves
// the simulator, the comparison with recorded runs, and calibration alike.

#include <cstdint>
#include <functional>
#include <span>

#include "quire/base/ids.h"
#include "quire/sim/shared_context.h"

namespace quire {

struct BatchPlan;

struct StepShape {
  static constexpr std::int64_t kTokensPerRead = 32;  ///< of a chunk that share each load of K and V

  std::int64_t num_prefill_rows = 0;
  std::int64_t num_prefill_tokens = 0;
  double prefill_squares = 0;      ///< sum over rows of end^2 - begin^2: a prompt in chunks has the sum of the whole
  std::int64_t prefill_reads = 0;  ///< positions read: once for each kTokensPerRead tokens of a chunk
  std::int64_t num_decode_rows = 0;
  std::int64_t num_decode_tokens = 0;  ///< of decode rows: one each, or more where several are checked at once
  std::int64_t decode_context = 0;     ///< sum over decode tokens of the positions each attends to
  SharedContext shared;                ///< of decode_context: in the same blocks for several rows
  std::int64_t num_logit_rows = 0;     ///< positions whose logits are computed

  std::int64_t num_tokens() const { return num_prefill_tokens + num_decode_tokens; }
  bool empty() const { return num_prefill_rows + num_decode_rows == 0; }
  bool is_lone_decode() const { return num_decode_rows == 1 && num_prefill_rows == 0; }

  /// A chunk of a prompt; the last one has logits at its end.
  void add_prefill(std::int64_t begin, std::int64_t end, std::int64_t num_logits = 1) {
    ++num_prefill_rows;
    num_prefill_tokens += end - begin;
    prefill_squares +=
        static_cast<double>(end) * static_cast<double>(end) - static_cast<double>(begin) * static_cast<double>(begin);
    for (std::int64_t at = begin; at < end; at += kTokensPerRead)
      prefill_reads += at + kTokensPerRead < end ? at + kTokensPerRead : end;
    num_logit_rows += num_logits;
  }
  /// One token, which attends to `context` positions, its own included.
  void add_decode(std::int64_t context) { add_decode(context, 1, 1); }
  /// num_tokens of one row, the last of which attends to `context` positions.
  void add_decode(std::int64_t context, std::int64_t num_tokens, std::int64_t num_logits) {
    ++num_decode_rows;
    num_decode_tokens += num_tokens;
    decode_context += context * num_tokens - num_tokens * (num_tokens - 1) / 2;
    num_logit_rows += num_logits;
  }
};

/// As if no row shared anything.
StepShape shape_of(const BatchPlan& plan);

/// `table_of` gives the block table of a row's sequence as the row finds it, empty if there is none.
using FindTable = std::function<std::span<const BlockId>(SequenceId)>;
StepShape shape_of(const BatchPlan& plan, const FindTable& table_of, std::int64_t block_size);

}  // namespace quire
