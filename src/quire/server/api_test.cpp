#include "quire/server/api.h"

#include <gtest/gtest.h>

#include <chrono>

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/server/fakes.h"

namespace quire::server {
namespace {

using engine::Finish;
using engine::FinishReason;

/// An Api over fakes, ready to serve.
struct World {
  World() { api.set_backend(&backend); }

  std::shared_ptr<FakeExchange> send(HttpRequest request) {
    auto exchange = std::make_shared<FakeExchange>();
    api.handle(std::move(request), exchange);
    tasks.run();
    return exchange;
  }
  std::shared_ptr<FakeExchange> post(const std::string& path, std::string body) {
    return send(make_post(path, std::move(body)));
  }
  void reply(std::size_t submission, const std::string& text, std::optional<Finish> finish = std::nullopt) {
    backend.send(submission, text, std::move(finish));
    tasks.run();
  }

  FakeTasks tasks;
  metrics::ServerMetrics metrics{"tiny"};
  FakeBackend backend;
  Api api{{.model_names = {"tiny", "other-name"},
           .unix_time = [] { return 1'700'000'000; },
           .num_connections = [] { return 0; },
           .random = [] { return std::uint64_t{0xABCDEF0123456789}; }},
          tasks,
          metrics};
};

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

json::Value parsed(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *std::move(value) : json::Value();
}

std::string chat_body(const std::string& more = "") {
  return cat(R"({"messages":[{"role":"user","content":"Hi"}])", more.empty() ? "" : ",", more, "}");
}

std::string completion_body(const std::string& more = "") {
  return cat(R"({"prompt":"Hi")", more.empty() ? "" : ",", more, "}");
}

const json::Value& error_of(const json::Value& body) {
  static const json::Value kNone;
  const json::Value* error = body.find("error");
  EXPECT_NE(error, nullptr);
  return error ? *error : kNone;
}

void expect_error(const FakeExchange& exchange, int status, const std::string& param) {
  EXPECT_EQ(exchange.response.status, status) << exchange.response.body;
  const json::Value body = parsed(exchange.response.body);
  const json::Value& error = error_of(body);
  ASSERT_NE(error.find("message"), nullptr);
  EXPECT_FALSE(error.find("message")->as_string().empty());
  ASSERT_NE(error.find("type"), nullptr);
  ASSERT_NE(error.find("code"), nullptr);
  ASSERT_NE(error.find("param"), nullptr);
  if (param.empty()) {
    EXPECT_TRUE(error.find("param")->is_null()) << exchange.response.body;
  } else {
    EXPECT_EQ(*error.find("param"), json::Value(param)) << exchange.response.body;
  }
}

// ---- refusals, as a table ----

struct BadField {
  const char* fields;  ///< after the prompt or the messages
  const char* param;
};

class BadFields : public testing::TestWithParam<BadField> {};

TEST_P(BadFields, AreRefusedByNameBeforeAnyWork) {
  for (const char* path : {kChat, kCompletions}) {
    World world;
    const std::string fields = GetParam().fields;
    auto exchange = world.post(path, path == kChat ? chat_body(fields) : completion_body(fields));
    expect_error(*exchange, 400, GetParam().param);
    EXPECT_TRUE(world.backend.submissions.empty()) << fields;
    EXPECT_EQ(world.api.num_calls(), 0u);
  }
}

const BadField kBadFields[] = {
    {R"("n":1000000)", "n"},
    {R"("n":0)", "n"},
    {R"("n":-1)", "n"},
    {R"("n":1.5)", "n"},
    {R"("n":"2")", "n"},
    {R"("n":true)", "n"},
    {R"("n":2)", "n"},
    {R"("best_of":10000,"logprobs":null)", "best_of"},
    {R"("max_tokens":9223372036854775808)", "max_tokens"},
    {R"("max_tokens":-5)", "max_tokens"},
    {R"("max_tokens":1e308)", "max_tokens"},
    {R"("max_tokens":0)", "max_tokens"},
    {R"("max_tokens":2147483648)", "max_tokens"},
    {R"("max_tokens":"7")", "max_tokens"},
    {R"("max_tokens":5,"max_completion_tokens":6)", "max_completion_tokens"},
    {R"("temperature":-1)", "temperature"},
    {R"("temperature":"hot")", "temperature"},
    {R"("temperature":1e300)", "temperature"},
    {R"("temperature":true)", "temperature"},
    {R"("top_p":0)", "top_p"},
    {R"("top_p":1.1)", "top_p"},
    {R"("top_k":-7)", "top_k"},
    {R"("top_k":-2)", "top_k"},
    {R"("top_k":0.5)", "top_k"},
    {R"("min_p":2)", "min_p"},
    {R"("presence_penalty":1e9)", "presence_penalty"},
    {R"("frequency_penalty":-2.5)", "frequency_penalty"},
    {R"("repetition_penalty":0)", "repetition_penalty"},
    {R"("repetition_penalty":1e9)", "repetition_penalty"},
    {R"("seed":1e30)", "seed"},
    {R"("seed":-2)", "seed"},
    {R"("seed":9223372036854775808)", "seed"},
    {R"("logprobs":-1)", "logprobs"},
    {R"("logit_bias":{"-1":1})", "logit_bias"},
    {R"("logit_bias":{"259":1})", "logit_bias"},
    {R"("logit_bias":{"abc":1})", "logit_bias"},
    {R"("logit_bias":{"7":1e30})", "logit_bias.7"},
    {R"("logit_bias":{"7":1,"07":2})", "logit_bias"},
    {R"("logit_bias":[1])", "logit_bias"},
    {R"("stop":"")", "stop"},
    {R"("stop":[""])", "stop[0]"},
    {R"("stop":["ok",7])", "stop[1]"},
    {R"("stop":"a\u0000b")", "stop"},
    {R"("stop":{"a":1})", "stop"},
    {R"("stop_token_ids":[1000000000],"min_tokens":5)", "stop_token_ids[0]"},
    {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("min_tokens":9,"max_tokens":5)", "min_tokens"},
    {R"("stream":1)", "stream"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
    {R"("ignore_eos":"yes")", "ignore_eos"},
    {R"("model":7)", "model"},
    {R"("tools":[{"type":"function"}])", "tools"},
    {R"("tool_choice":"required")", "tool_choice"},
    {R"("tool_choice":{"type":"function"})", "tool_choice"},
    {R"("response_format":{"type":"json_object"})", "response_format"},
    {R"("response_format":"json")", "response_format"},
    {R"("functions":[{}])", "functions"},
    {R"("function_call":"auto")", "function_call"},
    {R"("audio":{"voice":"x"})", "audio"},
    {R"("modalities":["text","audio"])", "modalities"},
    {R"("suffix":"end")", "suffix"},
    {R"("grammar":"root ::= x")", "grammar"},
    {R"("guided_json":{"type":"object"})", "guided_json"},
    {R"("use_beam_search":true)", "use_beam_search"},
    {R"("prompt_logprobs":1)", "prompt_logprobs"},
    {R"("chat_template":"{{ x }}")", "chat_template"},
    {R"("skip_special_tokens":false)", "skip_special_tokens"},
    {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
};

INSTANTIATE_TEST_SUITE_P(Api, BadFields, testing::ValuesIn(kBadFields));

TEST(Api, FieldsThatAskForNothingAreTaken) {
  for (const char* path : {kChat, kCompletions}) {
    World world;
    const std::string fields =
        R"("n":1,"best_of":null,"tools":[],"tool_choice":"none","response_format":{"type":"text"},"suffix":null,)"
        R"("functions":null,"function_call":"none","typical_p":1.0,"mirostat":0,"top_k":-1,"user":"me","store":false,)"
        R"("metadata":{"a":"b"},"stop":null,"stop_token_ids":[],"logit_bias":{},"seed":null,"modalities":["text"])";
    world.post(path, path == kChat ? chat_body(fields) : completion_body(fields));
    ASSERT_EQ(world.backend.submissions.size(), 1u);
    EXPECT_EQ(world.backend.submissions[0].request.sampling.top_k, 0);
    EXPECT_EQ(world.metrics.text({}).find("quire_unknown_request_fields_total{"), std::string::npos);
  }
}

TEST(Api, UnknownFieldsAreIgnoredAndCounted) {
  World world;
  world.post(kCompletions, completion_body(R"("frobnicate":1,"stream":true,"stream_options":{"sugar":2})"));
  EXPECT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_NE(world.metrics.text({}).find("quire_unknown_request_fields_total{route=\"/v1/completions\"} 2"),
            std::string::npos);
}

struct BadBody {
  const char* path;
  std::string body;
  const char* param;
};

TEST(Api, BodiesThatAreNoRequestAreRefused) {
  const std::string deep(1'000'000, '[');
  const std::vector<BadBody> bodies = {
      {kChat, "", ""},
      {kChat, "[]", ""},
      {kChat, "123", ""},
      {kChat, "\"x\"", ""},
      {kChat, "null", ""},
      {kChat, "true", ""},
      {kChat, "{", ""},
      {kChat, deep, ""},
      {kCompletions, R"({"n":1,"n":1000000,"prompt":"x"})", ""},
      {kCompletions, "{\"prompt\":\"\xC3\x28\"}", ""},
      {kCompletions, "{\"prompt\":\"\xC0\xAF\"}", ""},
      {kCompletions, R"({"prompt":"\ud800"})", ""},
      {kCompletions, "\xEF\xBB\xBF{\"prompt\":\"x\"}", ""},
      {kCompletions, R"({"prompt":"x"} x)", ""},
      {kCompletions, R"({"prompt":"x","temperature":NaN})", ""},
      {kCompletions, R"({"prompt":"x","temperature":Infinity})", ""},
      {kCompletions, R"({"prompt":"x","temperature":1e999})", ""},
      {kCompletions, R"({"prompt":""})", "prompt"},
      {kCompletions, R"({"prompt":[""]})", "prompt[0]"},
      {kCompletions, R"({"prompt":[]})", "prompt"},
      {kCompletions, R"({"prompt":[[]]})", "prompt[0]"},
      {kCompletions, R"({"prompt":null})", "prompt"},
      {kCompletions, R"({"prompt":{"a":1}})", "prompt"},
      {kCompletions, R"({})", "prompt"},
      {kCompletions, R"({"prompt":[-1]})", "prompt[0]"},
      {kCompletions, R"({"prompt":[[-1]]})", "prompt[0][0]"},
      {kCompletions, R"({"prompt":[259]})", "prompt[0]"},
      {kCompletions, R"({"prompt":[4294967296]})", "prompt[0]"},
      {kCompletions, R"({"prompt":[9223372036854775808]})", "prompt[0]"},
      {kCompletions, R"({"prompt":[1,1.5]})", "prompt[1]"},
      {kCompletions, R"({"prompt":[1,"a"]})", "prompt[1]"},
      {kCompletions, R"({"prompt":["a",1]})", "prompt[1]"},
      {kCompletions, R"({"prompt":"x","logprobs":21})", "logprobs"},
      {kCompletions, R"({"prompt":"x","logprobs":true})", "logprobs"},
      {kCompletions, R"({"prompt":"x","echo":1})", "echo"},
      {kChat, R"({})", "messages"},
      {kChat, R"({"messages":[]})", "messages"},
      {kChat, R"({"messages":"hi"})", "messages"},
      {kChat, R"({"messages":["hi"]})", "messages[0]"},
      {kChat, R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {kChat, R"({"messages":[{"role":"root","content":"x"}]})", "messages[0].role"},
      {kChat, R"({"messages":[{"role":"tool","content":"x"}]})", "messages[0].role"},
      {kChat, R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {kChat, R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {kChat, R"({"messages":[{"role":"assistant","content":null,"tool_calls":[]}]})", "messages[0].content"},
      {kChat, R"({"messages":[{"role":"assistant","content":"x","tool_calls":[{"id":"1"}]}]})",
       "messages[0].tool_calls"},
      {kChat, R"({"messages":[{"role":"user","content":7}]})", "messages[0].content"},
      {kChat, R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]"},
      {kChat, R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {kChat, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///x"}}]}]})",
       "messages[0].content[0].type"},
      {kChat, R"({"messages":[{"role":"user","name":"raise","content":"x"}]})", "messages"},
      {kChat, chat_body(R"("logprobs":1)"), "logprobs"},
      {kChat, chat_body(R"("top_logprobs":3)"), "top_logprobs"},
      {kChat, chat_body(R"("logprobs":true,"top_logprobs":1000000000)"), "top_logprobs"},
      {kChat, chat_body(R"("echo":true)"), "echo"},
      {"/tokenize", R"({})", "prompt"},
      {"/tokenize", R"({"messages":[]})", "messages"},
      {"/tokenize", R"({"prompt":7})", "prompt"},
      {"/detokenize", R"({"tokens":[-1]})", "tokens[0]"},
      {"/detokenize", R"({"tokens":[1000000000]})", "tokens[0]"},
      {"/detokenize", R"({})", "tokens"},
  };
  for (const BadBody& bad : bodies) {
    World world;
    SCOPED_TRACE(bad.body.substr(0, 100));
    expect_error(*world.post(bad.path, bad.body), 400, bad.param);
    EXPECT_TRUE(world.backend.submissions.empty());
  }
}

TEST(Api, ListsBeyondTheirLimitsAreRefused) {
  std::string stops, bias, prompts, messages;
  for (int i = 0; i < 500'000; ++i) stops += "\"s\",";
  for (int i = 0; i < 2000; ++i) bias += cat("\"", i, "\":1,");
  for (int i = 0; i < 129; ++i) prompts += "\"p\",";
  for (int i = 0; i < 4097; ++i) messages += R"({"role":"user","content":"x"},)";
  for (std::string* list : {&stops, &bias, &prompts, &messages}) list->pop_back();
  World world;
  expect_error(*world.post(kChat, chat_body(cat("\"stop\":[", stops, "]"))), 400, "stop");
  expect_error(*world.post(kChat, chat_body(cat("\"stop\":\"", std::string(1 << 20, 'x'), "\""))), 400, "stop");
  expect_error(*world.post(kChat, chat_body(cat("\"logit_bias\":{", bias, "}"))), 400, "logit_bias");
  expect_error(*world.post(kCompletions, cat("{\"prompt\":[", prompts, "]}")), 400, "prompt");
  expect_error(*world.post(kChat, cat("{\"messages\":[", messages, "]}")), 400, "messages");
}

TEST(Api, LimitsThemselvesAreAllowed) {
  std::string stops, prompts;
  for (int i = 0; i < 16; ++i) stops += cat("\"", std::string(255, 'x'), static_cast<char>('a' + i), "\",");
  for (int i = 0; i < 128; ++i) prompts += "\"p\",";
  stops.pop_back();
  prompts.pop_back();
  World world;
  world.post(kChat, chat_body(cat("\"stop\":[", stops, "]")));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.submissions[0].request.stop.size(), 16u);
  world.post(kCompletions, cat("{\"prompt\":[", prompts, "]}"));
  EXPECT_EQ(world.backend.submissions.size(), 129u);
}

// ---- what reaches the engine ----

TEST(Api, SamplingFieldsReachTheEngineUnchanged) {
  World world;
  world.post(kCompletions,
             completion_body(R"("max_tokens":9,"min_tokens":2,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,)"
                             R"("presence_penalty":0.25,"frequency_penalty":-0.5,"repeat_penalty":1.25,"seed":77,)"
                             R"("logit_bias":{"65":-100,"66":2.5},"stop":["a","b"],"stop_token_ids":[10],)"
                             R"("ignore_eos":true,"logprobs":3)"));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  const engine::GenerateRequest& request = world.backend.submissions[0].request;
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.min_p, 0.05);
  EXPECT_EQ(request.sampling.presence_penalty, 0.25);
  EXPECT_EQ(request.sampling.frequency_penalty, -0.5);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25);
  EXPECT_EQ(request.sampling.seed, 77u);
  ASSERT_EQ(request.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(request.sampling.logit_bias[1].token, TokenId{66});
  EXPECT_EQ(request.sampling.logit_bias[1].bias, 2.5f);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stop_tokens, std::vector<TokenId>{TokenId{10}});
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.top_logprobs, 3);
  EXPECT_FALSE(request.scoring);
}

TEST(Api, MaxTokensIsSixteenInCompletionsAndOpenInChat) {
  World world;
  world.post(kCompletions, completion_body());
  world.post(kChat, chat_body());
  world.post(kChat, chat_body(R"("max_completion_tokens":5)"));
  world.post(kChat, chat_body(R"("n_predict":-1)"));
  ASSERT_EQ(world.backend.submissions.size(), 4u);
  EXPECT_EQ(world.backend.submissions[0].request.max_tokens, 16);
  EXPECT_EQ(world.backend.submissions[1].request.max_tokens, std::nullopt);
  EXPECT_EQ(world.backend.submissions[2].request.max_tokens, 5);
  EXPECT_EQ(world.backend.submissions[3].request.max_tokens, std::nullopt);
}

TEST(Api, BosIsAddedOnceAndNeverToTokenIds) {
  World world;
  world.post(kCompletions, R"({"prompt":"A"})");
  world.post(kCompletions, R"({"prompt":[65]})");
  world.post(kCompletions, R"({"prompt":[256,65]})");
  world.post(kCompletions, R"({"prompt":"A","add_special_tokens":false})");
  const TokenId a{65};
  EXPECT_EQ(world.backend.submissions[0].request.prompt, (std::vector{FakeBackend::kBos, a}));
  EXPECT_EQ(world.backend.submissions[1].request.prompt, std::vector{a});
  EXPECT_EQ(world.backend.submissions[2].request.prompt, (std::vector{FakeBackend::kBos, a}));
  EXPECT_EQ(world.backend.submissions[3].request.prompt, std::vector{a});
}

TEST(Api, ControlTokensInRawCompletionsAreParsedUnlessToldOtherwise) {
  World world;
  world.post(kCompletions, R"({"prompt":"<|im_start|>"})");
  world.post(kCompletions, R"({"prompt":"<|im_start|>","parse_special":false})");
  EXPECT_EQ(world.backend.submissions[0].request.prompt, (std::vector{FakeBackend::kBos, FakeBackend::kStart}));
  EXPECT_EQ(world.backend.submissions[1].request.prompt.size(), 13u);
}

TEST(Api, ContentPartsAreJoinedAndDeveloperIsSystem) {
  World world;
  world.post(kChat,
             R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],)"
             R"("add_generation_prompt":false})");
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.decode(world.backend.submissions[0].request.prompt, ControlTokens::show),
            "<s><|im_start|>system:a\nb<|im_end|>");
}

TEST(Api, TheTemplatesOwnWordsReachTheClient) {
  World world;
  auto exchange = world.post(kChat, R"({"messages":[{"role":"user","name":"raise","content":"x"}]})");
  EXPECT_NE(exchange->response.body.find("roles must alternate"), std::string::npos);
}

TEST(Api, AModelWithoutTemplateRefusesChatWithAdvice) {
  World world;
  world.backend.facts_.has_chat_template = false;
  auto exchange = world.post(kChat, chat_body());
  expect_error(*exchange, 400, "messages");
  EXPECT_NE(exchange->response.body.find("/v1/completions"), std::string::npos);
}

TEST(Api, PromptsAreTakenUpToOneTokenBelowTheContext) {
  World world;  // a context of 100; one BOS is added
  const auto body = [](std::size_t bytes) { return cat("{\"prompt\":\"", std::string(bytes, 'x'), "\"}"); };
  world.post(kCompletions, body(98));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.submissions[0].request.prompt.size(), 99u);
  EXPECT_EQ(world.backend.submissions[0].request.max_tokens, 1) << "the default gives way to the context";
  for (std::size_t bytes : {99u, 100u, 101u, 8'000'000u}) {
    auto exchange = world.post(kCompletions, body(bytes));
    expect_error(*exchange, 400, "prompt");
    const std::string& message = exchange->response.body;
    EXPECT_NE(message.find("context_length_exceeded"), std::string::npos);
    EXPECT_NE(message.find("100 tokens"), std::string::npos) << message;
    if (bytes < 1000) {
      EXPECT_NE(message.find(cat(bytes + 1, " tokens")), std::string::npos) << message;
    }
  }
  expect_error(*world.post(kChat, cat(R"({"messages":[{"role":"user","content":")", std::string(100, 'x'), "\"}]}")),
               400, "messages");
}

TEST(Api, APromptBeyondTheKvCacheIsRefusedWithItsSize) {
  World world;
  world.backend.facts_.kv_tokens = 50;
  auto exchange = world.post(kCompletions, cat("{\"prompt\":\"", std::string(60, 'x'), "\"}"));
  expect_error(*exchange, 400, "prompt");
  EXPECT_NE(exchange->response.body.find("KV cache holds 50 tokens"), std::string::npos);
}

TEST(Api, TheEnginesRefusalsBecomeTheRightStatus) {
  World world;
  world.backend.refusal = engine::Refusal{engine::Refusal::Kind::invalid, "too long: 5 and 4", "prompt"};
  auto invalid = world.post(kChat, chat_body());
  expect_error(*invalid, 400, "messages");
  EXPECT_NE(invalid->response.body.find("context_length_exceeded"), std::string::npos);
  world.backend.refusal->kind = engine::Refusal::Kind::overloaded;
  auto full = world.post(kChat, chat_body());
  expect_error(*full, 503, "");
  EXPECT_EQ(full->response.headers.at(0).first, "Retry-After");
  world.backend.refusal->kind = engine::Refusal::Kind::stopping;
  expect_error(*world.post(kChat, chat_body()), 503, "");
  EXPECT_EQ(world.api.num_calls(), 0u);
}

TEST(Api, ARefusedPromptTakesItsSiblingsWithIt) {
  World world;
  world.backend.refusal = engine::Refusal{engine::Refusal::Kind::overloaded, "full", ""};
  world.backend.refuse_from = 2;
  expect_error(*world.post(kCompletions, R"({"prompt":["a","b","c"]})"), 503, "");
  EXPECT_TRUE(world.backend.submissions[0].cancelled);
  EXPECT_TRUE(world.backend.submissions[1].cancelled);
}

TEST(Api, AFullQueueIsRefusedBeforeTheBodyIsRead) {
  World world;
  world.backend.stats_.waiting = 10;
  auto exchange = world.post(kChat, "not even JSON");
  expect_error(*exchange, 503, "");
  EXPECT_NE(exchange->response.body.find("queue_full"), std::string::npos);
  EXPECT_EQ(world.post("/tokenize", R"({"prompt":"a"})")->response.status, 200);
}

// ---- answers ----

TEST(Api, AChatAnswerHasOpenAisShape) {
  World world;
  auto exchange = world.post(kChat, chat_body(R"("seed":5)"));
  EXPECT_FALSE(exchange->ended);
  world.reply(0, "Hel");
  world.reply(0, "lo\n", Finish{.reason = FinishReason::stop, .stop_string = "END"});
  ASSERT_TRUE(exchange->ended);
  EXPECT_EQ(exchange->response.status, 200);
  EXPECT_EQ(exchange->response.body,
            R"({"id":"chatcmpl-9876543210fe-2","object":"chat.completion","created":1700000000,"model":"tiny",)"
            R"("seed":5,"choices":[{"index":0,"message":{"role":"assistant","content":"Hello\n","refusal":null},)"
            R"("logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"usage":{"prompt_tokens":11,)"
            R"("completion_tokens":6,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":0}}})");
  EXPECT_EQ(world.api.num_calls(), 0u);
  EXPECT_FALSE(world.backend.submissions[0].cancelled) << "an ended request needs no cancel";
}

