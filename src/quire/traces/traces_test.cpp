#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "quire/base/hash.h"
#include "quire/traces/bytes.h"
#include "quire/traces/trace_file.h"

namespace quire {
namespace {

std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string tar(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, content] : files) {
    std::string head(512, '\0');
    name.copy(head.data(), 100);
    char size[13];
    std::snprintf(size, sizeof size, "%011zo", content.size());
    std::string(size).copy(head.data() + 124, 12);
    head[156] = '0';
    std::string("ustar").copy(head.data() + 257, 5);
    out += head + content + std::string((512 - content.size() % 512) % 512, '\0');
  }
  return out + std::string(1024, '\0');
}

std::string error_of(std::string_view text) {
  const auto trace = read_trace("t", text);
  return trace.ok() ? "read" : trace.error().message;
}

TEST(Traces, AzureTimestampsBecomeNanosecondsSinceTheFirstRow) {
  const auto trace = read_trace("t",
                                "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                "2023-11-16 18:15:46.6805900,374,44\r\n"
                                "2023-11-16 18:15:50.9951690,396,109\r\n"
                                "2023-11-17 00:00:00.0000000,4,1\r\n")
                         .value();
  EXPECT_EQ(trace.format, "azure");
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[0].arrival_ns, 0u);
  EXPECT_EQ(trace.requests[1].arrival_ns, 4'314'579'000u);
  EXPECT_EQ(trace.requests[2].arrival_ns, 20'653'319'410'000u);
  EXPECT_EQ(trace.requests[1].prompt_tokens, 396);
  EXPECT_EQ(trace.requests[1].output_tokens, 109);
  EXPECT_TRUE(trace.has_arrivals);
  EXPECT_EQ(trace.notes, std::vector<std::string>{"t, row 1, column 40: lines end in CR LF"});
}

TEST(Traces, SarathiLengthsHaveNoArrivalsAndTurnsByLengthIfAsked) {
  constexpr std::string_view kText =
      "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
      "74,918,992,0.08\n1402,711,2113,1.9\n290,905,1195,0.3\n1195,5,1200,9\n";
  const auto plain = read_trace("t", kText).value();
  EXPECT_FALSE(plain.has_arrivals);
  EXPECT_EQ(plain.requests[3].session, 0u);
  const auto turns = read_trace("t", kText, {.turns = CsvTurns::by_length}).value();
  EXPECT_EQ(turns.requests[0].session, 1u);
  EXPECT_EQ(turns.requests[1].session, 1u);
  EXPECT_EQ(turns.requests[2].session, 2u);
  EXPECT_EQ(turns.requests[3].session, 2u);
}

TEST(Traces, PlainCsvTakesColumnsInAnyOrderAndOthersBeside) {
  const auto trace =
      read_trace("t", "output_tokens,user,prompt_tokens,arrival_s,session\n7,bob,100,0.5,3\n8,eve,200,1.25,4").value();
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.requests[1].arrival_ns, 1'250'000'000u);
  EXPECT_EQ(trace.requests[1].prompt_tokens, 200);
  EXPECT_EQ(trace.requests[1].session, 4u);
}

TEST(Traces, JsonLinesOfMooncakeAndOnesOwn) {
  const auto mooncake =
      read_trace("t", R"({"timestamp": 27482, "input_length": 1000, "output_length": 52, "hash_ids": [46, 47]})"
                      "\n")
          .value();
  EXPECT_EQ(mooncake.format, "mooncake");
  EXPECT_EQ(mooncake.requests[0].arrival_ns, 27'482'000'000u);
  EXPECT_EQ(mooncake.requests[0].prefix_blocks, (std::vector<std::uint64_t>{46, 47}));
  EXPECT_EQ(mooncake.requests[0].prefix_block_tokens, 512);
  const auto own = read_trace("t", "{\"prompt_tokens\": 5, \"output_tokens\": 6}\n").value();
  EXPECT_EQ(own.format, "jsonl");
  EXPECT_FALSE(own.has_arrivals);
}

TEST(Traces, AgentSessionsAreMergedByTimeAndKeepTheirNamesApart) {
  const std::string archive =
      tar({{"traces/a.json", R"({"block_size":64,"requests":[{"t":0.0,"in":130,"out":5,"hash_ids":[1,2]},
                                                        {"t":9.5,"in":200,"out":5,"hash_ids":[1,2,3]}]})"},
           {"traces/b.json", R"({"block_size":64,"requests":[{"t":1,"in":64,"out":1,"hash_ids":[1]}]})"}});
  const auto trace = read_trace("t", gzip(archive)).value();
  EXPECT_EQ(trace.format, "agent-sessions");
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[1].session, 2u);
  EXPECT_EQ(trace.requests[2].arrival_ns, 9'500'000'000u);
  EXPECT_EQ(trace.requests[2].prefix_block_tokens, 64);
}

