#pragma once
// RequestWriter: from the lengths of a workload to requests that a server takes.
//
// A prompt has `shared_prefix` tokens that are the same in every request, then the request's own. Where the workload
// names blocks of the prompt (RequestSpec::prefix_blocks), equal names become equal tokens, so that a server's prefix
// cache finds in them what it found in the original. Everything else is drawn anew for each request, from (seed,
// number of the request, position): the same requests for the same seed, whatever order or speed they are sent in.
//
// Token ids say exactly how long a prompt is. Text is words that are mostly one token each in the usual vocabularies: a
// little longer or shorter, and the chat template comes on top.

#include <cstdint>
#include <string>
#include <vector>

#include "quire/workload/request_spec.h"

namespace quire::loadgen {

enum class Endpoint { completions, chat };
enum class PromptKind { token_ids, text };
enum class Eos {
  ignore,  ///< answers have the length that the workload wants ("ignore_eos": true)
  obey,
};

struct RequestWriterOptions {
  Endpoint endpoint = Endpoint::completions;
  PromptKind prompt = PromptKind::token_ids;  ///< chat takes text
  Eos eos = Eos::ignore;
  std::string model;
  std::uint64_t seed = 1;
  std::int32_t shared_prefix = 0;
  std::int32_t first_token_id = 1000, last_token_id = 15'999;  ///< both included
  double temperature = 0;
};

class RequestWriter {
 public:
  explicit RequestWriter(RequestWriterOptions options) : options_(std::move(options)) {}

  /// "/v1/completions"
  std::string path() const;
  /// The JSON body of request `number`.
  std::string body(const RequestSpec& spec, std::uint64_t number) const;
  /// With the shared prefix.
  std::int64_t prompt_tokens(const RequestSpec& spec) const {
    return std::int64_t{options_.shared_prefix} + spec.prompt_tokens;
  }
  /// 64 random bits for each token of the prompt.
  std::vector<std::uint64_t> prompt(const RequestSpec& spec, std::uint64_t number) const;

 private:
  RequestWriterOptions options_;
};

}  // namespace quire::loadgen
