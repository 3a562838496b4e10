#include "quire/server/api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/json/json.h"
#include "quire/server/api_error.h"
#include "quire/server/kv_report.h"

namespace quire::server {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

/// Clients write the slash of a name such as "team/model" as %2F. What is no escape stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* digits = text.data() + i + 1;
    const bool escaped =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += escaped ? static_cast<char>(byte) : text[i];
    if (escaped) i += 2;
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// Adds the request id to the answer and counts it by route and status.
class CountedExchange final : public Exchange {
 public:
  CountedExchange(std::shared_ptr<Exchange> inner, metrics::ServerMetrics& metrics, std::string_view route,
                  std::string request_id)
      : inner_(std::move(inner)), metrics_(metrics), route_(route), request_id_(std::move(request_id)) {}

  void respond(HttpResponse response) override {
    note(response);
    inner_->respond(std::move(response));
  }
  void start_stream(HttpResponse head, std::string filler) override {
    note(head);
    inner_->start_stream(std::move(head), std::move(filler));
  }
  void send(std::string_view bytes) override { inner_->send(bytes); }
  void end_stream() override { inner_->end_stream(); }
  void on_gone(std::function<void()> callback) override { inner_->on_gone(std::move(callback)); }
  bool gone() const override { return inner_->gone(); }

 private:
  void note(HttpResponse& response) {
    response.headers.emplace_back("X-Request-Id", request_id_);
    metrics_.count_http_request(route_, response.status);
  }

  std::shared_ptr<Exchange> inner_;
  metrics::ServerMetrics& metrics_;
  std::string_view route_;
  std::string request_id_;
};

HttpResponse unauthorized(const std::string* authorization) {
  HttpResponse response = error_response(
      {.status = 401,
       .message = authorization ? "the Authorization header has no API key of this server; wanted 'Bearer KEY'"
                                : "an API key is needed: send the header 'Authorization: Bearer KEY'",
       .code = "invalid_api_key"});
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::optional<ApiError> check_post_headers(const HttpRequest& request) {
  const std::string* encoding = request.header("content-encoding");
  if (encoding && lower(*encoding) != "identity") {
    return ApiError{.status = 415, .message = "Content-Encoding: compressed bodies are not taken"};
  }
  const std::string* type = request.header("content-type");
  std::string media = type ? lower(type->substr(0, type->find(';'))) : "";
  while (!media.empty() && (media.back() == ' ' || media.back() == '\t')) media.pop_back();
  if (media == "application/json") return std::nullopt;
  return ApiError{.status = 415, .message = "Content-Type: wanted application/json"};
}

template <class Kind, std::size_t N>
std::vector<metrics::LabelledCount> labelled(const std::array<std::uint64_t, N>& counts) {
  std::vector<metrics::LabelledCount> list;
  for (std::size_t i = 0; i < N; ++i) list.push_back({to_string(static_cast<Kind>(i)), counts[i]});
  return list;
}

void add_tiers(const engine::KvStats& kv, metrics::EngineSnapshot& snapshot) {
  const KvTierCounters& tiers = kv.tiers;
  snapshot.ram_blocks = static_cast<std::uint64_t>(tiers.frames_keyed);
  snapshot.ram_bytes = kv.ram_bytes;
  snapshot.files = static_cast<std::uint64_t>(tiers.files_known);
  snapshot.file_bytes = kv.file_bytes;
  snapshot.files_removed = tiers.files_removed;
  snapshot.preemptions_by_kind = labelled<PreemptionKind>(kv.preemptions_by);
  snapshot.tier_blocks = {{"stored", tiers.blocks_stored},
                          {"loaded", tiers.blocks_loaded},
                          {"lost", tiers.blocks_lost},
                          {"evicted", tiers.frames_evicted}};
  snapshot.file_reads = labelled<TransferOutcome>(tiers.reads);
  snapshot.file_writes = labelled<TransferOutcome>(tiers.writes);
}

}  // namespace

struct Api::Route {
  std::string_view path;  ///< also the name in metrics
  std::string_view method;
  Handler get;
  Prepare post;
  bool generates = false;
  bool open = false;  ///< needs no API key
};

const Api::Route* Api::find_route(std::string_view path) {
  static constexpr Route kRoutes[] = {
      {"/health", "GET", &Api::health, nullptr, false, true},
      {"/ready", "GET", &Api::ready, nullptr, false, true},
      {"/metrics", "GET", &Api::show_metrics, nullptr},
      {"/v1/kv", "GET", &Api::show_kv, nullptr},
      {"/v1/models", "GET", &Api::list_models, nullptr},
      {"/v1/models/{model}", "GET", &Api::show_model, nullptr},
      {"/v1/chat/completions", "POST", nullptr, &prepare_chat, true},
      {"/v1/completions", "POST", nullptr, &prepare_completion, true},
      {"/tokenize", "POST", nullptr, &prepare_tokenize},
      {"/detokenize", "POST", nullptr, &prepare_detokenize},
  };
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) path = "/v1/models/{model}";
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return nullptr;
}

