#include "quire/core/command_log_records.h"

#include <bit>

namespace quire {
namespace {

void put_tokens(ByteWriter& out, const std::vector<TokenId>& tokens) {
  out.put(static_cast<std::uint32_t>(tokens.size()));
  for (TokenId token : tokens) out.put(token.value);
}

void put_optional(ByteWriter& out, std::optional<std::int32_t> value) {
  out.put(static_cast<std::uint8_t>(value.has_value()));
  out.put(value.value_or(0));
}

void put_beams(ByteWriter& out, const std::optional<BeamParams>& beams) {
  out.put(static_cast<std::uint8_t>(beams.has_value()));
  if (!beams) return;
  out.put(beams->width);
  out.put(beams->num_returned);
  out.put(std::bit_cast<std::uint64_t>(beams->length_penalty));
  out.put(static_cast<std::uint8_t>(beams->early_stopping));
}

void put_keys(ByteWriter& out, const std::vector<BlockKey>& keys) {
  out.put(static_cast<std::uint32_t>(keys.size()));
  for (const BlockKey& key : keys)
    for (std::byte byte : key.bytes) out.put(static_cast<std::uint8_t>(byte));
}

void put_tag(ByteWriter& out, LogTag tag) { out.put(static_cast<std::uint8_t>(tag)); }

}  // namespace

void put_header(ByteWriter& out, const CoreOptions& options) {
  for (char c : kLogMagic) out.put(static_cast<std::uint8_t>(c));
  out.put(kLogVersion);
  out.put(options.block_size);
  out.put(options.num_blocks);
  out.put(options.context_tokens);
  out.put(options.token_budget);
  out.put(options.max_rows);
  out.put(options.watermark_blocks);
  out.put(options.ageing_steps);
  out.put_text(options.queue_policy);
  out.put_text(options.victim_policy);
  out.put_text(options.step_composition);
  out.put(static_cast<std::uint8_t>(options.prefix_cache));
  out.put(options.num_speculative_tokens);
  out.put(options.ngram.min_match);
  out.put(options.ngram.max_match);
  out.put_text(options.kv_manager);
  out.put(options.tile_bytes);
  out.put(options.page_group_bytes);
  out.put(options.num_kv_tensors);
  out.put(options.max_mappings);
  out.put(options.num_idle_places);
  out.put(options.kv_ram_frames);
  out.put(static_cast<std::uint8_t>(options.kv_files));
  out.put_text(options.preemption);
  out.put(options.copy_block_ns);
  out.put(options.compute_token_ns);
  out.put(static_cast<std::uint32_t>(options.layer_groups.size()));
  for (const LayerGroup& group : options.layer_groups) out.put(group.window);
}

void put_submit(ByteWriter& out, const CoreRequest& request) {
  put_tag(out, LogTag::submit);
  out.put(request.id.value);
  put_tokens(out, request.prompt);
  put_optional(out, request.max_tokens);
  put_tokens(out, request.stop_tokens);
  out.put(request.min_tokens);
  put_optional(out, request.logits_from);
  out.put(request.priority);
  out.put_text(request.salt);
  out.put(request.num_branches);
  put_beams(out, request.beams);
}

void put_cancel(ByteWriter& out, RequestId request) {
  put_tag(out, LogTag::cancel);
  out.put(request.value);
}

void put_finish(ByteWriter& out, RequestId request, std::int32_t branch, FinishReason reason) {
  put_tag(out, LogTag::finish);
  out.put(request.value);
  out.put(branch);
  out.put(static_cast<std::uint8_t>(reason));
}

void put_files(ByteWriter& out, const std::vector<BlockKey>& keys) {
  put_tag(out, LogTag::files);
  put_keys(out, keys);
}

void put_transfer(ByteWriter& out, const TransferEnd& end) {
  put_tag(out, LogTag::transfer);
  out.put(end.transfer.value);
  out.put(static_cast<std::uint8_t>(end.outcome));
  put_keys(out, end.removed);
}

void put_plan(ByteWriter& out, std::uint64_t step, std::uint64_t digest) {
  put_tag(out, LogTag::plan);
  out.put(step);
  out.put(digest);
}

void put_commit(ByteWriter& out, const StepResult& result) {
  put_tag(out, LogTag::commit);
  out.put(result.elapsed_ns);
  out.put(static_cast<std::uint32_t>(result.rows.size()));
  for (const RowResult& row : result.rows) {
    out.put(row.token.value);
    out.put(static_cast<std::uint8_t>(row.refused ? 2 : row.failed ? 1 : 0));
    out.put(static_cast<std::uint32_t>(row.candidates.size()));
    for (const Candidate& candidate : row.candidates) {
      out.put(candidate.token.value);
      out.put(std::bit_cast<std::uint32_t>(candidate.logprob));
    }
    put_tokens(out, row.more);
  }
}

}  // namespace quire
