#include "serve.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "quire/base/cat.h"
#include "quire/engine/sha256_hasher.h"
#include "quire/json/json.h"
#include "quire/metrics/server_metrics.h"
#include "quire/server/api.h"
#include "quire/server/api_error.h"
#include "quire/server/engine_backend.h"
#include "quire/server/http_server.h"

namespace quire::cli {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Milliseconds kFlushTime{5'000};  ///< for the last bytes to reach slow clients

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);
  std::fflush(stderr);
}

/// SIGINT and SIGTERM as events. Made before any other thread, so that all of them leave the signals to this one.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { run(); });
  }
  ~Signals() {
    ending_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

  /// From now on the first signal is an event rather than the end.
  void catch_first() { catching_ = true; }
  void wait_first() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return count_ > 0; });
  }

 private:
  void run() {
    while (true) {
      int signal = 0;
      if (sigwait(&set_, &signal) != 0 || ending_) return;
      if (!catching_) std::_Exit(128 + signal);
      std::lock_guard lock(mutex_);
      if (++count_ > 1) {
        say("stopped at once by a second signal");
        std::_Exit(1);
      }
      wake_.notify_all();
    }
  }

  sigset_t set_;
  std::thread thread_;
  std::atomic<bool> ending_{false}, catching_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  int count_ = 0;
};

bool is_loopback(const std::string& host) { return host == "localhost" || host.starts_with("127.") || host == "::1"; }

std::vector<std::string> model_names(const ServeOptions& options) {
  std::vector<std::string> names = options.aliases;
  names.push_back(std::filesystem::path(options.engine.model_path).stem().string());
  return names;
}

std::string address_of(const ServeOptions& options, std::uint16_t port) {
  const bool v6 = options.host.find(':') != std::string::npos;
  return cat("http://", v6 ? "[" : "", options.host, v6 ? "]" : "", ":", port);
}

std::string mebibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return cat(tenths / 10, ".", tenths % 10, " MiB");
}

std::int64_t milliseconds(double seconds) { return std::llround(seconds * 1e3); }

std::string weights_origin(const model::RepackReport& repack) {
  using Outcome = model::RepackReport::Outcome;
  if (repack.outcome == Outcome::used) return cat("mapped from ", repack.path);
  if (repack.outcome == Outcome::written) return cat("packed, and written to ", repack.path);
  return "packed";
}

/// Beside what the engine says of itself, what the summary says.
struct Serving {
  std::vector<std::string> names;
  std::string address;
  std::uint16_t port = 0;
  bool chat = false;  ///< the model has a chat template
  bool needs_key = false;
  std::int64_t max_waiting = 0;
};

std::string try_it(const Serving& serving) {
  const char* path = serving.chat ? "/v1/chat/completions" : "/v1/completions";
  const char* body = serving.chat ? R"({"messages":[{"role":"user","content":"What is a quire?"}]})"
                                  : R"({"prompt":"A quire is","max_tokens":32})";
  return cat("curl ", serving.address, path, serving.needs_key ? " -H 'Authorization: Bearer YOUR_KEY'" : "",
             " -H 'Content-Type: application/json' -d '", body, "'");
}

std::string summary_text(const engine::EngineInfo& info, const Serving& serving) {
  const std::string& name = serving.names.front();
  const std::int64_t full = info.num_blocks / std::max<std::int64_t>(1, info.blocks_per_request);
  std::string out;
  const auto line = [&out](std::string_view label, const std::string& text) {
    out += cat("  ", label, std::string(12 - label.size(), ' '), text, "\n");
  };
  out += cat("serving ", name, "\n");
  line("model", cat(info.model_name.empty() ? name : info.model_name, ": ", info.architecture, ", ", info.num_layers,
                    " layers, ", info.num_parameters / 1'000'000, " million parameters, ", info.quantization));
  line("file", cat(info.model_path, " (", mebibytes(info.file_bytes), ")"));
  line("context", cat(info.context, " tokens a request (the model's own: ", info.model_context, ")"));
  line("cpu", cat(to_string(info.cpu_tier), ", ", info.threads, info.threads == 1 ? " thread" : " threads", " (",
                  info.cpu_tier_why, ")"));
  line("memory", cat("weights ", mebibytes(info.weight_bytes), ", KV ", mebibytes(info.kv_bytes), ", scratch ",
                     mebibytes(info.scratch_bytes), "; ", mebibytes(info.free_memory_bytes), " were free"));
  line("loaded", cat("in ", milliseconds(info.load_seconds), " ms, of these ", milliseconds(info.weights_seconds),
                     " ms for the weights: ", weights_origin(info.repack)));
  const bool grouped = info.num_layer_groups > 1;
  const std::string pool =
      info.page_group_bytes > 0
          ? cat("vattention, ", info.num_blocks, " page-groups of ", info.page_group_bytes >> 10, " KiB")
          : cat(info.num_blocks, " blocks of ", info.block_size, " tokens",
                grouped ? cat(" of ", info.layers_per_group, " layers") : "");
  line("kv cache", cat(pool, " = ", info.kv_tokens, grouped ? " tokens of one request in " : " tokens in ",
                       info.kv_type, ", ", info.kv_bytes_per_token, " bytes a token"));
  if (grouped) line("", cat(info.num_layer_groups, " layer groups; memory behind sliding windows is given back"));
  line("", cat(info.kv_memory_why, "; room for ", full, " full-length ", full == 1 ? "request" : "requests"));
  if (info.kv_ram_blocks > 0)
    line("kv tiers",
         cat("RAM ", mebibytes(info.kv_ram_bytes), " = ", info.kv_ram_blocks, " blocks",
             info.kv_swap_dir.empty() ? std::string(", no files")
                                      : cat("; files in ", info.kv_swap_dir, ", up to ", mebibytes(info.kv_swap_bytes),
                                            ", ", info.kv_swap_files_found, " found"),
             "; preemption ", info.preemption));
  line("batch", cat("up to ", info.max_batch_tokens, " tokens and ", info.max_batch_rows, " requests a step, ",
                    serving.max_waiting, " more may wait"));
  line("chat", serving.chat ? "the model's own template" : "no template in the model: use /v1/completions");
  line("address", cat(serving.address, " (ready; Ctrl-C drains and stops)"));
  line("try", try_it(serving));
  return out;
}