TEST(Api, AChatStreamIsRightByteForByte) {
  World world;
  auto exchange = world.post(kChat, chat_body(R"("seed":5,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_TRUE(exchange->streaming);
  EXPECT_EQ(exchange->response.content_type, "text/event-stream; charset=utf-8");
  world.reply(0, "He");
  world.reply(0, "\xC3\xA9", Finish{.reason = FinishReason::length});
  const std::string head =
      R"(data: {"id":"chatcmpl-9876543210fe-2","object":"chat.completion.chunk","created":1700000000,)"
      R"("model":"tiny","seed":5,)";
  EXPECT_EQ(
      exchange->sent,
      head +
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],)"
          "\"usage\":null}\n\n" +
          head +
          R"("choices":[{"index":0,"delta":{"content":"He"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          head +
          R"("choices":[{"index":0,"delta":{"content":"é"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          head +
          R"("choices":[{"index":0,"delta":{},"logprobs":null,"stop_reason":null,"finish_reason":"length"}],)"
          "\"usage\":null}\n\n" +
          head +
          R"("choices":[],"usage":{"prompt_tokens":11,"completion_tokens":4,"total_tokens":15,)"
          R"("prompt_tokens_details":{"cached_tokens":0}}})"
          "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(exchange->ended);
}

TEST(Api, AStreamWithoutUsageHasNoUsageAnywhere) {
  World world;
  auto exchange = world.post(kCompletions, completion_body(R"("stream":true)"));
  world.reply(0, "x", Finish{});
  EXPECT_EQ(exchange->sent.find("usage"), std::string::npos);
  EXPECT_TRUE(exchange->sent.ends_with("data: [DONE]\n\n"));
}

TEST(Api, ACompletionStreamIsRightByteForByte) {
  World world;
  auto exchange = world.post(kCompletions, completion_body(R"("stream":true,"seed":1,"logprobs":0)"));
  world.reply(0, "a", Finish{.reason = FinishReason::stop, .stop_token = TokenId{10}});
  const std::string head =
      R"(data: {"id":"cmpl-9876543210fe-2","object":"text_completion","created":1700000000,"model":"tiny","seed":1,)";
  EXPECT_EQ(exchange->sent,
            head +
                R"("choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-0.5],)"
                R"("top_logprobs":[{"a":-0.5}],"text_offset":[0]},"finish_reason":null}]})"
                "\n\n" +
                head +
                R"("choices":[{"index":0,"text":"","logprobs":null,"stop_reason":10,"finish_reason":"stop"}]})"
                "\n\ndata: [DONE]\n\n");
}

