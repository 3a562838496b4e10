#include <gtest/gtest.h>

#include <set>

#include "quire/base/rng.h"
#include "quire/json/json.h"
#include "quire/loadgen/request_writer.h"
#include "quire/loadgen/sources.h"
#include "quire/loadgen/sse_parser.h"
#include "quire/loadgen/stream_event.h"
#include "quire/loadgen/stream_reader.h"
#include "quire/loadgen/url.h"

namespace quire::loadgen {
namespace {

using Strings = std::vector<std::string>;

Strings events_of(std::string_view text, std::size_t piece = std::string_view::npos) {
  SseParser parser;
  Strings events;
  while (!text.empty()) {
    EXPECT_TRUE(parser.feed(text.substr(0, piece), [&](std::string_view data) { events.emplace_back(data); }));
    text.remove_prefix(std::min(piece, text.size()));
  }
  return events;
}

constexpr std::string_view kStream =
    "\xEF\xBB\xBF"
    "data: one\n\n: a comment\n\ndata:two\r\ndata:  lines\r\n\r\nevent: x\rid: 1\rdata: three\r\r"
    "retry: 5\n\ndata\n\ndata: {\"a\": 1}\n\ndata: [DONE]\n\ndata: never ended\n";

TEST(SseParser, ReadsTheSameEventsFromPiecesOfEverySize) {
  const Strings expected = {"one", "two\n lines", "three", "", "{\"a\": 1}", "[DONE]"};
  EXPECT_EQ(events_of(kStream), expected);
  for (std::size_t piece = 1; piece <= kStream.size(); ++piece) ASSERT_EQ(events_of(kStream, piece), expected) << piece;
}

TEST(SseParser, ReadsTheSameEventsFromPiecesOfRandomSizes) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    SseParser parser;
    Strings events;
    for (std::string_view text = kStream; !text.empty();) {
      const auto size = std::min<std::size_t>(text.size(), static_cast<std::size_t>(rng.between(0, 9)));
      ASSERT_TRUE(parser.feed(text.substr(0, size), [&](std::string_view data) { events.emplace_back(data); }));
      text.remove_prefix(size);
    }
    ASSERT_EQ(events, events_of(kStream)) << seed;
  }
}

TEST(SseParser, StopsAtALineOrAnEventThatIsTooLong) {
  int num_events = 0;
  const auto count = [&](std::string_view) { ++num_events; };
  SseParser line;
  EXPECT_FALSE(line.feed("data: " + std::string(SseParser::kMaxBytes, 'x'), count));
  EXPECT_FALSE(line.feed("\n\n", count));
  SseParser event;
  const std::string part = "data: " + std::string(1 << 20, 'x') + "\n";
  bool readable = true;
  for (int i = 0; i < 8; ++i) readable = readable && event.feed(part, count);
  EXPECT_FALSE(readable);
  EXPECT_EQ(num_events, 0);
}

TEST(StreamEvent, ReadsBothEndpointsUsageErrorsAndTheEnd) {
  const auto read = [](std::string_view data) { return *read_stream_event(data); };
  EXPECT_TRUE(read(R"({"choices":[{"text":" a"}]})").has_text);
  EXPECT_TRUE(read(R"({"choices":[{"delta":{"content":"a"}}]})").has_text);
  EXPECT_TRUE(read(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})").has_text);
  EXPECT_FALSE(read(R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})").has_text);
  EXPECT_FALSE(read(R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})").finished);
  EXPECT_TRUE(read(R"({"choices":[{"text":"","finish_reason":"length"}]})").finished);
  EXPECT_EQ(read(R"({"choices":[],"usage":{"completion_tokens":7}})").completion_tokens, 7);
  EXPECT_EQ(read(R"({"choices":[{"text":"a"}],"usage":null})").completion_tokens, std::nullopt);
  EXPECT_EQ(read(R"({"error":{"message":"no\nroom","code":1}})").error, "no room");
  EXPECT_EQ(read(R"({"error":"plain"})").error, "plain");
  EXPECT_TRUE(read("[DONE]").done);
  EXPECT_FALSE(read_stream_event("{").ok());
  EXPECT_FALSE(read("[1]").has_text);
  EXPECT_EQ(error_message("<html>oops</html>"), "<html>oops</html>");
  EXPECT_EQ(error_message(std::string(1000, 'x')).size(), 200u);
}

