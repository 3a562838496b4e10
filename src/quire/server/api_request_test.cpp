// What requests may say: refusals by name as tables, and what reaches the engine of those that are taken.

#include "quire/server/api_request.h"

#include <gtest/gtest.h>

#include "quire/server/api_world_test.h"

namespace quire::server {
namespace {

// ---- refusals, as a table ----

struct BadField {
  const char* fields;  ///< after the prompt or the messages
  const char* param;
};

class BadFields : public testing::TestWithParam<BadField> {};

TEST_P(BadFields, AreRefusedByNameBeforeAnyWork) {
  for (const char* path : {kChat, kCompletions}) {
    ApiWorld world;
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
    {R"("n":17)", "n"},
    {R"("n":2,"best_of":3)", "best_of"},
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
    {R"("cache_salt":7)", "cache_salt"},
    {R"("priority":"high")", "priority"},
    {R"("priority":1.5)", "priority"},
    {R"("priority":2147483648)", "priority"},
    {R"("priority":-2147483649)", "priority"},
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
    {R"("use_beam_search":1)", "use_beam_search"},
    {R"("use_beam_search":true,"stream":true)", "stream"},
    {R"("use_beam_search":true,"temperature":0.5)", "temperature"},
    {R"("use_beam_search":true,"top_k":5)", "top_k"},
    {R"("use_beam_search":true,"top_p":0.5)", "top_p"},
    {R"("use_beam_search":true,"min_p":0.5)", "min_p"},
    {R"("use_beam_search":true,"presence_penalty":1)", "presence_penalty"},
    {R"("use_beam_search":true,"frequency_penalty":1)", "frequency_penalty"},
    {R"("use_beam_search":true,"repetition_penalty":2)", "repetition_penalty"},
    {R"("use_beam_search":true,"logit_bias":{"5":1})", "logit_bias"},
    {R"("use_beam_search":true,"beam_width":17)", "beam_width"},
    {R"("use_beam_search":true,"n":4,"beam_width":3)", "beam_width"},
    {R"("use_beam_search":true,"n":4,"best_of":3)", "best_of"},
    {R"("use_beam_search":true,"best_of":4,"beam_width":3)", "best_of"},
    {R"("use_beam_search":true,"length_penalty":11)", "length_penalty"},
    {R"("use_beam_search":true,"early_stopping":"always")", "early_stopping"},
    {R"("beam_width":4)", "beam_width"},
    {R"("length_penalty":2)", "length_penalty"},
    {R"("early_stopping":true)", "early_stopping"},
    {R"("prompt_logprobs":1)", "prompt_logprobs"},
    {R"("chat_template":"{{ x }}")", "chat_template"},
    {R"("skip_special_tokens":false)", "skip_special_tokens"},
    {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
};

INSTANTIATE_TEST_SUITE_P(ApiRequest, BadFields, testing::ValuesIn(kBadFields));

TEST(ApiRequest, FieldsThatAskForNothingAreTaken) {
  for (const char* path : {kChat, kCompletions}) {
    ApiWorld world;
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

TEST(ApiRequest, ChoicesAndPromptsTogetherAreLimited) {
  ApiWorld world;
  std::string prompts = "[65]";
  for (int i = 1; i < 8; ++i) prompts += ",[65]";
  world.post(kCompletions, cat("{\"n\":16,\"prompt\":[", prompts, "]}"));
  EXPECT_EQ(world.backend.submissions.size(), 8u);
  const auto refused = world.post(kCompletions, cat("{\"n\":16,\"prompt\":[", prompts, ",[65]]}"));
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_EQ(world.backend.submissions.size(), 8u);
}

TEST(ApiRequest, UnknownFieldsAreIgnoredAndCounted) {
  ApiWorld world;
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

TEST(ApiRequest, BodiesThatAreNoRequestAreRefused) {
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
      {kChat, chat_body(R"("chat_template_kwargs":{"a":1,"tokenize":true})"), "chat_template_kwargs.tokenize"},
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
    ApiWorld world;
    SCOPED_TRACE(bad.body.substr(0, 100));
    expect_error(*world.post(bad.path, bad.body), 400, bad.param);
    EXPECT_TRUE(world.backend.submissions.empty());
  }
}

TEST(ApiRequest, ListsBeyondTheirLimitsAreRefused) {
  std::string stops, bias, prompts, messages;
  for (int i = 0; i < 500'000; ++i) stops += "\"s\",";
  for (int i = 0; i < 2000; ++i) bias += cat("\"", i, "\":1,");
  for (int i = 0; i < 129; ++i) prompts += "\"p\",";
  for (int i = 0; i < 4097; ++i) messages += R"({"role":"user","content":"x"},)";
  for (std::string* list : {&stops, &bias, &prompts, &messages}) list->pop_back();
  ApiWorld world;
  expect_error(*world.post(kChat, chat_body(cat("\"stop\":[", stops, "]"))), 400, "stop");
  expect_error(*world.post(kChat, chat_body(cat("\"stop\":\"", std::string(1 << 20, 'x'), "\""))), 400, "stop");
  expect_error(*world.post(kChat, chat_body(cat("\"logit_bias\":{", bias, "}"))), 400, "logit_bias");
  expect_error(*world.post(kCompletions, cat("{\"prompt\":[", prompts, "]}")), 400, "prompt");
  expect_error(*world.post(kChat, cat("{\"messages\":[", messages, "]}")), 400, "messages");
}

TEST(ApiRequest, LimitsThemselvesAreAllowed) {
  std::string stops, prompts;
  for (int i = 0; i < 16; ++i) stops += cat("\"", std::string(255, 'x'), static_cast<char>('a' + i), "\",");
  for (int i = 0; i < 128; ++i) prompts += "\"p\",";
  stops.pop_back();
  prompts.pop_back();
  ApiWorld world;
  world.post(kChat, chat_body(cat("\"stop\":[", stops, "]")));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.submissions[0].request.stop.size(), 16u);
  world.post(kCompletions, cat("{\"prompt\":[", prompts, "]}"));
  EXPECT_EQ(world.backend.submissions.size(), 129u);
}

// ---- what reaches the engine ----

TEST(ApiRequest, SamplingFieldsReachTheEngineUnchanged) {
  ApiWorld world;
  world.post(kCompletions,
             completion_body(R"("max_tokens":9,"min_tokens":2,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,)"
                             R"("presence_penalty":0.25,"frequency_penalty":-0.5,"repeat_penalty":1.25,"seed":77,)"
                             R"("logit_bias":{"65":-100,"66":2.5},"stop":["a","b"],"stop_token_ids":[10],)"
                             R"("ignore_eos":true,"logprobs":3,"cache_salt":"team","priority":-2147483648)"));
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
  EXPECT_EQ(request.cache_salt, "team");
  EXPECT_EQ(request.priority, INT32_MIN);
  EXPECT_EQ(request.top_logprobs, 3);
  EXPECT_FALSE(request.scoring);
}

TEST(ApiRequest, MaxTokensIsSixteenInCompletionsAndOpenInChat) {
  ApiWorld world;
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

TEST(ApiRequest, BosIsAddedOnceAndNeverToTokenIds) {
  ApiWorld world;
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

TEST(ApiRequest, ControlTokensInRawCompletionsAreParsedUnlessToldOtherwise) {
  ApiWorld world;
  world.post(kCompletions, R"({"prompt":"<|im_start|>"})");
  world.post(kCompletions, R"({"prompt":"<|im_start|>","parse_special":false})");
  EXPECT_EQ(world.backend.submissions[0].request.prompt, (std::vector{FakeBackend::kBos, FakeBackend::kStart}));
  EXPECT_EQ(world.backend.submissions[1].request.prompt.size(), 13u);
}

TEST(ApiRequest, ContentPartsAreJoinedAndDeveloperIsSystem) {
  ApiWorld world;
  world.post(kChat,
             R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],)"
             R"("add_generation_prompt":false})");
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.decode(world.backend.submissions[0].request.prompt, ControlTokens::show),
            "<s><|im_start|>system:a\nb<|im_end|>");
}

TEST(ApiRequest, TheTemplatesOwnWordsReachTheClient) {
  ApiWorld world;
  auto exchange = world.post(kChat, R"({"messages":[{"role":"user","name":"raise","content":"x"}]})");
  EXPECT_NE(exchange->response.body.find("roles must alternate"), std::string::npos);
}

TEST(ApiRequest, AModelWithoutTemplateRefusesChatWithAdvice) {
  ApiWorld world;
  world.backend.facts_.has_chat_template = false;
  auto exchange = world.post(kChat, chat_body());
  expect_error(*exchange, 400, "messages");
  EXPECT_NE(exchange->response.body.find("/v1/completions"), std::string::npos);
}

TEST(ApiRequest, PromptsAreTakenUpToOneTokenBelowTheContext) {
  ApiWorld world;  // a context of 100; one BOS is added
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

TEST(ApiRequest, APromptBeyondTheKvCacheIsRefusedWithItsSize) {
  ApiWorld world;
  world.backend.facts_.kv_tokens = 50;
  auto exchange = world.post(kCompletions, cat("{\"prompt\":\"", std::string(60, 'x'), "\"}"));
  expect_error(*exchange, 400, "prompt");
  EXPECT_NE(exchange->response.body.find("KV cache holds 50 tokens"), std::string::npos);
}

TEST(ApiRequest, TheEnginesRefusalsBecomeTheRightStatus) {
  ApiWorld world;
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

TEST(ApiRequest, AFullQueueIsRefusedBeforeTheBodyIsRead) {
  ApiWorld world;
  world.backend.stats_.waiting = 10;
  auto exchange = world.post(kChat, "not even JSON");
  expect_error(*exchange, 503, "");
  EXPECT_NE(exchange->response.body.find("queue_full"), std::string::npos);
  EXPECT_EQ(world.post("/tokenize", R"({"prompt":"a"})")->response.status, 200);
}

}  // namespace
}  // namespace quire::server