TEST(Api, ChatLogprobsCarryBytesAndAFloor) {
  World world;
  auto exchange = world.post(kChat, chat_body(R"("logprobs":true,"top_logprobs":2)"));
  engine::Delta delta;
  delta.tokens = {{.token = TokenId{0xE2},
                   .logprob = -0.25f,
                   .top = {{TokenId{0xE2}, -0.25f}, {TokenId{65}, -std::numeric_limits<float>::infinity()}}}};
  delta.finish = Finish{.reason = FinishReason::length};
  world.backend.send(0, std::move(delta));
  world.tasks.run();
  EXPECT_NE(
      exchange->response.body.find(
          R"("logprobs":{"content":[{"token":"bytes:\\xe2","logprob":-0.25,"bytes":[226],"top_logprobs":)"
          R"([{"token":"bytes:\\xe2","logprob":-0.25,"bytes":[226]},{"token":"A","logprob":-9999,"bytes":[65]}]}],)"
          R"("refusal":null})"),
      std::string::npos)
      << exchange->response.body;
}

engine::Delta prompt_scores(std::size_t size) {
  engine::Delta delta;
  for (std::size_t p = 0; p < size; ++p) {
    engine::ScoreRow row{.position = static_cast<std::int32_t>(p)};
    if (p + 1 < size) row.next_logprob = -1.0f - static_cast<float>(p);
    row.top = {{TokenId{90}, -0.125f}};
    delta.scores.push_back(std::move(row));
  }
  return delta;
}