TEST(Traces, ServeGenSamplesEachClientAtItsRate) {
  const std::string archive =
      tar({{"d/chunk-0-trace.csv", "0,2.0,1.0,Gamma,1,1\n600,0,0,,0,0\n1200,4.0,2.0,Weibull,1,1\n"},
           {"d/chunk-0-dataset.json",
            R"({"0": {"input_tokens": "{50: 0.5, 51: 0.5}", "output_tokens": "{9: 1.0}", "reason_ratio": ""}})"},
           {"d/chunk-1-trace.csv", "0,1.0,1.0,Gamma,1,1\n600,0,0,,0,0\n"},
           {"d/chunk-1-dataset.json", R"({"0": {"input_tokens": "{}", "output_tokens": "", "reason_ratio": ""}})"}});
  const auto trace = read_trace("t", archive).value();
  EXPECT_EQ(trace.format, "servegen");
  EXPECT_NEAR(static_cast<double>(trace.requests.size()), 2.0 * 600 + 4.0 * 600, 400);
  for (const RequestSpec& request : trace.requests) {
    ASSERT_TRUE(request.prompt_tokens == 50 || request.prompt_tokens == 51);
    ASSERT_EQ(request.output_tokens, 9);
    ASSERT_TRUE(request.arrival_ns < 600'000'000'000u || request.arrival_ns >= 1'200'000'000'000u);
  }
  const auto part = read_trace("t", archive, {.servegen = {.begin_s = 1200, .end_s = 1300}}).value();
  EXPECT_LT(part.requests.back().arrival_ns, 100'000'000'000u);
}

TEST(Traces, WhatIsWrongIsOneLineWithFileRowAndColumn) {
  EXPECT_EQ(error_of(""), "t, row 1, column 1: the file is empty, wanted a head with columns");
  EXPECT_EQ(error_of("prompt_tokens,output_tokens\n"), "t, row 2, column 1: there is no row behind the head");
  EXPECT_EQ(error_of("a,output_tokens\n1,2\n"),
            "t, row 1, column prompt_tokens: is missing (or input_tokens, ContextTokens, num_prefill_tokens)");
  EXPECT_EQ(error_of("prompt_tokens\n1\n"),
            "t, row 1, column output_tokens: is missing (or GeneratedTokens, num_decode_tokens)");
  EXPECT_EQ(error_of("prompt_tokens,input_tokens,output_tokens\n1,2,3\n"),
            "t, row 1, column input_tokens: means the same as column prompt_tokens, wanted one of them");
  EXPECT_EQ(error_of("prompt_tokens,output_tokens\n5,-3\n"),
            "t, row 2, column output_tokens: found '-3', wanted a whole number from 1 to 16777216");
  EXPECT_EQ(error_of("prompt_tokens,output_tokens\n5,3\n99999999999999999999,3\n"),
            "t, row 3, column prompt_tokens: found '99999999999999999999', wanted a whole number from 1 to 16777216");
  EXPECT_EQ(error_of("prompt_tokens,output_tokens\n5,NaN\n"),
            "t, row 2, column output_tokens: found 'NaN', wanted a whole number from 1 to 16777216");
  EXPECT_EQ(error_of("prompt_tokens,output_tokens\n5\n"),
            "t, row 2, column output_tokens: is missing: found 1 columns, wanted 2");
  EXPECT_EQ(error_of("arrival_s,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n"),
            "t, row 3, column arrival_s: is earlier than the row before, wanted rows in the order of arrival");
  EXPECT_EQ(error_of("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n"),
            "t, row 2, column arrival_s: found 'nan', wanted a time from 0 to 1000000000 s");
  EXPECT_EQ(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,1,1\n"),
            "t, row 2, column TIMESTAMP: found '2023-13-16 18:15:46', wanted a time as 2023-11-16 18:15:46.6805900");
  EXPECT_EQ(error_of("{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"hash_ids\":[1,2]}\n"),
            "t, row 1, column hash_ids: found 2 names, wanted at most 1 for 9 tokens");
  EXPECT_EQ(error_of("{\"prompt_tokens\":9,\"output_tokens\":1}\n{\"prompt_tokens\":9}\n"),
            "t, row 2, column output_tokens: is missing");
  EXPECT_EQ(error_of("{\"prompt_tokens\":9,\"output_tokens\":1e99}\n"),
            "t, row 1, column output_tokens: found 1e+99, wanted a whole number from 1 to 16777216");
  EXPECT_NE(error_of("{\"prompt_tokens\":9\n").find("t, row 1, column 19: "), std::string::npos);
  EXPECT_EQ(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-29 18:15:46,1,1\n"),
            "t, row 2, column TIMESTAMP: found '2023-02-29 18:15:46', wanted a time as 2023-11-16 18:15:46.6805900");
  EXPECT_TRUE(read_trace("t", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-29 18:15:46,1,1\n").ok());
  EXPECT_TRUE(read_trace("t", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-12-31 18:15:46,1,1\n").ok());
  EXPECT_EQ(error_of("quire-block-trace 16\n0 20 1 5+1\n"), "t, row 2, column 4: found 1 names of blocks, wanted 2");
  EXPECT_EQ(error_of("quire-block-trace 16\n0 20 1 5+9\n"),
            "t, row 2, column 4: found '5+9', wanted a run of names as FIRST+COUNT, 2 of them left");
}

TEST(Traces, TimesOfJsonLinesAreInAllRowsOrInNone) {
  const auto row = [](std::string_view times) { return cat("{\"prompt_tokens\":9,\"output_tokens\":1", times, "}\n"); };
  const std::string none = row(""), seconds = row(",\"arrival_s\":1"), milliseconds = row(",\"arrival_ms\":1500");
  const auto trace = read_trace("t", milliseconds + milliseconds).value();
  EXPECT_TRUE(trace.has_arrivals);
  EXPECT_EQ(trace.requests[1].arrival_ns, 1'500'000'000u);
  EXPECT_EQ(error_of(none + seconds),
            "t, row 2, column arrival_s: is there, but not in row 1; wanted it in all rows, or in none");
  EXPECT_EQ(error_of(seconds + none), "t, row 2, column arrival_s: is missing");
  EXPECT_EQ(error_of(seconds + milliseconds), "t, row 2, column arrival_s: is missing");
  EXPECT_EQ(error_of(row(",\"arrival_s\":1,\"arrival_ms\":1000")),
            "t, row 1, column arrival_ms: means the same as column arrival_s, wanted one of them");
  EXPECT_EQ(error_of(seconds + "\n" + seconds), "t, row 2, column 1: the line is empty, wanted an object");
}

TEST(Traces, ServeGenSaysWhatWasFoundAndCutsNothing) {
  const auto error = [](std::string_view windows) {
    return error_of(tar({{"chunk-0-trace.csv", std::string(windows)},
                         {"chunk-0-dataset.json",
                          R"({"0": {"input_tokens": "{50: 1}", "output_tokens": "{9: 1}", "reason_ratio": ""}})"}}));
  };
  EXPECT_EQ(error("0,-1,1,Gamma,1,1\n"),
            "t, chunk-0-trace.csv, row 1, column 2 (rate): found '-1', wanted requests/s from 0 to 1000000");
  EXPECT_EQ(error("0,1,nan,Gamma,1,1\n"),
            "t, chunk-0-trace.csv, row 1, column 3 (variation): found 'nan', wanted a number from 0.1 to 30");
  EXPECT_EQ(error("0,1,0.01,Gamma,1,1\n"),
            "t, chunk-0-trace.csv, row 1, column 3 (variation): found '0.01', wanted a number from 0.1 to 30");
  EXPECT_EQ(error_of(tar({{"chunk-0-trace.csv", "0,1,1,Gamma,1,1\n"}})), "t: client 0 lacks its dataset");
}

TEST(Traces, AByteOrderMarkIsNotedAndLeftOut) {
  const auto trace = read_trace("t", "\xEF\xBB\xBFprompt_tokens,output_tokens\n5,3\n").value();
  EXPECT_EQ(trace.notes,
            std::vector<std::string>{"t, row 1, column 1: begins with a byte-order mark, which was left out"});
}

TEST(Traces, ACutOrDamagedGzipSaysWhere) {
  std::string rows = "prompt_tokens,output_tokens\n";
  for (int i = 1; i < 3000; ++i) rows += cat(i * 7919 % 10007 + 1, ",", i * 104729 % 1009 + 1, "\n");
  const std::string packed = gzip(rows);
  EXPECT_TRUE(read_trace("t", packed).ok());
  EXPECT_TRUE(read_trace("t", gzip(rows.substr(0, 500)) + gzip(rows.substr(500))).ok());
  const std::string cut = error_of(std::string_view(packed).substr(0, packed.size() / 2));
  EXPECT_NE(cut.find(", column "), std::string::npos) << cut;
  EXPECT_NE(cut.find("the gzip stream is cut short behind"), std::string::npos) << cut;
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
  const std::string message = error_of(damaged);
  EXPECT_NE(message.find("damaged"), std::string::npos) << message;
  EXPECT_EQ(error_of(std::string_view(packed).substr(0, 4)),
            "t, row 1, column 1: the gzip stream is cut short behind 4 bytes, wanted its end");
}

TEST(Traces, EveryCutOfATraceIsAnErrorOrATrace) {
  const std::string archive =
      gzip(tar({{"a.json", R"({"block_size":64,"requests":[{"t":0,"in":9,"out":5,"hash_ids":[1]}]})"}}));
  for (std::size_t size = 0; size <= archive.size(); ++size)
    read_trace("t", std::string_view(archive).substr(0, size)).ok();
  const std::string plain = tar({{"a.json", "{}"}});
  for (std::size_t size = 0; size <= plain.size(); size += 7)
    read_trace("t", std::string_view(plain).substr(0, size)).ok();
  EXPECT_NE(error_of(tar({{"a.json", std::string(2000, ' ')}}).substr(0, 1024)).find("cut short in a.json"),
            std::string::npos);
}

TEST(BeamForks, ComeBackAsTheyWereWritten) {
  const std::vector<BeamForks> searches = {{"chat", 2, 5, {0, 0, 1, 0, 0, 1}},
                                           {"code", 12, 700, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}};
  std::string text;
  append_beam_forks_head(text, {"made here"});
  for (const BeamForks& search : searches) append_beam_forks(text, search);
  const auto read = read_beam_forks("f", text).value();
  ASSERT_EQ(read.size(), 2u);
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].set, searches[i].set);
    EXPECT_EQ(read[i].width, searches[i].width);
    EXPECT_EQ(read[i].prompt_tokens, searches[i].prompt_tokens);
    EXPECT_EQ(read[i].parents, searches[i].parents);
  }
  EXPECT_EQ(read[0].num_steps(), 3u);
}

TEST(BeamForks, WhatIsWrongIsOneLineWithFileRowAndColumn) {
  const auto error = [](std::string_view lines) {
    return read_beam_forks("f", cat("quire-beam-forks\n", lines)).error().message;
  };
  EXPECT_EQ(read_beam_forks("f", "x").error().message, "f, row 1, column 1: wanted 'quire-beam-forks'");
  EXPECT_NE(error("").find("there is no search"), std::string::npos);
  EXPECT_NE(error("a 2 5").find("row 2, column 4: found 3 fields"), std::string::npos);
  EXPECT_NE(error("# c\na 1 5 00").find("row 3, column 2"), std::string::npos);
  EXPECT_NE(error("a 2 0 00").find("row 2, column 3"), std::string::npos);
  EXPECT_NE(error("a 2 5 000").find("row 2, column 4: found 3 digits"), std::string::npos);
  EXPECT_NE(error("a 2 5 02").find("found '2' as digit 2, wanted a beam below 2"), std::string::npos);
}

TEST(BeamForks, TheEmbeddedOnesAreOfThreeWidthsAndTwoSets) {
  const auto searches = embedded_beam_searches().value();
  std::map<std::pair<std::string, int>, int> counts;
  for (const BeamForks& search : searches) ++counts[{search.set, search.width}];
  for (int width : {2, 4, 6}) {
    EXPECT_EQ((counts[{"alpaca", width}]), 64);
    EXPECT_EQ((counts[{"sharegpt", width}]), 16);
  }
}

TEST(Traces, AFileThatIsMissingIsNamed) {
  EXPECT_EQ(open_trace("no/such/file").error().message, "no/such/file: No such file or directory");
}

TEST(Traces, TheEmbeddedOnesAreWholeAndOfThePublishedSizes) {
  const auto conversation = embedded_trace("conversation").value();
  EXPECT_EQ(conversation.requests.size(), 12'031u);
  const auto synthetic = embedded_trace("synthetic").value();
  EXPECT_EQ(synthetic.requests.size(), 3'993u);
  EXPECT_EQ(embedded_trace("sharegpt").value().requests.size(), 5'678u);
  std::uint64_t prompt = 0;
  for (const RequestSpec& request : conversation.requests) prompt += static_cast<std::uint64_t>(request.prompt_tokens);
  EXPECT_EQ(prompt / conversation.requests.size(), 12'035u);
}

}  // namespace
}  // namespace quire
