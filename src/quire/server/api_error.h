#pragma once
// ApiError: a refusal in OpenAI's shape, {"error": {"message", "type", "param", "code"}}.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/server/http_message.h"

namespace quire::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;                       ///< the field at fault; empty: null
  std::string code;                        ///< a word for programs; empty: null
  std::optional<int> retry_after_seconds;  ///< sent as Retry-After
};

/// From an error of json::ObjectReader and its kin: 400, the field named.
ApiError invalid_request(const Error& error);
ApiError invalid_field(std::string_view field, std::string_view what);

/// 404, with the name that was asked for and those that exist.
ApiError model_not_found(std::string_view found, const std::vector<std::string>& names);

/// {"error": ...} as one line.
std::string error_body(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace quire::server