TEST(Api, EchoWithLogprobsTellsOfThePrompt) {
  World world;
  auto exchange = world.post(kCompletions, R"({"prompt":"ab","echo":true,"logprobs":1,"max_tokens":1})");
  ASSERT_TRUE(world.backend.submissions[0].request.scoring);
  EXPECT_EQ(world.backend.submissions[0].request.scoring->from, 0);
  EXPECT_EQ(world.backend.submissions[0].request.scoring->top, 1);
  world.backend.send(0, prompt_scores(3));
  world.reply(0, "c", Finish{.reason = FinishReason::length});
  EXPECT_NE(exchange->response.body.find(
                R"("text":"abc","logprobs":{"tokens":["<s>","a","b","c"],"token_logprobs":[null,-1,-2,-0.5],)"
                R"("top_logprobs":[null,{"Z":-0.125,"a":-1},{"Z":-0.125,"b":-2},{"c":-0.5}],"text_offset":[0,0,1,2]})"),
            std::string::npos)
      << exchange->response.body;
}

TEST(Api, EchoWithNothingGeneratedGivesThePrompt) {
  World world;
  auto exchange = world.post(kCompletions, R"({"prompt":"ab","echo":true,"max_tokens":0})");
  EXPECT_EQ(world.backend.submissions[0].request.max_tokens, 0);
  world.reply(0, "", Finish{.reason = FinishReason::length});
  EXPECT_NE(exchange->response.body.find(R"("text":"ab")"), std::string::npos);
  EXPECT_NE(exchange->response.body.find(R"("completion_tokens":0)"), std::string::npos);
  EXPECT_NE(exchange->response.body.find(R"("finish_reason":"length")"), std::string::npos);
}

