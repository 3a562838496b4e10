#pragma once
// The fields of a beam search, with vLLM's names: use_beam_search; beam_width or best_of, by default n; n, how many of
// the best are returned; length_penalty, -10 to 10; early_stopping: true, false or "never". What makes no sense beside
// a search is refused by name: stream, logprobs, penalties, logit_bias, top_k, top_p, min_p, a temperature other than 0
// or 1; and the search's own fields without it.

#include "quire/base/result.h"
#include "quire/json/reader.h"
#include "quire/server/api_request.h"

namespace quire::server {

/// Reads them, best_of included. The other fields have been read.
Result<void> read_beam_fields(json::ObjectReader& reader, CommonFields& fields);

}  // namespace quire::server
