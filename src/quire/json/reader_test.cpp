#include "quire/json/reader.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire::json {
namespace {

Object object_of(std::string_view text) { return parse(text)->as_object(); }

template <class T>
std::string message(const Result<T>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(ObjectReader, AbsentAndNullReadAsNothing) {
  const Object object = object_of(R"({"a":null})");
  ObjectReader reader(object);
  EXPECT_FALSE(reader.optional_int("a")->has_value());
  EXPECT_FALSE(reader.optional_string("b")->has_value());
  EXPECT_EQ(*reader.optional_array("a"), nullptr);
  EXPECT_EQ(message(reader.required_string("a")), "'a': missing, wanted a string");
}

TEST(ObjectReader, IntegersAreCheckedForKindAndRange) {
  const Object object = object_of(R"({"a":16.0,"b":1.5,"c":"2","d":true,"e":9223372036854775808,"f":1e308,"g":-5})");
  ObjectReader reader(object);
  EXPECT_EQ(**reader.optional_int("a", {1, 16}), 16);
  EXPECT_EQ(message(reader.optional_int("a", {1, 15})), "'a': found 16, wanted 1 to 15");
  EXPECT_EQ(message(reader.optional_int("b")), "'b': found 1.5, wanted an integer");
  EXPECT_EQ(message(reader.optional_int("c")), "'c': found a string, wanted an integer");
  EXPECT_EQ(message(reader.optional_int("d")), "'d': found a boolean, wanted an integer");
  EXPECT_EQ(message(reader.optional_int("e")),
            "'e': found 9223372036854775808, wanted -9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(message(reader.optional_int("f", {.min = -1})), "'f': found 1e+308, wanted -1 to 9223372036854775807");
  EXPECT_EQ(message(reader.optional_int("g", {.min = 0})), "'g': found -5, wanted at least 0");
}

TEST(ObjectReader, NumbersOutsideAndNotANumberAreRefused) {
  const Object object{{"a", 0}, {"nan", std::numeric_limits<double>::quiet_NaN()}, {"s", "hot"}, {"x", 1.1}};
  ObjectReader reader(object, "sampling");
  EXPECT_EQ(**reader.optional_number("a", {0, 2}), 0.0);
  EXPECT_EQ(message(reader.optional_number("a", {.min = 0, .max = 1, .min_excluded = true})),
            "'sampling.a': found 0, wanted above 0 to 1");
  EXPECT_NE(message(reader.optional_number("nan")), "accepted");
  EXPECT_EQ(message(reader.optional_number("s")), "'sampling.s': found a string, wanted a number");
  EXPECT_EQ(message(reader.optional_number("x", {0, 1})), "'sampling.x': found 1.1, wanted 0 to 1");
}

TEST(ObjectReader, StringsListsAndObjectsAreCheckedForLength) {
  const Object object = object_of(R"({"s":"abcd","l":[1,2,3],"o":{"x":1},"c":"medium"})");
  ObjectReader reader(object, "messages[2]");
  EXPECT_EQ(**reader.optional_string("s", 4), "abcd");
  EXPECT_EQ(message(reader.required_string("s", 3)), "'messages[2].s': found a string of 4 bytes, wanted at most 3");
  EXPECT_EQ(message(reader.required_array("l", 2)), "'messages[2].l': found 3 items, wanted at most 2");
  EXPECT_EQ(message(reader.required_object("l")), "'messages[2].l': found an array, wanted an object");
  EXPECT_EQ((*reader.required_object("o"))->size(), 1u);
  EXPECT_EQ(message(reader.optional_choice("c", {"low", "high"})),
            R"('messages[2].c': found "medium", wanted one of "low", "high")");
  EXPECT_EQ(reader.path_of("l", 1), "messages[2].l[1]");
  EXPECT_EQ(error_field(reader.required_object("l").error()), "messages[2].l");
  EXPECT_EQ(error_field(Error{"JSON: byte 3: x"}), "");
}

TEST(ObjectReader, FieldsNobodyAskedForAreReported) {
  const Object object = object_of(R"({"a":1,"zz\n":2,"b":null,"y":3})");
  ObjectReader reader(object);
  EXPECT_TRUE(reader.optional_int("a").ok());
  EXPECT_FALSE(reader.has("b"));
  EXPECT_EQ(reader.unknown_fields(), (std::vector<std::string_view>{"zz\n", "y"}));
  EXPECT_EQ(message(reader.refuse_unknown()), R"('zz\n': unknown field)");
  EXPECT_TRUE(reader.has("zz\n") && reader.has("y"));
  EXPECT_TRUE(reader.refuse_unknown().ok());
}

}  // namespace
}  // namespace quire::json