TEST(Api, AStreamedEchoSendsThePromptFirst) {
  World world;
  auto exchange = world.post(kCompletions, R"({"prompt":"ab","echo":true,"logprobs":1,"stream":true})");
  world.backend.send(0, prompt_scores(3));
  world.tasks.run();
  EXPECT_EQ(exchange->sent, "");
  world.reply(0, "c", Finish{});
  const std::size_t prompt = exchange->sent.find(R"("text":"ab")"), text = exchange->sent.find(R"("text":"c")");
  ASSERT_NE(prompt, std::string::npos);
  ASSERT_NE(text, std::string::npos);
  EXPECT_LT(prompt, text);
  EXPECT_NE(exchange->sent.find(R"("text_offset":[2])"), std::string::npos) << "offsets go on behind the prompt";
}

TEST(Api, EqualTokenTextsInTopLogprobsAreNotLost) {
  World world;
  auto exchange = world.post(kCompletions, completion_body(R"("logprobs":2)"));
  engine::Delta delta;
  delta.tokens = {{.token = TokenId{97}, .logprob = -1, .top = {{TokenId{97}, -1}, {TokenId{97}, -2}}}};
  delta.finish = Finish{};
  world.backend.send(0, std::move(delta));
  world.tasks.run();
  EXPECT_NE(exchange->response.body.find(R"({"a":-1,"token_id:97":-2})"), std::string::npos);
}

