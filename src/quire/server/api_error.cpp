#include "quire/server/api_error.h"

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/json/reader.h"

namespace quire::server {
namespace {

std::string_view type_of(int status) {
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

ApiError invalid_request(const Error& error) {
  return {.status = 400, .message = error.message, .param = std::string(json::error_field(error))};
}

ApiError invalid_field(std::string_view field, std::string_view what) {
  return invalid_request(json::field_error(field, what));
}

ApiError model_not_found(std::string_view found, const std::vector<std::string>& names) {
  std::string shown, list;
  json::append_string(shown, found.substr(0, 100), true);
  for (const std::string& name : names) list += cat(list.empty() ? "'" : ", '", name, "'");
  return {.status = 404,
          .message = cat("the model ", shown, " does not exist here; this server has ", list),
          .param = "model",
          .code = "model_not_found"};
}

std::string error_body(const ApiError& error) {
  std::string out;
  json::Writer w(out);
  w.begin_object().key("error").begin_object();
  w.field("message", error.message).field("type", type_of(error.status));
  error.param.empty() ? w.key("param").null() : w.field("param", error.param);
  error.code.empty() ? w.key("code").null() : w.field("code", error.code);
  w.end_object().end_object();
  return out;
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_body(error)};
  if (error.retry_after_seconds) response.headers.emplace_back("Retry-After", cat(*error.retry_after_seconds));
  return response;
}

}  // namespace quire::server