Api::Api(ApiOptions options, Tasks& tasks, metrics::ServerMetrics& metrics)
    : options_(std::move(options)), tasks_(tasks), metrics_(metrics) {
  QUIRE_CHECK(!options_.model_names.empty());
  outbox_ = Outbox::create(tasks, [this](Outbox::Item item) { on_delta(std::move(item)); });
  started_ = options_.unix_time();
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::uint64_t bits = options_.random(), i = 0; i < 12; ++i, bits /= 16) id_prefix_ += kDigits[bits % 16];
}

Api::~Api() { outbox_->close(); }

std::string Api::own_id(std::string_view prefix) { return cat(prefix, id_prefix_, "-", next_number_); }

bool Api::host_allowed(const HttpRequest& request) const {
  const std::string* header = request.header("host");
  if (!options_.check_host || !header) return true;
  std::string host = lower(*header);
  if (host.starts_with('[')) return true;  // an IPv6 address
  host = host.substr(0, host.find(':'));
  if (host.find_first_not_of("0123456789.") == std::string::npos) return true;
  if (host == "localhost" || host.ends_with(".localhost") || host.ends_with(".local")) return true;
  return std::any_of(options_.allowed_hosts.begin(), options_.allowed_hosts.end(),
                     [&](const std::string& allowed) { return lower(allowed) == host; });
}

void Api::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const Route* route = find_route(request.path);
  const std::string* given = request.header("x-request-id");
  std::string id = given && is_request_id(*given) ? *given : own_id("req-");
  ++next_number_;
  exchange =
      std::make_shared<CountedExchange>(std::move(exchange), metrics_, route ? route->path : "other", std::move(id));
  if (!host_allowed(request)) {
    return exchange->respond(error_response(
        {.status = 403, .message = "this name in the Host header is not allowed; start with --allowed-host NAME"}));
  }
  const std::optional<std::string> tenant = options_.keys.tenant(request.header("authorization"));
  if (!tenant && !(route && route->open)) return exchange->respond(unauthorized(request.header("authorization")));
  if (!route) {
    return exchange->respond(
        error_response({.status = 404, .message = "no such path; the API is under /v1", .code = "unknown_path"}));
  }
  const bool get = route->method == "GET";
  if (request.method != route->method && !(get && request.method == "HEAD")) {
    HttpResponse response = error_response({.status = 405, .message = cat("this path takes ", route->method, " only")});
    response.headers.emplace_back("Allow", get ? "GET, HEAD" : "POST");
    return exchange->respond(std::move(response));
  }
  if (get) return (this->*route->get)(request, std::move(exchange));
  take_post(*route, std::move(request), *tenant, std::move(exchange));
}

void Api::health(const HttpRequest&, std::shared_ptr<Exchange> exchange) {
  exchange->respond({.status = 200, .body = R"({"status":"ok"})"});
}

void Api::ready(const HttpRequest&, std::shared_ptr<Exchange> exchange) {
  if (phase_ != Phase::ready) return exchange->respond(error_response(unavailable()));
  exchange->respond({.status = 200, .body = R"({"status":"ready"})"});
}

void Api::show_metrics(const HttpRequest&, std::shared_ptr<Exchange> exchange) {
  metrics_.set_connections(options_.num_connections());
  metrics::EngineSnapshot snapshot;
  if (backend_) {
    const engine::EngineStats stats = backend_->stats();
    snapshot = {.running = stats.running,
                .waiting = stats.waiting,
                .blocks_used = stats.blocks_used,
                .blocks_total = stats.blocks_total,
                .blocks_cached = stats.blocks_cached,
                .kv_block_size = stats.kv.block_size,
                .kv_table_entries = stats.kv.table_entries,
                .kv_unfilled_slots = stats.kv.unfilled_slots,
                .steps = stats.steps,
                .step_ns = stats.step_ns,
                .prompt_tokens = stats.prompt_tokens,
                .generated_tokens = stats.generated_tokens,
                .preemptions = stats.preemptions,
                .proposed_tokens = stats.proposed_tokens,
                .accepted_tokens = stats.accepted_tokens,
                .shared_positions = static_cast<std::uint64_t>(stats.shared_positions),
                .unshared_positions = static_cast<std::uint64_t>(stats.unshared_positions),
                .computed_tokens = stats.computed_tokens,
                .recomputed_tokens = stats.kv.recomputed_tokens,
                .copied_blocks = stats.kv.copied_blocks,
                .prefix_queries = stats.prefix_queries,
                .prefix_hits = stats.prefix_hits,
                .prefix_evictions = stats.prefix_evictions,
                .finished_stop = stats.finished_stop,
                .finished_length = stats.finished_length,
                .finished_cancelled = stats.finished_cancelled,
                .finished_timed_out = stats.finished_timed_out,
                .finished_failed = stats.finished_failed};
    add_tiers(stats.kv, snapshot);
  }
  exchange->respond(
      {.status = 200, .content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(snapshot)});
}

