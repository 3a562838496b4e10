#pragma once
// prepare: the worker thread's part of a POST: body to JSON, to fields, to token ids. Touches nothing but its
// arguments.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/server/api_error.h"
#include "quire/server/backend.h"
#include "quire/server/generation.h"

namespace quire::server {

struct PrepareContext {
  const Backend& backend;
  const std::vector<std::string>& model_names;  ///< that requests may ask for; the first is what answers say
  std::size_t max_body_bytes = 0;
  std::uint64_t drawn_seed = 0;  ///< for a request without one
};

struct Prepared {
  std::variant<ApiError, HttpResponse, Call> outcome;
  std::size_t num_unknown_fields = 0;
};

Prepared prepare_chat(std::string_view body, const PrepareContext& context);
Prepared prepare_completion(std::string_view body, const PrepareContext& context);
Prepared prepare_tokenize(std::string_view body, const PrepareContext& context);
Prepared prepare_detokenize(std::string_view body, const PrepareContext& context);

}  // namespace quire::server
