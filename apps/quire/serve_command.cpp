#include "commands.h"
#include "flags.h"
#include "serve.h"
#include "terminal.h"

namespace quire::cli {

void add_serve(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ServeOptions>();
  auto* command = app.add_subcommand("serve", "Serve the model over an OpenAI-compatible HTTP API");
  add_model(*command, options->engine.model_path);
  command->add_option("--host", options->host, "Address to listen on: an IP address or localhost")
      ->check(not_empty())
      ->capture_default_str();
  command->add_option("--port", options->port, "Port; 0: any free one")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  command->add_flag("--allow-remote", options->allow_remote, "Allow a host that other machines can reach");
  command->add_option("--alias", options->aliases, "Name for the `model` field; may be repeated, the first is shown")
      ->check(not_empty());
  command->add_option("--allowed-host", options->allowed_hosts, "One more name that the Host header may have")
      ->check(not_empty());
  command
      ->add_option(
          "--api-key", options->api_keys,
          "Requests need this key as `Authorization: Bearer KEY`; may be repeated. Keys share no cached prefixes")
      ->envname("QUIRE_API_KEY");
  command->add_option("--api-key-file", options->api_key_file, "More API keys, one a line")->check(not_empty());
  command->add_flag("--log-preemptions", options->log_preemptions,
                    "Say of every preemption what became of the KV and why, on stderr");
  command->add_option("--grace", options->grace_s, "Seconds that running requests may take after Ctrl-C")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->add_flag("--json", options->json, "The summary as one line of JSON");
  add_engine_flags(*command, options->engine);
  command->callback([options, &chosen] {
    chosen = [options] {
      if (auto read = read_environment(options->engine); !read.ok()) {
        report(read.error().message);
        return kUsage;
      }
      return serve(*options);
    };
  });
}

}  // namespace quire::cli
