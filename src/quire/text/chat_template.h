#pragma once
// ChatTemplate: the chat template of a model (a Jinja template) that turns messages into the text of a prompt.
//
// The language is a subset of Jinja2 written for this, with the settings that Hugging Face templates assume
// (trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps with ensure_ascii off). Its output is byte-equal to
// jinja2's for what it supports:
//   statements  for (filter, else, loop variable, unpacking), if, set (also of blocks and namespace attributes), macro,
//   call,
//               filter, with, break, continue, do, generation (transparent), raw, comments, whitespace control
//   expressions literals, operators, chained comparison, inline if, slices, calls with keywords and *args/**kwargs,
//   filters,
//               tests, the usual methods of strings, lists and dicts
//   functions   range, dict, namespace, joiner, cycler, raise_exception, strftime_now
// Not supported, and refused by name: include, import, extends, block, recursive loops, autoescape.
// Differences from Python that a template can see: integers are 64 bits and overflow is an error; upper() and lower()
// know the common multi-character mappings only; ranges and dict views print as lists; escape() gives a plain string.
//
// A template is data from a model file and may be hostile: it reaches no host object, and a render ends with an error
// when it exceeds one of TemplateLimits. Every step, byte copied and element made costs fuel, so time and memory are
// bounded.
//
// Text that comes from messages, tools and variables is tracked byte by byte through every operation, so that the
// caller can keep it from becoming control tokens (chat_prompt.h).
//
// Thread-safety: immutable after parse(); render() may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/json/json.h"
#include "quire/text/tokenizer.h"

namespace quire {

/// A moment as the wall clock shows it. Templates print today's date; the clock is the caller's.
struct CivilTime {
  int year = 1970;
  int month = 1;  ///< 1 to 12
  int day = 1;    ///< 1 to 31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

/// UTC, of seconds since 1970-01-01; proleptic Gregorian.
CivilTime civil_time(std::int64_t unix_seconds);

struct TemplateLimits {
  std::size_t max_steps = 500'000;
  std::size_t max_output_bytes = std::size_t{1} << 20;  ///< of the prompt, and of any string on the way
  std::size_t max_range = 10'000;
  int max_depth = 600;  ///< nested evaluations: macros that call each other, nested data
};

struct ChatInput {
  const json::Value& messages;         ///< an array of objects
  const json::Value* tools = nullptr;  ///< null: none
  bool add_generation_prompt = true;
  std::string bos_token;  ///< as text; empty if the caller adds BOS itself
  std::string eos_token;
  const json::Object* variables = nullptr;  ///< more variables (chat_template_kwargs); reserved names are refused
  CivilTime now;
};

struct Rendered {
  std::string text;
  /// Bytes that came from messages, tools or variables: sorted, disjoint, not touching each other.
  std::vector<TextRange> from_input;
};

class ChatTemplate {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  /// Errors name the line: a syntax error, an unsupported statement, nesting too deep, ill-formed UTF-8.
  static Result<ChatTemplate> parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Errors: what the template itself raises (raise_exception) in its own words, with the line; an operation that
  /// Python would refuse; a limit exceeded; a reserved name in `variables`. Messages are bounded, and control
  /// characters in them are escaped.
  ///
  /// The value of "role" in a message counts as the template's own text when it is one of kKnownRoles, since many
  /// templates build control tokens from it ('<|' + role + '|>'); any other role is input like the rest.
  Result<Rendered> render(const ChatInput& input, const TemplateLimits& limits = {}) const;

  static constexpr std::string_view kKnownRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

  /// True for names that `variables` may not set: messages, tools, tokenize, chat_template and the like.
  static bool is_reserved_variable(std::string_view name);

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace quire
