// The adapter to Boost.JSON: its incremental parser calls a handler, which builds our values and adds the checks that
// the library leaves out (duplicate keys, numbers beyond double, a cap on the number of values, correct rounding).

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>

#include "quire/json/json.h"

namespace quire::json {
namespace {

namespace bj = boost::json;
using Code = bj::error_code;
using View = bj::string_view;

class Builder {
 public:
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;

  void set_max_values(std::size_t count) { values_left_ = count; }
  Value take() { return std::move(root_); }
  /// Why this handler stopped the parse; empty if the library found the fault.
  const std::string& refusal() const { return refusal_; }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return push(Frame{true, {}, {}, {}}); }
  bool on_array_begin(Code&) { return push(Frame{false, {}, {}, {}}); }

  bool on_object_end(std::size_t, Code& code) {
    if (const std::string* key = duplicate_key(open_.back().object)) {
      std::string quoted;
      append_string(quoted, std::string_view(*key).substr(0, 100));
      return refuse(code, cat("the object that ends here has the key ", quoted, " twice"));
    }
    Object object = std::move(open_.back().object);
    open_.pop_back();
    return add(std::move(object), code);
  }
  bool on_array_end(std::size_t, Code& code) {
    Array array = std::move(open_.back().array);
    open_.pop_back();
    return add(std::move(array), code);
  }

  bool on_key_part(View part, std::size_t, Code&) { return append(part); }
  bool on_key(View part, std::size_t, Code&) {
    append(part);
    open_.back().key = std::move(text_);
    text_.clear();
    return true;
  }
  bool on_string_part(View part, std::size_t, Code&) { return append(part); }
  bool on_string(View part, std::size_t, Code& code) {
    append(part);
    std::string whole = std::move(text_);
    text_.clear();
    return add(std::move(whole), code);
  }

  bool on_number_part(View part, Code&) { return append(part); }
  bool on_int64(std::int64_t number, View, Code& code) {
    text_.clear();
    return add(number, code);
  }
  bool on_uint64(std::uint64_t number, View, Code& code) {
    text_.clear();
    return add(number, code);
  }
  bool on_double(double approximate, View part, Code& code) {
    append(part);
    double number = 0;
    auto [end, status] = std::from_chars(text_.data(), text_.data() + text_.size(), number);
    if (status == std::errc::result_out_of_range) {
      // Too small is zero, as everywhere; too large has no value.
      if (!(std::fabs(approximate) < 1)) return refuse(code, "a number beyond the range of a double");
      number = 0;
    }
    text_.clear();
    return add(number, code);
  }

  bool on_bool(bool truth, Code& code) { return add(truth, code); }
  bool on_null(Code& code) { return add(nullptr, code); }
  bool on_comment_part(View, Code&) { return true; }
  bool on_comment(View, Code&) { return true; }

 private:
  struct Frame {
    bool is_object;
    std::string key;
    Object object;
    Array array;
  };

  bool push(Frame frame) {
    open_.push_back(std::move(frame));
    return true;
  }

  bool append(View part) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool add(Value value, Code& code) {
    if (values_left_ == 0) return refuse(code, "too many values");
    --values_left_;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().object.append(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().array.push_back(std::move(value));
    }
    return true;
  }

  bool refuse(Code& code, std::string why) {
    refusal_ = std::move(why);
    code = bj::make_error_code(bj::error::exception);
    return false;
  }

  static const std::string* duplicate_key(const Object& object) {
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const Member& member : object) keys.push_back(&member.key);
    std::sort(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a < *b; });
    auto twin = std::adjacent_find(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a == *b; });
    return twin == keys.end() ? nullptr : *twin;
  }

  std::vector<Frame> open_;
  std::string text_;  ///< of the string, key or number that is being read in parts
  Value root_;
  std::size_t values_left_ = 0;
  std::string refusal_;
};

std::string describe(const Code& code, const Limits& limits) {
  if (code == bj::error::too_deep) return cat("nested deeper than ", limits.max_depth, " levels");
  if (code == bj::error::incomplete) return "the text ends in the middle of a value";
  return code.message();
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail("JSON of ", text.size(), " bytes, at most ", limits.max_bytes, " are accepted");
  }
  if (text.starts_with("\xEF\xBB\xBF")) return fail("JSON: byte 0: a byte-order mark, wanted a value");
  try {
    bj::parse_options options;
    options.max_depth = static_cast<std::size_t>(limits.max_depth);
    bj::basic_parser<Builder> parser(options);
    parser.handler().set_max_values(limits.max_values);
    Code code;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), code);
    if (code) {
      const std::string& refusal = parser.handler().refusal();
      return fail("JSON: byte ", used, ": ", refusal.empty() ? describe(code, limits) : refusal);
    }
    if (used != text.size()) return fail("JSON: byte ", used, ": text after the value");
    return parser.handler().take();
  } catch (const std::exception& failure) {
    return fail("JSON: ", failure.what());
  }
}

}  // namespace quire::json