void Api::show_kv(const HttpRequest&, std::shared_ptr<Exchange> exchange) {
  if (!backend_) return exchange->respond(error_response(unavailable()));
  exchange->respond({.status = 200, .body = kv_report(backend_->stats())});
}

std::string Api::model_json(const std::string& name) const {
  std::string out;
  json::Writer w(out);
  w.begin_object().field("id", name).field("object", "model").field("created", started_).field("owned_by", "quire");
  w.field("max_model_len", backend_->facts().context).end_object();
  return out;
}

void Api::list_models(const HttpRequest&, std::shared_ptr<Exchange> exchange) {
  if (!backend_) return exchange->respond(error_response(unavailable()));
  std::string body = R"({"object":"list","data":[)";
  for (const std::string& name : options_.model_names) {
    if (&name != &options_.model_names.front()) body += ',';
    body += model_json(name);
  }
  exchange->respond({.status = 200, .body = body + "]}"});
}

void Api::show_model(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
  if (!backend_) return exchange->respond(error_response(unavailable()));
  const std::string asked = request.path.substr(kModelPrefix.size()), decoded = percent_decoded(asked);
  const auto& names = options_.model_names;
  for (const std::string& name : names)
    if (name == asked || name == decoded) return exchange->respond({.status = 200, .body = model_json(name)});
  exchange->respond(error_response(model_not_found(decoded, names)));
}

ApiError Api::unavailable() const {
  if (phase_ == Phase::loading) {
    return {.status = 503, .message = "the model is loading", .code = "loading", .retry_after_seconds = 1};
  }
  return {.status = 503, .message = "the server is shutting down", .code = "shutting_down", .retry_after_seconds = 5};
}

ApiError Api::queue_full() const {
  const ModelFacts& facts = backend_->facts();
  const double waiting = static_cast<double>(backend_->stats().waiting);
  const double wait = waiting / static_cast<double>(facts.max_running) * mean_request_seconds_;
  // Spread by the call's number, so that refused clients do not all come back together.
  const double jitter = 1 + 0.25 * static_cast<double>(next_number_ % 8) / 7;
  return {.status = 503,
          .message = cat("the queue is full: ", facts.max_waiting, " requests are waiting"),
          .code = "queue_full",
          .retry_after_seconds = static_cast<int>(std::clamp(std::ceil(wait * jitter), 1.0, 60.0))};
}

ApiError Api::refused(const engine::Refusal& refusal, Call::Kind kind) const {
  switch (refusal.kind) {
    case engine::Refusal::Kind::overloaded:
      return queue_full();
    case engine::Refusal::Kind::stopping:
      return unavailable();
    case engine::Refusal::Kind::invalid:
      break;
  }
  const bool chat_prompt = kind == Call::Kind::chat && refusal.field == "prompt";
  const bool length = refusal.field == "prompt" || refusal.field == "max_tokens";
  const std::string_view field = chat_prompt                       ? "messages"
                                 : refusal.field == "num_branches" ? "n"
                                 : refusal.field == "beams"        ? "beam_width"
                                                                   : std::string_view(refusal.field);
  return {.status = 400,
          .message = refusal.message,
          .param = std::string(field),
          .code = length ? "context_length_exceeded" : ""};
}

void Api::take_post(const Route& route, HttpRequest request, std::string tenant, std::shared_ptr<Exchange> exchange) {
  if (auto error = check_post_headers(request)) return exchange->respond(error_response(*error));
  if (phase_ != Phase::ready) return exchange->respond(error_response(unavailable()));
  // Decided before any work on the body; the engine decides again.
  if (route.generates && backend_->stats().waiting >= backend_->facts().max_waiting) {
    metrics_.count_refusal(metrics::RefusalReason::overloaded);
    return exchange->respond(error_response(queue_full()));
  }
  const std::uint64_t number = next_number_++;
  exchange->on_gone([this, number] { drop(number); });
  calls_.emplace(number, CallState{.exchange = std::move(exchange), .tenant = std::move(tenant)});
  // Only the number goes to the worker: the exchange stays with its owner.
  tasks_.offload([this, number, &route, body = std::move(request.body), seed = options_.random() >> 11] {
    const PrepareContext context{.backend = *backend_,
                                 .model_names = options_.model_names,
                                 .max_body_bytes = options_.max_body_bytes,
                                 .drawn_seed = seed};
    auto prepared = std::make_shared<Prepared>(route.post(body, context));  // std::function wants a copyable task
    tasks_.post([this, number, &route, prepared] { on_prepared(number, route.path, std::move(*prepared)); });
  });
}

