#pragma once
// Traces in JSON. Errors name file, row (of a JSON file without lines: the request, from 1) and key.

#include "quire/workload/trace.h"

namespace quire {

/// Why a text, the row of a file, is no JSON, as json::parse() says it; the byte that it names is the column.
Error json_error(std::string_view file, std::uint64_t row, std::string_view message);

/// JSON lines. Either Mooncake's
///     {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}      names of 512-token blocks
/// or one's own
///     {"arrival_s": s, "prompt_tokens": n, "output_tokens": n, "session": n}           arrival_s and session optional
Result<Trace> read_jsonl_trace(std::string_view file, std::string_view text);

/// One agent session, a JSON object {block_size, requests: [{t, in, out, hash_ids, ...}]}; times in seconds since its
/// start, names of its own. Appends to `trace`, whose requests are no longer in order; `session` from 1.
Result<void> read_agent_session(std::string_view file, std::string_view text, std::uint64_t session, Trace& trace);

}  // namespace quire