std::string summary_json(const engine::EngineInfo& info, const Serving& serving) {
  std::string out;
  json::Writer w(out);
  w.begin_object().field("event", "ready").field("address", serving.address).field("port", serving.port);
  w.key("models").begin_array();
  for (const std::string& name : serving.names) w.value(name);
  w.end_array();
  w.field("model_name", info.model_name).field("architecture", info.architecture);
  w.field("quantization", info.quantization).field("model_path", info.model_path).field("file_bytes", info.file_bytes);
  w.field("num_parameters", info.num_parameters).field("num_layers", info.num_layers);
  w.field("vocab_size", info.vocab_size).field("model_context", info.model_context).field("context", info.context);
  w.field("threads", info.threads).field("cpu_tier", to_string(info.cpu_tier));
  w.field("cpu_tier_why", info.cpu_tier_why).field("kv_type", info.kv_type).field("block_size", info.block_size);
  w.field("num_blocks", info.num_blocks).field("kv_tokens", info.kv_tokens).field("kv_manager", info.kv_manager);
  w.field("page_group_bytes", info.page_group_bytes);
  w.field("kv_layout", info.kv_layout).field("num_layer_groups", info.num_layer_groups);
  w.field("layers_per_group", info.layers_per_group).field("blocks_per_request", info.blocks_per_request);
  w.field("kv_bytes_per_token", info.kv_bytes_per_token).field("weight_bytes", info.weight_bytes);
  w.field("load_seconds", info.load_seconds).field("weights_seconds", info.weights_seconds);
  w.field("weights_from", weights_origin(info.repack));
  w.field("kv_bytes", info.kv_bytes).field("kv_store_bytes", info.kv_store_bytes);
  w.field("scratch_bytes", info.scratch_bytes);
  w.field("free_memory_bytes", info.free_memory_bytes).field("kv_memory_why", info.kv_memory_why);
  w.field("kv_ram_bytes", info.kv_ram_bytes).field("kv_ram_blocks", info.kv_ram_blocks);
  w.field("kv_swap_dir", info.kv_swap_dir).field("kv_swap_bytes", info.kv_swap_bytes);
  w.field("kv_swap_files_found", info.kv_swap_files_found).field("preemption", info.preemption);
  w.field("max_batch_tokens", info.max_batch_tokens).field("max_batch_rows", info.max_batch_rows);
  w.field("chat_template", serving.chat).end_object();
  return out + "\n";
}

/// Redraws one line on a terminal; says nothing into a file.
std::function<void(double)> progress_line(const std::string& name) {
  if (!isatty(STDERR_FILENO)) {
    say("loading " + name);
    return {};
  }
  return [name, shown = -1](double fraction) mutable {
    const int percent = static_cast<int>(fraction * 100);
    if (percent == shown) return;
    shown = percent;
    std::fprintf(stderr, "\rloading %s: %3d %%%s", name.c_str(), percent, percent >= 100 ? "\n" : "");
    std::fflush(stderr);
  };
}