void Api::on_prepared(std::uint64_t number, std::string_view route, Prepared prepared) {
  metrics_.count_unknown_fields(route, prepared.num_unknown_fields);
  auto call = calls_.find(number);
  if (call == calls_.end()) return;  // the client has gone, or the grace period is over
  if (auto* wanted = std::get_if<Call>(&prepared.outcome)) return submit(number, std::move(*wanted));
  const std::shared_ptr<Exchange> exchange = std::move(call->second.exchange);
  calls_.erase(call);
  if (auto* error = std::get_if<ApiError>(&prepared.outcome)) return exchange->respond(error_response(*error));
  exchange->respond(std::get<HttpResponse>(std::move(prepared.outcome)));
}

void Api::submit(std::uint64_t number, Call wanted) {
  CallState& state = calls_.at(number);
  wanted.id = cat(wanted.kind == Call::Kind::chat ? "chatcmpl-" : "cmpl-", id_prefix_, "-", number);
  wanted.created = options_.unix_time();
  const Call::Kind kind = wanted.kind;
  state.generation = std::make_unique<Generation>(std::move(wanted), *backend_, *state.exchange, metrics_);
  Call& call = state.generation->call();
  std::vector<engine::Submission> submissions;
  for (std::size_t i = 0; i < call.prompts.size(); ++i) {
    engine::GenerateRequest& request = call.prompts[i].request;
    request.cache_salt = tenant_salt(state.tenant, request.cache_salt);
    const std::size_t first = i * call.choices_per_prompt;
    submissions.push_back({std::move(request), [outbox = outbox_, number, first](engine::Delta delta) {
                             const std::size_t choice = first + static_cast<std::size_t>(delta.branch);
                             outbox->push({number, choice, std::move(delta), std::chrono::steady_clock::now()});
                           }});
  }
  const engine::SubmittedAll submitted = backend_->submit_all(std::move(submissions));
  if (submitted.ids.empty()) {
    const auto reason = submitted.refusal.kind;
    metrics_.count_refusal(reason == engine::Refusal::Kind::invalid      ? metrics::RefusalReason::invalid
                           : reason == engine::Refusal::Kind::overloaded ? metrics::RefusalReason::overloaded
                                                                         : metrics::RefusalReason::stopping);
    state.exchange->respond(error_response(refused(submitted.refusal, kind)));
    return drop(number);
  }
  state.requests.assign(submitted.ids.begin(), submitted.ids.end());
  state.generation->start();
}

void Api::on_delta(Outbox::Item item) {
  auto call = calls_.find(item.call);
  if (call == calls_.end()) return;  // deltas of a call that has ended
  if (item.delta.ends_request) {
    call->second.requests[item.choice / call->second.generation->call().choices_per_prompt].reset();
    const engine::Timings& timings = item.delta.timings;
    const double seconds = 1e-9 * static_cast<double>(timings.prefill_ns + timings.decode_ns);
    mean_request_seconds_ += 0.05 * (seconds - mean_request_seconds_);
  }
  if (call->second.generation->on_delta(item.choice, std::move(item.delta), item.at)) drop(item.call);
}

/// Forgets the call; whatever of it still runs is cancelled.
void Api::drop(std::uint64_t number) {
  auto node = calls_.extract(number);
  if (node.empty()) return;
  node.mapped().exchange->on_gone({});
  for (const std::optional<RequestId>& id : node.mapped().requests) {
    if (id) backend_->cancel(*id);
  }
}

void Api::set_backend(Backend* backend) {
  backend_ = backend;
  if (phase_ == Phase::loading) phase_ = Phase::ready;
  metrics_.set_ready(phase_ == Phase::ready);
}

void Api::begin_drain() {
  phase_ = Phase::draining;
  metrics_.set_ready(false);
}

void Api::end_all() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, call] : calls_) numbers.push_back(number);
  for (std::uint64_t number : numbers) {
    CallState& state = calls_.at(number);
    const ApiError error{.status = 503, .message = "the server is shutting down", .code = "shutting_down"};
    state.generation ? state.generation->fail(error) : state.exchange->respond(error_response(error));
    drop(number);
  }
}

}  // namespace quire::server