/// What a reader makes of a stream, piece i at time 100 * (i + 1).
Sample read_stream(int status, const Strings& pieces, CallEnd end = CallEnd::complete, const std::string& why = "") {
  StreamReader reader(Sample{});
  if (status != 0) reader.on_status(status);
  std::uint64_t now = 0;
  for (const auto& piece : pieces) reader.on_body(now += 100, piece);
  reader.on_end(now + 100, end, why);
  return reader.sample();
}

std::string text_event(std::string_view text) { return cat("data: {\"choices\":[{\"text\":\"", text, "\"}]}\n\n"); }
const std::string kFinish = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n";
const std::string kDone = "data: [DONE]\n\n";

TEST(StreamReader, NotesWhenTextCameAndHowMuch) {
  const Sample sample = read_stream(
      200, {text_event(""), text_event("a"), text_event("b") + text_event("c"), ": filler\n\n",
            text_event("d") + kFinish, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n" + kDone});
  EXPECT_TRUE(sample.completed()) << sample.failure_message;
  EXPECT_EQ(sample.first_ns, 200u);
  EXPECT_EQ(sample.gaps_ns, (std::vector<std::uint64_t>{100, 0, 200}));
  EXPECT_EQ(sample.last_ns, 500u);
  EXPECT_EQ(sample.end_ns, 700u);
  EXPECT_EQ(sample.output_tokens, 5);
}

TEST(StreamReader, CountsEventsIfTheServerSendsNoUsage) {
  EXPECT_EQ(read_stream(200, {text_event("a"), text_event("b"), kFinish + kDone}).output_tokens, 2);
}

TEST(StreamReader, NamesEveryKindOfFailure) {
  const auto kind = [](const Sample& sample) { return sample.failure; };
  EXPECT_EQ(kind(read_stream(503, {R"({"error":{"message":"queue full"}})"})), "HTTP 503");
  EXPECT_EQ(read_stream(503, {R"({"error":{"mess)", R"(age":"queue full"}})"}).failure_message, "queue full");
  EXPECT_EQ(kind(read_stream(0, {}, CallEnd::no_connection, "refused")), "no connection");
  EXPECT_EQ(kind(read_stream(200, {text_event("a")}, CallEnd::timed_out)), "timed out");
  EXPECT_EQ(kind(read_stream(200, {text_event("a")}, CallEnd::connection_lost)), "connection lost");
  EXPECT_EQ(kind(read_stream(200, {text_event("a"), "data: {\"error\":{\"message\":\"x\"}}\n\n", kDone})),
            "server error");
  EXPECT_EQ(kind(read_stream(200, {text_event("a")})), "cut off");
  EXPECT_EQ(kind(read_stream(200, {R"({"choices":[{"text":"whole"}]})"})), "cut off");
  EXPECT_EQ(kind(read_stream(200, {"data: what\n\n"})), "bad answer");
  EXPECT_EQ(kind(read_stream(500, {}, CallEnd::connection_lost)), "HTTP 500");
}

RequestSpec spec_of(std::int32_t prompt, std::int32_t output) {
  RequestSpec spec;
  spec.prompt_tokens = prompt;
  spec.output_tokens = output;
  return spec;
}

TEST(RequestWriter, WritesTokenIdsOfTheWantedNumberAndRange) {
  const RequestWriter writer({.model = "m", .shared_prefix = 3, .first_token_id = 10, .last_token_id = 12});
  EXPECT_EQ(writer.path(), "/v1/completions");
  const auto body = json::parse(writer.body(spec_of(40, 7), 0));
  ASSERT_TRUE(body.ok());
  const json::Array& ids = body->find("prompt")->as_array();
  EXPECT_EQ(ids.size(), 43u);
  std::set<std::int64_t> seen;
  for (const auto& id : ids) seen.insert(id.as_int());
  EXPECT_EQ(seen, (std::set<std::int64_t>{10, 11, 12}));
  EXPECT_EQ(body->find("max_tokens")->as_int(), 7);
  EXPECT_EQ(body->find("model")->as_string(), "m");
  EXPECT_TRUE(body->find("stream")->as_bool());
  EXPECT_TRUE(body->find("ignore_eos")->as_bool());
  EXPECT_TRUE(body->find("stream_options")->find("include_usage")->as_bool());
}

TEST(RequestWriter, ChatIsOneMessageOfSoManyWords) {
  const RequestWriter writer({.endpoint = Endpoint::chat, .eos = Eos::obey, .model = "m"});
  const auto body = json::parse(writer.body(spec_of(25, 7), 0));
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(writer.path(), "/v1/chat/completions");
  const std::string text = body->find("messages")->as_array()[0].find("content")->as_string();
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 24);
  EXPECT_EQ(body->find("ignore_eos"), nullptr);
}

TEST(RequestWriter, RequestsShareThePrefixAndNothingElse) {
  const RequestWriter writer({.seed = 5, .shared_prefix = 20});
  const auto a = writer.prompt(spec_of(30, 1), 1), b = writer.prompt(spec_of(30, 1), 2);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 20, b.begin()));
  for (std::size_t i = 20; i < 50; ++i) EXPECT_NE(a[i], b[i]) << i;
  EXPECT_EQ(a, writer.prompt(spec_of(30, 1), 1)) << "a function of seed and number";
  EXPECT_NE(a, RequestWriter({.seed = 6, .shared_prefix = 20}).prompt(spec_of(30, 1), 1));
}

