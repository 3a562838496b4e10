#include "quire/server/http_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "quire/base/cat.h"

namespace quire::server {
namespace {

const std::string kHead = "POST /x HTTP/1.1\r\nHost: localhost\r\n";

struct Parsed {
  HttpParser::State state;
  int status = 0;
  std::string message;
  HttpRequest request;
  std::string rest;
};

/// Feeds the bytes as they would arrive, `piece` at a time.
Parsed parse(std::string_view bytes, std::size_t piece = SIZE_MAX, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  std::string buffer;
  while (!bytes.empty() && parser.state() != HttpParser::State::complete &&
         parser.state() != HttpParser::State::failed) {
    buffer += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    buffer.erase(0, parser.parse(buffer));
  }
  Parsed parsed{.state = parser.state(), .status = parser.error_status(), .message = parser.error_message()};
  if (parsed.state == HttpParser::State::complete) parsed.request = parser.take_request();
  parsed.rest = cat(buffer, bytes);
  return parsed;
}

TEST(HttpParser, ReadsARequestWhateverThePieces) {
  const std::string bytes = kHead + "X-A: 1\r\nContent-Length: 5\r\n\r\nhelloGET";
  for (std::size_t piece : {1u, 2u, 3u, 7u, 1000u}) {
    Parsed parsed = parse(bytes, piece);
    ASSERT_EQ(parsed.state, HttpParser::State::complete) << parsed.message;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/x");
    EXPECT_EQ(parsed.request.body, "hello");
    ASSERT_NE(parsed.request.header("x-a"), nullptr);
    EXPECT_EQ(*parsed.request.header("x-a"), "1");
    EXPECT_EQ(parsed.rest, "GET") << "what follows belongs to the next request";
  }
}

TEST(HttpParser, ReadsAChunkedBodyWhateverThePieces) {
  const std::string bytes =
      kHead + "Transfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\nNEXT";
  for (std::size_t piece : {1u, 2u, 5u, 1000u}) {
    Parsed parsed = parse(bytes, piece);
    ASSERT_EQ(parsed.state, HttpParser::State::complete) << parsed.message;
    EXPECT_EQ(parsed.request.body, "hello!");
    EXPECT_EQ(parsed.request.header("trailer"), nullptr) << "a trailer is no header";
    EXPECT_EQ(parsed.rest, "NEXT");
  }
}

TEST(HttpParser, RefusesALongTrailerWhateverThePieces) {
  const std::string head = kHead + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
  const auto with_trailer = [&head](std::size_t size) {
    return head + "0\r\nA: " + std::string(size, 'x') + "\r\n\r\n";
  };
  for (std::size_t piece : {std::size_t{7}, std::size_t{1000}, std::size_t{1} << 20}) {
    EXPECT_EQ(parse(with_trailer(16000), piece).state, HttpParser::State::complete) << piece;
    Parsed parsed = parse(with_trailer(17000), piece);
    EXPECT_EQ(parsed.state, HttpParser::State::failed) << piece;
    EXPECT_EQ(parsed.status, 431) << piece;
  }
}

TEST(HttpParser, ReadsAnEmptyChunkedBodyWhateverThePieces) {
  for (std::size_t piece : {1u, 2u, 3u, 4u, 1000u}) {
    for (const char* body : {"0\r\n\r\n", "0\r\nTrailer: x\r\n\r\n", "1\r\na\r\n0\r\n\r\n"}) {
      Parsed parsed = parse(cat(kHead, "Transfer-Encoding: chunked\r\n\r\n", body), piece);
      EXPECT_EQ(parsed.state, HttpParser::State::complete) << piece << parsed.message;
    }
  }
}

TEST(HttpParser, MegabytesInTinyChunksTakeLinearTime) {
  std::string bytes = kHead + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 500'000; ++i) bytes += "1\r\na\r\n";
  bytes += "0\r\n\r\n";
  Parsed parsed = parse(bytes, 16 << 10);
  ASSERT_EQ(parsed.state, HttpParser::State::complete) << parsed.message;
  EXPECT_EQ(parsed.request.body.size(), 500'000u);
}

TEST(HttpParser, KeepsTheTargetAsSent) {
  Parsed parsed = parse("GET /v1/../%2e?a=b?c HTTP/1.0\r\n\r\n");
  ASSERT_EQ(parsed.state, HttpParser::State::complete) << parsed.message;
  EXPECT_EQ(parsed.request.path, "/v1/../%2e");
  EXPECT_EQ(parsed.request.query, "a=b?c");
  EXPECT_TRUE(parsed.request.http_1_0);
  EXPECT_FALSE(parsed.request.keep_alive);
}

TEST(HttpParser, AsksForTheBodyOnce) {
  HttpParser parser{HttpLimits{}};
  const std::string head = kHead + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n";
  EXPECT_EQ(parser.parse(head), head.size());
  EXPECT_TRUE(parser.take_continue());
  EXPECT_FALSE(parser.take_continue());
  EXPECT_EQ(parser.parse("ab"), 2u);
  EXPECT_EQ(parser.state(), HttpParser::State::complete);
}

struct Refused {
  const char* what;
  std::string bytes;
  int status;
};

TEST(HttpParser, RefusesWhatIsAmbiguousOrTooLarge) {
  std::string many;
  for (int i = 0; i < 65; ++i) many += cat("X-", i, ": 1\r\n");
  const std::string chunked = kHead + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<Refused> refused = {
      {"missing Host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"odd Host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"userinfo in Host", "GET / HTTP/1.1\r\nHost: good@evil\r\n\r\n", 400},
      {"length and encoding", kHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"two different lengths", kHead + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {"negative length", kHead + "Content-Length: -1\r\n\r\n", 400},
      {"length with a sign", kHead + "Content-Length: +3\r\n\r\nabc", 400},
      {"hexadecimal length", kHead + "Content-Length: 0x3\r\n\r\nabc", 400},
      {"huge length", kHead + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {"xchunked", kHead + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
      {"gzip, chunked", kHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"chunked, identity", kHead + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
      {"chunked twice", kHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"folded header", kHead + "X-A: 1\r\n 2\r\n\r\n", 400},
      {"folded with a tab", kHead + "X-A: 1\r\n\t2\r\n\r\n", 400},
      {"space before the colon", kHead + "X-A : 1\r\n\r\n", 400},
      {"no colon", kHead + "X-A\r\n\r\n", 400},
      {"NUL in a value", kHead + std::string("X-A: a\0b\r\n\r\n", 12), 400},
      {"bare line feeds", "GET / HTTP/1.1\nHost: a\n\n", 400},
      {"bare line feed in a value", kHead + "X-A: 1\nX-B: 2\r\n\r\n", 400},
      {"HTTP/2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"HTTP/0.9", "GET /\r\n\r\n", 400},
      {"garbage", std::string("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 11), 400},
      {"another expectation", kHead + "Expect: tea\r\n\r\n", 417},
      {"65 headers", "GET / HTTP/1.1\r\nHost: a\r\n" + many + "\r\n", 431},
      {"100 KiB header", kHead + "X-A: " + std::string(100 << 10, 'a') + "\r\n\r\n", 431},
      {"1 MiB request line", "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
      {"URL one too long", "GET /" + std::string(8 << 10, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
      {"length past the cap", kHead + "Content-Length: 8388609\r\n\r\n", 413},
      {"chunk past the cap", chunked + "800001\r\n", 413},
      {"chunk size -2", chunked + "-2\r\nab\r\n", 400},
      {"chunk size of 17 F", chunked + "FFFFFFFFFFFFFFFFF\r\n", 400},
      {"empty chunk size", chunked + "\r\n\r\n\r\n", 400},
      {"chunk without its end", chunked + "2\r\nabcd\r\n0\r\n\r\n", 400},
      {"long chunk extension", chunked + "1;a=" + std::string(300, 'x') + "\r\na\r\n0\r\n\r\n", 400},
      {"endless chunk extension", chunked + "1;a=" + std::string(1 << 20, 'x'), 400},
      {"endless trailer", chunked + "0\r\n" + many + many + many + std::string(1 << 20, 'x'), 431},
  };
  for (const Refused& row : refused) {
    for (std::size_t piece : {std::size_t{1000}, std::size_t{16 << 10}}) {
      Parsed parsed = parse(row.bytes, piece);
      EXPECT_EQ(parsed.state, HttpParser::State::failed) << row.what;
      EXPECT_EQ(parsed.status, row.status) << row.what << ": " << parsed.message;
      EXPECT_FALSE(parsed.message.empty()) << row.what;
    }
  }
}

TEST(HttpParser, LimitsThemselvesAreAllowed) {
  std::string many;
  for (int i = 0; i < 63; ++i) many += cat("X-", i, ": 1\r\n");
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: a\r\n" + many + "\r\n").state, HttpParser::State::complete);
  EXPECT_EQ(parse("GET /" + std::string((8 << 10) - 1, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n").state,
            HttpParser::State::complete);
  const HttpLimits small{.max_body_bytes = 4};
  EXPECT_EQ(parse(kHead + "Content-Length: 4\r\n\r\nabcd", 1, small).state, HttpParser::State::complete);
  EXPECT_EQ(parse(kHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", 1, small).state,
            HttpParser::State::complete);
  EXPECT_EQ(parse(kHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", 1, small).status, 413);
}

TEST(HttpParser, CutRequestsWaitForMore) {
  const std::string bytes = kHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Parsed parsed = parse(std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(parsed.state == HttpParser::State::head || parsed.state == HttpParser::State::body) << size;
  }
}

}  // namespace
}  // namespace quire::server
