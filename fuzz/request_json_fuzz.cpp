// Fuzzes request bodies against the API with a scripted backend: whatever comes is served or refused in OpenAI's error
// shape, the engine sees only values within its contract, and nothing is left behind. The first byte picks the route.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/check.h"
#include "quire/json/json.h"
#include "quire/server/api.h"
#include "quire/server/api_request.h"
#include "quire/server/fakes_test.h"

namespace {

using namespace quire;
using namespace quire::server;

void check_tokens(const std::vector<TokenId>& tokens, const ModelFacts& facts) {
  for (TokenId token : tokens) QUIRE_CHECK(token.value >= 0 && token.value < facts.vocab_size);
}

void check_request(const engine::GenerateRequest& request, const ModelFacts& facts) {
  const sampling::SamplingParams& s = request.sampling;
  QUIRE_CHECK(!request.prompt.empty());
  QUIRE_CHECK(static_cast<std::int64_t>(request.prompt.size()) < facts.context);
  check_tokens(request.prompt, facts);
  check_tokens(request.stop_tokens, facts);
  QUIRE_CHECK(!request.max_tokens || *request.max_tokens >= 0);
  QUIRE_CHECK(request.min_tokens >= 0);
  QUIRE_CHECK(s.temperature >= 0 && s.temperature <= 100);
  QUIRE_CHECK(s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0);
  QUIRE_CHECK(std::abs(s.presence_penalty) <= 2 && std::abs(s.frequency_penalty) <= 2);
  QUIRE_CHECK(s.repetition_penalty > 0 && s.repetition_penalty <= 10);
  for (const sampling::LogitBias& bias : s.logit_bias) {
    QUIRE_CHECK(bias.token.value >= 0 && bias.token.value < facts.vocab_size && std::abs(bias.bias) <= 100);
  }
  QUIRE_CHECK(request.stop.size() <= limits::kStops);
  for (const std::string& stop : request.stop) QUIRE_CHECK(!stop.empty() && stop.size() <= limits::kStopBytes);
  QUIRE_CHECK(!request.top_logprobs || *request.top_logprobs <= limits::kTopLogprobs);
}

void answer(FakeBackend& backend, std::size_t i) {
  const std::int32_t num_branches = backend.submissions[i].num_branches();
  const std::size_t prompt = backend.submissions[i].request.prompt.size();
  engine::Delta delta;
  for (std::size_t p = 0; backend.submissions[i].request.scoring && p < prompt; ++p) {
    engine::ScoreRow row{.position = static_cast<std::int32_t>(p)};
    if (p + 1 < prompt) row.next_logprob = -1.0f;
    row.top = {{TokenId{7}, -0.5f}};
    delta.scores.push_back(std::move(row));
  }
  backend.send(i, std::move(delta));
  for (std::int32_t branch = 0; branch < num_branches; ++branch) {
    backend.send(i, "a\xF0\x9F", std::nullopt, branch);
    backend.send(i, "b", engine::Finish{.reason = engine::FinishReason::length}, branch);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr const char* kRoutes[] = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"};
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);

  static metrics::ServerMetrics metrics("m");
  FakeTasks tasks;
  FakeBackend backend;
  Api api({.model_names = {"m"},
           .unix_time = [] { return 0; },
           .num_connections = [] { return 0; },
           .random = [] { return std::uint64_t{1} << 40; }},
          tasks, metrics);
  api.set_backend(&backend);
  auto exchange = std::make_shared<FakeExchange>();
  api.handle(make_post(kRoutes[data[0] % 4], body), exchange);
  tasks.run();
  for (std::size_t i = 0; i < backend.submissions.size(); ++i) {
    check_request(backend.submissions[i].request, backend.facts_);
    answer(backend, i);
  }
  tasks.run();

  QUIRE_CHECK(exchange->ended && api.num_calls() == 0);
  if (exchange->streaming) {
    QUIRE_CHECK(exchange->sent.ends_with("data: [DONE]\n\n"));
  } else {
    const auto parsed = json::parse(exchange->response.body);
    QUIRE_CHECK(parsed.ok());
    QUIRE_CHECK(exchange->response.status == 200 || parsed->find("error") != nullptr);
  }
  return 0;
}