TEST(RequestWriter, EqualBlockNamesBecomeEqualTokensWithinTheirSession) {
  const RequestWriter writer({});
  RequestSpec first = spec_of(20, 1), second = spec_of(24, 1);
  first.prefix_block_tokens = second.prefix_block_tokens = 8;
  first.prefix_blocks = {1, 2, 3};
  second.prefix_blocks = {1, 2, 4};
  const auto a = writer.prompt(first, 1), b = writer.prompt(second, 2);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 16, b.begin()));
  EXPECT_NE(a[16], b[16]);
  second.session = 9;
  EXPECT_NE(writer.prompt(second, 2)[0], a[0]);
}

TEST(Url, TakesWhatPeopleWrite) {
  const auto url = parse_url("http://127.0.0.1:8080/v1/");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->path, "");
  EXPECT_EQ(url->authority(), "127.0.0.1:8080");
  EXPECT_EQ(parse_url("http://host/base/v1")->path, "/base");
  EXPECT_EQ(parse_url("http://host")->authority(), "host");
  EXPECT_EQ(parse_url("http://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9")->authority(), "[::1]:9");
  for (const char* bad :
       {"https://a", "a:80", "http://", "http://:80", "http://a:0", "http://a:99999", "http://a:8x", "http://[::1",
        "http://[::1]9", "http://a b", "http://u@a", "http://a?x", "http://a\r\nX: y"}) {
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
  }
}

TEST(Sources, RetimeSpeedUpAndLeaveOut) {
  std::vector<RequestSpec> list = {spec_of(10, 10), spec_of(100, 1), spec_of(5, 5)};
  for (std::size_t i = 0; i < list.size(); ++i) list[i].arrival_ns = i * 1000;
  FasterSource faster(std::make_unique<OwnedSource>(list), 4);
  EXPECT_EQ(faster.next()->arrival_ns, 0u);
  EXPECT_EQ(faster.next()->arrival_ns, 250u);
  auto filter = ShortEnoughSource(std::make_unique<OwnedSource>(list), 20);
  EXPECT_EQ(filter.next()->prompt_tokens, 10);
  EXPECT_EQ(filter.next()->prompt_tokens, 5);
  EXPECT_EQ(filter.next(), std::nullopt);
  EXPECT_EQ(filter.num_left_out(), 1u);
  RetimedSource even(std::make_unique<OwnedSource>(list), *ArrivalProcess::parse("even", 2), 1);
  EXPECT_EQ(even.next()->arrival_ns, 500'000'000u);
  EXPECT_EQ(even.next()->arrival_ns, 1'000'000'000u);
}

}  // namespace
}  // namespace quire::loadgen
