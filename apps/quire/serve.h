#pragma once
// `quire serve MODEL`: loads the model and serves it over HTTP until a signal.
//
// Exit code: 0 after SIGINT or SIGTERM once all running requests have ended within the grace period; 1 if the model
// cannot be loaded, the port cannot be bound, requests were still running at the end of the grace period, or a second
// signal came.

#include <cstdint>
#include <string>
#include <vector>

#include "quire/engine/engine.h"

namespace quire::cli {

inline constexpr std::uint16_t kDefaultPort = 8080;

struct ServeOptions {
  engine::EngineOptions engine;            ///< model_path is required; `progress` and `log_line` are set by serve()
  std::string host = "127.0.0.1";          ///< --host: an IP address or "localhost"
  std::uint16_t port = kDefaultPort;       ///< --port; 0: any free port, printed in the summary
  bool allow_remote = false;               ///< --allow-remote: needed for a host that is not loopback
  std::vector<std::string> aliases;        ///< --alias, repeatable: names for the `model` field, the first is shown
  std::vector<std::string> allowed_hosts;  ///< --allowed-host, repeatable: more names that the Host header may have
  std::vector<std::string> api_keys;       ///< --api-key, repeatable; with any, requests need one
  std::string api_key_file;                ///< --api-key-file: more of them, one a line; empty: none
  int grace_s = 30;                        ///< --grace: seconds that running requests may take after a signal
  bool log_preemptions = false;            ///< --log-preemptions: a line on stderr for each, with its reason
  bool json = false;                       ///< --json: the summary as one JSON line instead of text
};

int serve(ServeOptions options);

}  // namespace quire::cli
