#include "quire/server/api.h"

#include <gtest/gtest.h>

#include <limits>

#include "quire/server/api_world_test.h"

namespace quire::server {
namespace {

using engine::Finish;
using engine::FinishReason;

// ---- answers ----

TEST(Api, AChatAnswerHasOpenAisShape) {
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
  auto exchange = world.post(kCompletions, completion_body(R"("stream":true)"));
  world.reply(0, "x", Finish{});
  EXPECT_EQ(exchange->sent.find("usage"), std::string::npos);
  EXPECT_TRUE(exchange->sent.ends_with("data: [DONE]\n\n"));
}

TEST(Api, ACompletionStreamIsRightByteForByte) {
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
  auto exchange = world.post(kCompletions, R"({"prompt":"ab","echo":true,"max_tokens":0})");
  EXPECT_EQ(world.backend.submissions[0].request.max_tokens, 0);
  world.reply(0, "", Finish{.reason = FinishReason::length});
  EXPECT_NE(exchange->response.body.find(R"("text":"ab")"), std::string::npos);
  EXPECT_NE(exchange->response.body.find(R"("completion_tokens":0)"), std::string::npos);
  EXPECT_NE(exchange->response.body.find(R"("finish_reason":"length")"), std::string::npos);
}

TEST(Api, AStreamedEchoSendsThePromptFirst) {
  ApiWorld world;
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
  ApiWorld world;
  auto exchange = world.post(kCompletions, completion_body(R"("logprobs":2)"));
  engine::Delta delta;
  delta.tokens = {{.token = TokenId{97}, .logprob = -1, .top = {{TokenId{97}, -1}, {TokenId{97}, -2}}}};
  delta.finish = Finish{};
  world.backend.send(0, std::move(delta));
  world.tasks.run();
  EXPECT_NE(exchange->response.body.find(R"({"a":-1,"token_id:97":-2})"), std::string::npos);
}

TEST(Api, SeveralPromptsBecomeChoicesInTheirOrder) {
  ApiWorld world;
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

TEST(Api, NAnswersAreBranchesOfOneRequestAndOnePromptInTheUsage) {
  for (const char* path : {kChat, kCompletions}) {
    ApiWorld world;
    const std::string fields = R"("n":3,"best_of":3,"seed":9223372036854775806)";
    auto exchange = world.post(path, path == kChat ? chat_body(fields) : completion_body(fields));
    ASSERT_EQ(world.backend.submissions.size(), 1u);
    const engine::GenerateRequest& request = world.backend.submissions[0].request;
    EXPECT_EQ(request.num_branches, 3);
    EXPECT_EQ(request.sampling.seed, 9223372036854775806u);
    EXPECT_EQ(sampling::branch_seed(request.sampling.seed, 2), 0u)
        << "seeds go round within what a request may ask for";
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    world.reply(0, "c", Finish{}, 2);
    world.reply(0, "a", Finish{}, 0);
    EXPECT_FALSE(exchange->ended);
    world.reply(0, "b", Finish{}, 1);
    ASSERT_TRUE(exchange->ended);
    EXPECT_FALSE(world.backend.submissions[0].cancelled);
    const json::Value body = parsed(exchange->response.body);
    const json::Array& choices = body.find("choices")->as_array();
    ASSERT_EQ(choices.size(), 3u);
    EXPECT_EQ(*choices[2].find("index"), json::Value(2));
    EXPECT_NE(json::dump(choices[2]).find(R"("c")"), std::string::npos);
    EXPECT_EQ(*body.find("usage")->find("prompt_tokens"), json::Value(prompt_tokens));
    EXPECT_EQ(*body.find("usage")->find("completion_tokens"), json::Value(3));
  }
}

TEST(Api, AStreamOfSeveralAnswersHasOneFinishForEachAndAGoneClientEndsThemAll) {
  ApiWorld world;
  auto exchange = world.post(kChat, chat_body(R"("n":2,"stream":true)"));
  world.reply(0, "x", std::nullopt, 1);
  world.reply(0, "y", std::nullopt, 0);
  world.reply(0, "", Finish{}, 1);
  world.reply(0, "", Finish{}, 0);
  EXPECT_TRUE(exchange->ended);
  std::size_t num_finishes = 0;
  for (std::size_t at = 0; (at = exchange->sent.find(R"("finish_reason":"stop")", at)) != std::string::npos; ++at)
    ++num_finishes;
  EXPECT_EQ(num_finishes, 2u);
  EXPECT_TRUE(exchange->sent.ends_with("data: [DONE]\n\n"));

  auto gone = world.post(kChat, chat_body(R"("n":4,"stream":true)"));
  world.reply(1, "x", Finish{}, 2);
  gone->vanish();
  EXPECT_TRUE(world.backend.submissions[1].cancelled) << "one request, and with it all branches";
}

// B33: a width above 10 was refused, because twice the width ran into the cap of users' logprobs.
TEST(Api, ABeamSearchHasVllmsFieldsAndReturnsTheBestNWithTheirScores) {
  ApiWorld world;
  auto exchange =
      world.post(kCompletions, completion_body(R"("use_beam_search":true,"best_of":16,"n":2,"temperature":0,)"
                                               R"("length_penalty":0.5,"early_stopping":"never","stop":["."])"));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  const engine::GenerateRequest& request = world.backend.submissions[0].request;
  ASSERT_TRUE(request.beams.has_value());
  EXPECT_EQ(request.beams->width, 16);
  EXPECT_EQ(request.beams->num_returned, 2);
  EXPECT_EQ(request.beams->length_penalty, 0.5);
  EXPECT_EQ(request.beams->early_stopping, EarlyStopping::never);
  EXPECT_EQ(request.num_branches, 1);
  world.reply(0, "best", Finish{.score = -0.25}, 0);
  world.reply(0, "next", Finish{.score = -0.5}, 1);
  ASSERT_TRUE(exchange->ended);
  const json::Value body = parsed(exchange->response.body);
  const json::Array& choices = body.find("choices")->as_array();
  EXPECT_EQ(*choices[0].find("beam_score"), json::Value(-0.25));
  EXPECT_EQ(*choices[1].find("text"), json::Value("next"));
}

TEST(Api, WithoutAWidthABeamSearchIsAsWideAsItsAnswersAre) {
  ApiWorld world;
  world.post(kChat, chat_body(R"("use_beam_search":true,"n":3,"early_stopping":true)"));
  ASSERT_EQ(world.backend.submissions.size(), 1u);
  EXPECT_EQ(world.backend.submissions[0].request.beams->width, 3);
  EXPECT_EQ(world.backend.submissions[0].request.beams->early_stopping, EarlyStopping::when_full);
}

TEST(Api, AFailureAfterTheStartComesAsAnEventAndDone) {
  ApiWorld world;
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

// K08: a client had gone, and its answer was computed to the end of the context.
TEST(Api, K08AGoneClientsRequestsAreCancelledAtOnce) {
  ApiWorld world;
  auto exchange = world.post(kCompletions, R"({"prompt":["a","b"],"stream":true})");
  world.reply(0, "x", Finish{});
  exchange->vanish();
  EXPECT_FALSE(world.backend.submissions[0].cancelled) << "it has ended";
  EXPECT_TRUE(world.backend.submissions[1].cancelled);
  EXPECT_EQ(world.api.num_calls(), 0u);
  world.reply(1, "late", Finish{.reason = FinishReason::cancelled});
}

TEST(Api, AClientGoneDuringTokenisingIsNeverSubmitted) {
  ApiWorld world;
  auto exchange = std::make_shared<FakeExchange>();
  world.api.handle(make_post(kChat, chat_body()), exchange);
  exchange->vanish();
  world.tasks.run();
  EXPECT_TRUE(world.backend.submissions.empty());
  EXPECT_EQ(world.api.num_calls(), 0u);
}

TEST(Api, DeltasOfOneStepWakeTheIoThreadOnce) {
  ApiWorld world;
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
  ApiWorld world;
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

TEST(Api, TheDeltasOfAStepWakeTheIoThreadOnce) {
  ApiWorld world;
  const auto first = world.post(kCompletions, completion_body(R"("stream":true)"));
  const auto second = world.post(kCompletions, completion_body(R"("stream":true)"));
  for (int step = 0; step < 2; ++step) {
    for (std::size_t submission : {0, 1}) world.backend.send(submission, "word");
    EXPECT_EQ(world.tasks.tasks.size(), 1u);
    first->sent.clear(), second->sent.clear();
    world.tasks.run();
    for (const auto& exchange : {first, second}) EXPECT_NE(exchange->sent.find("word"), std::string::npos);
  }
}

TEST(Api, TheEndOfTheGracePeriodEndsEveryCall) {
  ApiWorld world;
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
  ApiWorld world;
  for (const char* path : {"//v1/chat/completions", "/v1/../metrics", "/%6detrics", "/v1/chat/completions/",
                           "/V1/models", "http://localhost/metrics", "", "/", "*", "/v1/models/"}) {
    EXPECT_EQ(world.send(make_get(path))->response.status, 404) << path;
  }
}

TEST(Api, OtherMethodsAreNamed) {
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
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

TEST(Api, ANameWithASlashIsFoundAsClientsEscapeIt) {
  ApiWorld world({.model_names = {"team/model: 1", "100%25"}});
  for (const char* name : {"team/model: 1", "team%2Fmodel%3A%201", "team%2fmodel:%201", "100%25", "100%2525"})
    EXPECT_EQ(world.send(make_get(cat("/v1/models/", name)))->response.status, 200) << name;
  for (const char* name : {"team%2Fmodel", "%", "%2", "%zz", "%-1", "100%"})
    expect_error(*world.send(make_get(cat("/v1/models/", name))), 404, "model");
  const auto refused = world.send(make_get("/v1/models/team%2Fother%1B"));
  EXPECT_NE(refused->response.body.find("team/other"), std::string::npos) << refused->response.body;
  EXPECT_NE(refused->response.body.find("'team/model: 1', '100%25'"), std::string::npos) << refused->response.body;
  EXPECT_EQ(refused->response.body.find('\x1b'), std::string::npos);
}

TEST(Api, ModelsAreListedAndUnknownOnesAreNotFound) {
  ApiWorld world;
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
  ApiWorld world;
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
  ApiWorld world;
  world.backend.stats_.running = 3;
  world.backend.stats_.prefix_hits = 63;
  world.backend.stats_.shared_positions = 28'800;
  world.send(make_get("/health"));
  world.send(make_get("/nowhere"));
  world.post(kChat, "{}");
  auto exchange = world.send(make_get("/metrics"));
  EXPECT_TRUE(exchange->response.content_type.starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"quire_http_requests_total{route=\"/health\",status=\"200\"} 1\n",
        "quire_http_requests_total{route=\"other\",status=\"404\"} 1\n",
        "quire_http_requests_total{route=\"/v1/chat/completions\",status=\"400\"} 1\n",
        "quire_requests_running{model=\"tiny\"} 3\n", "quire_prefix_cache_hits_total{model=\"tiny\"} 63\n",
        "quire_attention_shared_positions_total{model=\"tiny\"} 28800\n"}) {
    EXPECT_NE(exchange->response.body.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace quire::server
