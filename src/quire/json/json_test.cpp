#include "quire/json/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire::json {
namespace {

Value parsed(std::string_view text) {
  auto result = parse(text);
  EXPECT_TRUE(result.ok()) << text << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : Value();
}

std::string refusal(std::string_view text, const Limits& limits = {}) {
  auto result = parse(text, limits);
  EXPECT_FALSE(result.ok()) << text.substr(0, 100);
  return result.ok() ? "" : result.error().message;
}

TEST(JsonParse, NumbersKeepTheirKind) {
  const Value value = parsed("[1, -9223372036854775808, 18446744073709551615, 1.0, 16e0, 0.1, -0.0]");
  const Array& items = value.as_array();
  EXPECT_EQ(items[0].kind(), Kind::kInteger);
  EXPECT_EQ(items[1].as_int(), INT64_MIN);
  EXPECT_EQ(items[2].kind(), Kind::kUnsigned);
  EXPECT_FALSE(items[2].if_int());
  EXPECT_EQ(items[3].kind(), Kind::kDouble);
  EXPECT_EQ(items[3].if_int(), 1);
  EXPECT_EQ(items[4].if_int(), 16);
  EXPECT_FALSE(items[5].if_int());
  EXPECT_TRUE(std::signbit(items[6].as_number()));
}

TEST(JsonParse, DoublesAreCorrectlyRounded) {
  for (std::string_view text :
       {"0.1", "2.2250738585072011e-308", "1.7976931348623157e308", "5e-324", "9007199254740993.0",
        "0.30000000000000004", "123456789012345678901234567890.5", "6.02214076e23"}) {
    EXPECT_EQ(parsed(text).as_number(), std::strtod(std::string(text).c_str(), nullptr)) << text;
  }
  EXPECT_EQ(parsed("1e-999").as_number(), 0.0);
}

TEST(JsonParse, MembersKeepTheOrderOfTheText) {
  EXPECT_EQ(dump(parsed(R"({"z":1,"a":{"y":[],"b":{}},"m":null})")), R"({"z":1,"a":{"y":[],"b":{}},"m":null})");
}

TEST(JsonParse, EscapesBecomeText) {
  EXPECT_EQ(parsed(R"("\u00e9\n\ud83d\ude00\u0000x")").as_string(), std::string("é\n😀\0x", 9));
}

TEST(JsonParse, DuplicateKeyIsRefusedByName) {
  EXPECT_NE(refusal(R"({"n":1,"n":1000000})").find(R"(the key "n" twice)"), std::string::npos);
  EXPECT_NE(refusal(R"({"a":[{"x":1,"y":2,"\u0078":3}]})").find(R"("x" twice)"), std::string::npos);
}

TEST(JsonParse, WhatIsNoJsonIsRefused) {
  for (std::string_view text :
       {"",         " ",     "{",      "[1,]",    "[1 2]", "{\"a\"}", "{a:1}",     "nul",      "NaN",
        "Infinity", "-",     "01",     "1.",      "+1",    "1e",      "'x'",       "\"\x01\"", "// c\n1",
        "\"\\x\"",  "1e999", "-1e999", "[1e400]", "tru",   "\"abc",   "{\"a\":1,}"}) {
    refusal(text);
  }
}

TEST(JsonParse, TextThatIsNoUnicodeIsRefused) {
  refusal("\"\xff\"");
  refusal("\"\xc0\xaf\"");          // overlong
  refusal("\"\xed\xa0\x80\"");      // surrogate in UTF-8
  refusal("\"\xf4\x90\x80\x80\"");  // above U+10FFFF
  refusal(R"("\ud800")");
  refusal(R"("\ud800x")");
  refusal(R"("\udc00")");
  refusal(R"("\ud800\ud800")");
  refusal("\xef\xbb\xbf{}");
  refusal("{\"\xff\":1}");
}

TEST(JsonParse, ErrorsNameTheByte) {
  EXPECT_EQ(refusal("{} x").substr(0, 14), "JSON: byte 3: ");
  EXPECT_NE(refusal("[1, 2, x]").find("byte 7"), std::string::npos);
  EXPECT_NE(refusal("[1, 1e999]").find("beyond the range"), std::string::npos);
}

TEST(JsonParse, NestingStopsAtTheLimit) {
  EXPECT_TRUE(parse(std::string(64, '[') + std::string(64, ']')).ok());
  EXPECT_NE(refusal(std::string(65, '[') + std::string(65, ']')).find("64 levels"), std::string::npos);
  refusal(std::string(1'000'000, '['));
  std::string nested = "{\"metadata\":";
  for (int i = 0; i < 200'000; ++i) nested += "{\"a\":";
  refusal(nested);
}

TEST(JsonParse, SizeAndValueCountStopAtTheLimit) {
  refusal("[1,2,3]", {.max_bytes = 6});
  EXPECT_NE(refusal("[1,2,3]", {.max_values = 3}).find("too many values"), std::string::npos);
  EXPECT_TRUE(parse("[1,2,3]", {.max_bytes = 7, .max_values = 4}).ok());
}

TEST(JsonParse, ManyMembersTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += cat(i ? "," : "", "\"", i, "\":", i);
  EXPECT_EQ(parsed(text + "}").as_object().size(), 200'000u);
  refusal(text + ",\"77\":0}");
}

TEST(JsonDump, DoublesArePrintedAsPythonDoes) {
  const std::pair<double, const char*> cases[] = {{1.0, "1.0"},
                                                  {-1.5, "-1.5"},
                                                  {0.1, "0.1"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e16, "1e+16"},
                                                  {1.5e16, "1.5e+16"},
                                                  {0.0001, "0.0001"},
                                                  {0.00001, "1e-05"},
                                                  {1.25e-7, "1.25e-07"},
                                                  {1e100, "1e+100"},
                                                  {-0.0, "-0.0"},
                                                  {123456.789, "123456.789"},
                                                  {5e-324, "5e-324"},
                                                  {100.0, "100.0"},
                                                  {0.30000000000000004, "0.30000000000000004"}};
  for (auto [number, text] : cases) EXPECT_EQ(dump(number), text);
  EXPECT_EQ(dump(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(dump(std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonDump, LayoutFollowsTheOptions) {
  const Value value = Object{{"b", Array{1, true, nullptr, 2.5}}, {"a", Object{}}, {"é", "ü\"\n😀\x7f"}};
  EXPECT_EQ(dump(value), "{\"b\":[1,true,null,2.5],\"a\":{},\"é\":\"ü\\\"\\n😀\x7f\"}");
  EXPECT_EQ(dump(value, {.item_separator = ", ", .key_separator = ": ", .ascii_only = true, .sorted_keys = true}),
            R"({"a": {}, "b": [1, true, null, 2.5], "\u00e9": "\u00fc\"\n\ud83d\ude00\u007f"})");
  EXPECT_EQ(dump(Array{1, Object{{"k", Array{}}}}, {.indent = 2, .key_separator = ": "}),
            "[\n  1,\n  {\n    \"k\": []\n  }\n]");
}

TEST(JsonDump, BrokenUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(dump(std::string("a\xff"
                             "b\xe2\x82")),
            "\"a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(dump(std::string("\xed\xa0\x80")), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonDump, WhatIsPrintedParsesToTheSameValue) {
  const char* text = R"([{"a":[1,2.0,-3e-7,"x\u0001y",18446744073709551615]},[],{},"",false])";
  const Value value = parsed(text);
  EXPECT_TRUE(parsed(dump(value)) == value);
  EXPECT_TRUE(parsed(dump(value, {.indent = 4, .ascii_only = true})) == value);
}

TEST(JsonValue, ObjectsAreEqualInAnyOrder) {
  EXPECT_TRUE(parsed(R"({"a":1,"b":[2]})") == parsed(R"({"b":[2],"a":1})"));
  EXPECT_FALSE(parsed(R"({"a":1})") == parsed(R"({"a":1.0})"));
  EXPECT_FALSE(parsed(R"({"a":1})") == parsed(R"({"b":1})"));
}

TEST(JsonValue, SetReplacesInPlace) {
  Object object{{"a", 1}, {"b", 2}};
  object.set("a", "x");
  object.set("c", 3);
  EXPECT_EQ(dump(object), R"({"a":"x","b":2,"c":3})");
  EXPECT_EQ(Value(std::uint64_t{5}).kind(), Kind::kInteger);
  EXPECT_EQ(Value(object).find("zz"), nullptr);
  EXPECT_EQ(Value(3).find("a"), nullptr);
}

TEST(JsonWriter, WritesCommasByItself) {
  std::string out = "data: ";
  Writer writer(out);
  writer.begin_object().field("id", "x\n").field("n", 3).field("p", 0.5).field("ok", true);
  writer.key("choices").begin_array().begin_object().key("delta").begin_object().end_object().end_object();
  writer.value(Value(Array{1, 2})).null().raw("{}").end_array().key("usage").null().end_object();
  EXPECT_EQ(out, R"(data: {"id":"x\n","n":3,"p":0.5,"ok":true,"choices":[{"delta":{}},[1,2],null,{}],"usage":null})");
}

}  // namespace
}  // namespace quire::json