TEST(Api, SeveralPromptsBecomeChoicesInTheirOrder) {
  World world;
  auto exchange = world.post(kCompletions, R"({"prompt":[[65],[66,67]],"return_token_ids":true})");
  ASSERT_EQ(world.backend.submissions.size(), 2u);
  const std::uint64_t seed = world.backend.submissions[0].request.sampling.seed;
  EXPECT_EQ(world.backend.submissions[1].request.sampling.seed, seed + 1)
      << "a drawn seed differs from prompt to prompt";
  world.reply(1, "y", Finish{});
  EXPECT_FALSE(exchange->ended);
  world.reply(0, "x", Finish{});
  ASSERT_TRUE(exchange->ended);
  const json::Value body = parsed(exchange->response.body);
  EXPECT_EQ(*body.find("seed"), json::Value(seed));
  const json::Array& choices = body.find("choices")->as_array();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(*choices[0].find("text"), json::Value("x"));
  EXPECT_EQ(*choices[1].find("text"), json::Value("y"));
  EXPECT_EQ(*choices[1].find("prompt_token_ids"), json::Value(json::Array{66, 67}));
  EXPECT_EQ(*choices[1].find("token_ids"), json::Value(json::Array{'y'}));
  EXPECT_EQ(*body.find("usage")->find("prompt_tokens"), json::Value(3));
}

TEST(Api, AFailureAfterTheStartComesAsAnEventAndDone) {
  World world;
  auto exchange = world.post(kChat, chat_body(R"("stream":true)"));
  world.reply(0, "x");
  world.reply(0, "", Finish{.reason = FinishReason::failed, .message = "not finite"});
  EXPECT_TRUE(
      exchange->sent.ends_with("data: {\"error\":{\"message\":\"not finite\",\"type\":\"server_error\","
                               "\"param\":null,\"code\":\"generation_failed\"}}\n\ndata: [DONE]\n\n"));
  EXPECT_TRUE(exchange->ended);
  auto whole = world.post(kChat, chat_body());
  world.reply(1, "", Finish{.reason = FinishReason::failed, .message = "not finite"});
  expect_error(*whole, 500, "");
}