/// Of --api-key and --api-key-file. Empty lines of the file are no keys.
Result<server::ApiKeys> read_api_keys(const ServeOptions& options, const BlockHasher& hasher) {
  std::vector<std::string> keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    std::ifstream file(options.api_key_file);
    if (!file) return fail(cat("--api-key-file: cannot read ", options.api_key_file));
    const std::size_t num_given = keys.size();
    for (std::string line; std::getline(file, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
    if (keys.size() == num_given) return fail(cat("--api-key-file: ", options.api_key_file, " has no key"));
  }
  return server::ApiKeys::create(keys, hasher);
}

/// False, with the reason said, if the host can be reached by others and that was not asked for.
bool may_listen(const ServeOptions& options, bool needs_key) {
  if (is_loopback(options.host)) return true;
  if (!options.allow_remote) {
    say(cat("error: --host ", options.host, " can be reached from other machines",
            needs_key ? "" : ", and without --api-key the server asks nobody who they are",
            "; add --allow-remote if that is what you want, or put a proxy in front of 127.0.0.1"));
    return false;
  }
  if (!needs_key) say(cat("warning: anyone who can reach ", options.host, " can use this server: it has no --api-key"));
  return true;
}

server::ApiOptions api_options(const ServeOptions& options, server::ApiKeys keys,
                               std::function<std::int64_t()> num_connections) {
  auto random = std::make_shared<std::mt19937_64>();  // shared with copies of the function
  std::random_device device;
  random->seed((std::uint64_t{device()} << 32) ^ device());
  return {
      .model_names = model_names(options),
      .check_host = is_loopback(options.host),
      .allowed_hosts = options.allowed_hosts,
      .keys = std::move(keys),
      .unix_time =
          [] {
            const auto now = std::chrono::system_clock::now().time_since_epoch();
            return std::int64_t{std::chrono::duration_cast<std::chrono::seconds>(now).count()};
          },
      .num_connections = std::move(num_connections),
      .random = [random] { return (*random)(); },
  };
}

/// Runs a function on the I/O thread and waits for its result.
template <class Function>
auto on_io_thread(server::HttpServer& http, Function function) {
  auto task = std::make_shared<std::packaged_task<decltype(function())()>>(std::move(function));
  auto result = task->get_future();
  http.post([task] { (*task)(); });
  return result.get();
}

/// True if all calls ended by themselves.
bool drain(server::HttpServer& http, server::Api& api, engine::Engine& engine, int grace_s) {
  const auto deadline = Clock::now() + std::chrono::seconds(grace_s);
  on_io_thread(http, [&] { api.begin_drain(); });
  engine.stop_accepting();
  const auto running = on_io_thread(http, [&] { return api.num_calls(); });
  say(cat("stopping: ", running, running == 1 ? " request is" : " requests are", " in flight, up to ", grace_s,
          " s for them; a second signal stops at once"));
  while (on_io_thread(http, [&] { return api.num_calls(); }) > 0) {
    if (Clock::now() >= deadline) {
      on_io_thread(http, [&] { api.end_all(); });
      http.wait_quiet(kFlushTime);
      return false;
    }
    std::this_thread::sleep_for(Milliseconds(20));
  }
  http.wait_quiet(kFlushTime);
  return true;
}

}  // namespace

int serve(ServeOptions options) {
  auto hasher = engine::Sha256Hasher::create();
  auto keys = hasher ? read_api_keys(options, **hasher) : Result<server::ApiKeys>(hasher.error());
  if (!keys) {
    say("error: " + keys.error().message);
    return 1;
  }
  Serving serving{
      .names = model_names(options), .needs_key = keys->required(), .max_waiting = options.engine.max_waiting};
  if (!may_listen(options, serving.needs_key)) return 1;
  Signals signals;
  metrics::ServerMetrics metrics(serving.names.front());
  server::HttpServerOptions http_options{.host = options.host, .port = options.port};
  http_options.error_response = [&metrics](int status, std::string_view message) {
    metrics.count_http_request("other", status);
    server::ApiError error{.status = status, .message = std::string(message)};
    if (status == 503) error.retry_after_seconds = 1;
    return server::error_response(error);
  };
  auto http = server::HttpServer::listen(std::move(http_options));
  if (!http) {
    say("error: " + http.error().message);
    return 1;
  }
  server::HttpServer& listener = **http;
  server::Api api(
      api_options(options, *std::move(keys), [&] { return static_cast<std::int64_t>(listener.num_connections()); }),
      listener, metrics);
  listener.start([&api](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
    api.handle(std::move(request), std::move(exchange));
  });

  options.engine.progress = progress_line(serving.names.front());
  if (options.log_preemptions) options.engine.log_line = say;
  auto opened = engine::Engine::open(std::move(options.engine));
  if (!opened) {
    listener.stop();
    say("error: " + opened.error().message);
    return 1;
  }
  std::unique_ptr<engine::Engine> engine = *std::move(opened);
  if (!engine->info().repack.note.empty()) say(engine->info().repack.note);
  server::EngineBackend backend(*engine, serving.max_waiting);
  signals.catch_first();
  on_io_thread(listener, [&] { api.set_backend(&backend); });

  serving.port = listener.port();
  serving.address = address_of(options, serving.port);
  serving.chat = engine->chat_template() != nullptr;
  const std::string summary =
      options.json ? summary_json(engine->info(), serving) : summary_text(engine->info(), serving);
  std::fputs(summary.c_str(), stdout);
  std::fflush(stdout);

  signals.wait_first();
  const bool clean = drain(listener, api, *engine, options.grace_s);
  listener.stop();
  say(clean ? "stopped" : "stopped: the requests still running were ended");
  return clean ? 0 : 1;
}

}  // namespace quire::cli
