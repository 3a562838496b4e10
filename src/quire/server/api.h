#pragma once
// Api: the routes, and the life of each call from request to last byte. Knows no sockets: requests come as plain data,
// answers go to an Exchange.
//
//   GET  /health          200 while the process lives
//   GET  /ready           200 when requests are taken, 503 while loading or draining
//   GET  /metrics         Prometheus text
//   GET  /v1/kv           the KV memory, as JSON
//   GET  /v1/models, /v1/models/{model}
//   POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize
//
// Paths are matched as sent: nothing is decoded, collapsed or redirected. Any other method is 405 with Allow. POST
// takes application/json only, uncompressed, and answers with the X-Request-Id that came, if it is 1 to 128 characters
// of [A-Za-z0-9._-], else with its own. Every refusal has OpenAI's error shape.
//
// Life of a call: I/O thread (route, readiness, queue) -> worker thread (prepare.h) -> I/O thread (submit) -> engine's
// thread (deltas, through the Outbox) -> I/O thread (Generation). A client that goes cancels its requests at once.
// The Api is the one owner of every call; everything else holds its number.
//
// Everything runs on the I/O thread except the constructor and destructor, which need it not to run.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/metrics/server_metrics.h"
#include "quire/server/api_keys.h"
#include "quire/server/backend.h"
#include "quire/server/generation.h"
#include "quire/server/http_message.h"
#include "quire/server/outbox.h"
#include "quire/server/prepare.h"

namespace quire::server {

struct ApiOptions {
  std::vector<std::string> model_names;  ///< that requests may ask for; not empty, the first is shown
  /// Against DNS rebinding on a loopback address: only these names, IP addresses, localhost and *.local may be asked
  /// for in the Host header.
  bool check_host = true;
  std::vector<std::string> allowed_hosts;
  ApiKeys keys;  ///< if there are any, every route but /health and /ready wants one
  std::size_t max_body_bytes = 8 << 20;
  std::function<std::int64_t()> unix_time;  ///< seconds
  std::function<std::int64_t()> num_connections;
  std::function<std::uint64_t()> random;  ///< for seeds and ids
};

class Api {
 public:
  /// `tasks` and `metrics` must outlive it.
  Api(ApiOptions options, Tasks& tasks, metrics::ServerMetrics& metrics);
  ~Api();

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  /// The model is loaded. `backend` must live until the worker threads have stopped; its last callbacks may come later.
  void set_backend(Backend* backend);
  /// No new work from now on; /ready says so.
  void begin_drain();
  /// Ends every call with an error: the grace period is over.
  void end_all();
  std::size_t num_calls() const { return calls_.size(); }

 private:
  enum class Phase { loading, ready, draining };
  using Handler = void (Api::*)(const HttpRequest&, std::shared_ptr<Exchange>);
  using Prepare = Prepared (*)(std::string_view, const PrepareContext&);
  struct Route;
  struct CallState {
    std::shared_ptr<Exchange> exchange;  ///< shared with the connection, which may end first
    std::string tenant;                  ///< of the API key; empty without keys
    std::unique_ptr<Generation> generation;
    std::vector<std::optional<RequestId>> requests;  ///< by prompt; none once it has ended
  };

  static const Route* find_route(std::string_view path);
  bool host_allowed(const HttpRequest& request) const;
  std::string own_id(std::string_view prefix);

  void health(const HttpRequest&, std::shared_ptr<Exchange> exchange);
  void ready(const HttpRequest&, std::shared_ptr<Exchange> exchange);
  void show_metrics(const HttpRequest&, std::shared_ptr<Exchange> exchange);
  void show_kv(const HttpRequest&, std::shared_ptr<Exchange> exchange);
  void list_models(const HttpRequest&, std::shared_ptr<Exchange> exchange);
  void show_model(const HttpRequest& request, std::shared_ptr<Exchange> exchange);
  std::string model_json(const std::string& name) const;

  void take_post(const Route& route, HttpRequest request, std::string tenant, std::shared_ptr<Exchange> exchange);
  void on_prepared(std::uint64_t number, std::string_view route, Prepared prepared);
  void submit(std::uint64_t number, Call call);
  void on_delta(Outbox::Item item);
  void drop(std::uint64_t number);
  ApiError unavailable() const;
  ApiError queue_full() const;
  ApiError refused(const engine::Refusal& refusal, Call::Kind kind) const;

  ApiOptions options_;
  Tasks& tasks_;
  metrics::ServerMetrics& metrics_;
  std::shared_ptr<Outbox> outbox_;
  Backend* backend_ = nullptr;
  Phase phase_ = Phase::loading;
  std::int64_t started_ = 0;
  std::string id_prefix_;
  std::uint64_t next_number_ = 1;
  std::unordered_map<std::uint64_t, CallState> calls_;
  double mean_request_seconds_ = 1;  ///< of recent requests, for Retry-After
};

}  // namespace quire::server