// ---- lifetimes ----

TEST(Api, AGoneClientsRequestsAreCancelledAtOnce) {
  World world;
  auto exchange = world.post(kCompletions, R"({"prompt":["a","b"],"stream":true})");
  world.reply(0, "x", Finish{});
  exchange->vanish();
  EXPECT_FALSE(world.backend.submissions[0].cancelled) << "it has ended";
  EXPECT_TRUE(world.backend.submissions[1].cancelled);
  EXPECT_EQ(world.api.num_calls(), 0u);
  world.reply(1, "late", Finish{.reason = FinishReason::cancelled});
}

TEST(Api, AClientGoneDuringTokenisingIsNeverSubmitted) {
  World world;
  auto exchange = std::make_shared<FakeExchange>();
  world.api.handle(make_post(kChat, chat_body()), exchange);
  exchange->vanish();
  world.tasks.run();
  EXPECT_TRUE(world.backend.submissions.empty());
  EXPECT_EQ(world.api.num_calls(), 0u);
}

TEST(Api, DeltasOfOneStepWakeTheIoThreadOnce) {
  World world;
  for (int i = 0; i < 3; ++i) world.post(kChat, chat_body(R"("stream":true)"));
  for (std::size_t i = 0; i < 3; ++i) world.backend.send(i, "x");
  EXPECT_EQ(world.tasks.tasks.size(), 1u);
}

TEST(Api, DeltasAfterTheApiIsGoneAreHarmless) {
  FakeBackend backend;
  FakeTasks tasks;
  metrics::ServerMetrics metrics("m");
  auto exchange = std::make_shared<FakeExchange>();
  {
    Api api({.model_names = {"m"},
             .unix_time = [] { return 0; },
             .num_connections = [] { return 0; },
             .random = [] { return std::uint64_t{1}; }},
            tasks, metrics);
    api.set_backend(&backend);
    api.handle(make_post(kChat, chat_body()), exchange);
    tasks.run();
  }
  backend.send(0, "x", Finish{});
  EXPECT_TRUE(tasks.tasks.empty());
  EXPECT_FALSE(exchange->ended);
}

TEST(Api, LoadingAndDrainingAreNotReady) {
  World world;
  EXPECT_EQ(world.send(make_get("/ready"))->response.status, 200);
  auto running = world.post(kChat, chat_body());
  world.api.begin_drain();
  EXPECT_EQ(world.send(make_get("/health"))->response.status, 200);
  expect_error(*world.send(make_get("/ready")), 503, "");
  expect_error(*world.post(kChat, chat_body()), 503, "");
  world.reply(0, "done", Finish{});
  EXPECT_EQ(running->response.status, 200) << "what runs may end";

  FakeTasks tasks;
  metrics::ServerMetrics metrics("m");
  Api loading({.model_names = {"m"},
               .unix_time = [] { return 0; },
               .num_connections = [] { return 0; },
               .random = [] { return std::uint64_t{1}; }},
              tasks, metrics);
  for (const char* path : {"/ready", "/v1/models", "/v1/models/m"}) {
    auto exchange = std::make_shared<FakeExchange>();
    loading.handle(make_get(path), exchange);
    expect_error(*exchange, 503, "");
  }
  auto metrics_exchange = std::make_shared<FakeExchange>();
  loading.handle(make_get("/metrics"), metrics_exchange);
  EXPECT_EQ(metrics_exchange->response.status, 200);
}

TEST(Api, TheEndOfTheGracePeriodEndsEveryCall) {
  World world;
  auto stream = world.post(kChat, chat_body(R"("stream":true)"));
  auto whole = world.post(kChat, chat_body());
  world.reply(0, "x");
  world.api.end_all();
  EXPECT_TRUE(stream->ended);
  EXPECT_NE(stream->sent.find("shutting_down"), std::string::npos);
  EXPECT_TRUE(stream->sent.ends_with("data: [DONE]\n\n"));
  expect_error(*whole, 503, "");
  EXPECT_TRUE(world.backend.submissions[0].cancelled);
  EXPECT_TRUE(world.backend.submissions[1].cancelled);
}

// ---- routes and headers ----

TEST(Api, PathsAreMatchedAsSent) {
  World world;
  for (const char* path : {"//v1/chat/completions", "/v1/../metrics", "/%6detrics", "/v1/chat/completions/",
                           "/V1/models", "http://localhost/metrics", "", "/", "*", "/v1/models/"}) {
    EXPECT_EQ(world.send(make_get(path))->response.status, 404) << path;
  }
}

TEST(Api, OtherMethodsAreNamed) {
  World world;
  for (const char* method : {"TRACE", "PUT", "DELETE", "OPTIONS", "CONNECT", "FROB"}) {
    HttpRequest request = make_get("/v1/models");
    request.method = method;
    auto exchange = world.send(std::move(request));
    EXPECT_EQ(exchange->response.status, 405) << method;
    EXPECT_EQ(exchange->response.headers.at(0), (std::pair<std::string, std::string>("Allow", "GET, HEAD")));
  }
  auto exchange = world.send(make_get(kChat));
  EXPECT_EQ(exchange->response.status, 405);
  EXPECT_EQ(exchange->response.headers.at(0).second, "POST");
}

TEST(Api, PostTakesPlainJsonOnly) {
  World world;
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "application/json+x"}) {
    HttpRequest request = make_post(kChat, chat_body());
    request.headers[1].second = type;
    expect_error(*world.send(std::move(request)), 415, "");
  }
  HttpRequest without = make_post(kChat, chat_body());
  without.headers.pop_back();
  expect_error(*world.send(std::move(without)), 415, "");
  HttpRequest zipped = make_post(kChat, chat_body());
  zipped.headers.emplace_back("content-encoding", "gzip");
  expect_error(*world.send(std::move(zipped)), 415, "");
  HttpRequest charset = make_post(kChat, chat_body());
  charset.headers[1].second = "Application/JSON; charset=utf-8";
  world.send(std::move(charset));
  EXPECT_EQ(world.backend.submissions.size(), 1u);
}

TEST(Api, ForeignHostNamesAreRefusedOnLoopback) {
  World world;
  const auto status = [&](const char* host) {
    HttpRequest request = make_get("/health");
    request.headers[0].second = host;
    return world.send(std::move(request))->response.status;
  };
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(status(host), 403) << host;
  }
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "10.0.0.7", "box.local"}) {
    EXPECT_EQ(status(host), 200) << host;
  }
}

TEST(Api, RequestIdsComeBackIfTheyAreHarmless) {
  World world;
  const auto id_for = [&](const std::string& given) {
    HttpRequest request = make_get("/health");
    if (!given.empty()) request.headers.emplace_back("x-request-id", given);
    const auto exchange = world.send(std::move(request));
    return exchange->response.headers.at(0).second;
  };
  EXPECT_EQ(id_for("abc-1.2_Z"), "abc-1.2_Z");
  EXPECT_EQ(id_for(std::string(128, 'a')), std::string(128, 'a'));
  for (const std::string& bad : {std::string(129, 'a'), std::string("a b"), std::string("a\x1b[31m"), std::string()}) {
    EXPECT_TRUE(id_for(bad).starts_with("req-")) << bad;
  }
  EXPECT_NE(id_for(""), id_for("")) << "own ids are unique";
}

TEST(Api, TwoCallsWithOneRequestIdAreTwoCalls) {
  World world;
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  for (int i = 0; i < 2; ++i) {
    HttpRequest request = make_post(kChat, chat_body());
    request.headers.emplace_back("x-request-id", "same");
    exchanges.push_back(world.send(std::move(request)));
  }
  world.reply(1, "second", Finish{});
  world.reply(0, "first", Finish{});
  EXPECT_NE(exchanges[0]->response.body.find("first"), std::string::npos);
  EXPECT_NE(exchanges[1]->response.body.find("second"), std::string::npos);
}

TEST(Api, ModelsAreListedAndUnknownOnesAreNotFound) {
  World world;
  const json::Value list = parsed(world.send(make_get("/v1/models"))->response.body);
  ASSERT_EQ(list.find("data")->as_array().size(), 2u);
  EXPECT_EQ(*list.find("data")->as_array()[0].find("id"), json::Value("tiny"));
  EXPECT_EQ(*list.find("data")->as_array()[0].find("max_model_len"), json::Value(100));
  EXPECT_EQ(world.send(make_get("/v1/models/other-name"))->response.status, 200);
  expect_error(*world.send(make_get("/v1/models/gpt-9")), 404, "model");
  for (const char* path : {kChat, kCompletions}) {
    const std::string field = R"("model":"gpt-9\u001b[31m")";
    auto exchange = world.post(path, path == kChat ? chat_body(field) : completion_body(field));
    expect_error(*exchange, 404, "model");
    EXPECT_NE(exchange->response.body.find("model_not_found"), std::string::npos);
    EXPECT_EQ(exchange->response.body.find('\x1b'), std::string::npos);
  }
  world.post(kChat, chat_body(R"("model":"other-name")"));
  EXPECT_EQ(world.backend.submissions.size(), 1u);
}

TEST(Api, TokenizeAndDetokenizeAgree) {
  World world;
  EXPECT_EQ(world.post("/tokenize", R"({"prompt":"Hi","return_token_strs":true})")->response.body,
            R"({"count":3,"max_model_len":100,"tokens":[256,72,105],"token_strs":["<s>","H","i"]})");
  EXPECT_EQ(world.post("/tokenize", R"({"content":"Hi"})")->response.body,
            R"({"count":2,"max_model_len":100,"tokens":[72,105]})");
  EXPECT_EQ(world.post("/tokenize", R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})")
                ->response.body,
            R"({"count":9,"max_model_len":100,"tokens":[256,257,117,115,101,114,58,120,258]})");
  EXPECT_EQ(world.post("/detokenize", R"({"tokens":[72,105,255]})")->response.body,
            R"({"prompt":"Hi�","content":"Hi�"})");
  EXPECT_EQ(world.post("/tokenize", cat("{\"prompt\":\"", std::string(500, 'x'), "\"}"))->response.status, 200)
      << "counting goes beyond the context";
}

TEST(Api, MetricsCountByRouteAndStatus) {
  World world;
  world.backend.stats_.running = 3;
  world.send(make_get("/health"));
  world.send(make_get("/nowhere"));
  world.post(kChat, "{}");
  auto exchange = world.send(make_get("/metrics"));
  EXPECT_TRUE(exchange->response.content_type.starts_with("text/plain; version=0.0.4"));
  for (const char* line : {"quire_http_requests_total{route=\"/health\",status=\"200\"} 1\n",
                           "quire_http_requests_total{route=\"other\",status=\"404\"} 1\n",
                           "quire_http_requests_total{route=\"/v1/chat/completions\",status=\"400\"} 1\n",
                           "quire_requests_running{model=\"tiny\"} 3\n"}) {
    EXPECT_NE(exchange->response.body.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace quire::server
