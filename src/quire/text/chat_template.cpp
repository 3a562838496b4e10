#include "quire/text/chat_template.h"

#include <algorithm>

#include "quire/text/jinja_machine.h"
#include "quire/text/utf8.h"

namespace quire {
namespace {

using jinja::Failure;
using jinja::Machine;
using jinja::Origin;

constexpr std::size_t kMaxMessageBytes = 1000;

/// A template's words for a person: bounded, without control characters.
std::string readable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size() && out.size() < kMaxMessageBytes;) {
    const Utf8Step step = utf8_step(text.substr(i));
    const char32_t c = step.code_point;
    if (c < 0x20 || (c >= 0x7F && c < 0xA0)) {
      static constexpr char kHex[] = "0123456789abcdef";
      out += c == '\n' ? std::string(" ") : std::string("\\x") + kHex[c >> 4] + kHex[c & 15];
    } else {
      append_utf8(out, c);
    }
    i += step.length;
  }
  if (out.size() >= kMaxMessageBytes) out += "...";
  return out;
}

Error error_of(const Failure& failure) {
  if (failure.line == 0) return fail("chat template: ", readable(failure.message));
  return fail("chat template, line ", failure.line, ": ", readable(failure.message));
}

/// Messages, with the known roles as the template's own words.
jinja::Value messages_of(Machine& machine, const json::Value& messages) {
  const jinja::Value list = machine.from_json(messages, Origin::kInput);
  if (!list.is(jinja::Kind::kList)) return list;
  for (const jinja::Value& message : list.list->items) {
    if (!message.is(jinja::Kind::kDict)) continue;
    for (auto& [key, value] : message.dict->items) {
      if (!value.is_string() || key.text->bytes() != "role") continue;
      const auto& roles = ChatTemplate::kKnownRoles;
      const auto known = std::find(std::begin(roles), std::end(roles), value.text->bytes());
      if (known != std::end(roles)) value = machine.make_text(*known);
    }
  }
  return list;
}

constexpr std::string_view kReserved[] = {"messages",      "tools",        "add_generation_prompt",
                                          "bos_token",     "eos_token",    "tokenize",
                                          "chat_template", "conversation", "raise_exception",
                                          "strftime_now",  "range",        "dict",
                                          "namespace",     "joiner",       "cycler",
                                          "loop",          "varargs",      "kwargs",
                                          "caller"};

}  // namespace

CivilTime civil_time(std::int64_t unix_seconds) {
  std::int64_t days = unix_seconds / 86400, rest = unix_seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": civil_from_days.
  days += 719468;
  const std::int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const std::int64_t day_of_era = days - era * 146097;
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t month_from_march = (5 * day_of_year + 2) / 153;
  CivilTime time;
  time.day = static_cast<int>(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  time.month = static_cast<int>(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  time.year = static_cast<int>(year_of_era + era * 400 + (time.month <= 2 ? 1 : 0));
  time.hour = static_cast<int>(rest / 3600);
  time.minute = static_cast<int>(rest / 60 % 60);
  time.second = static_cast<int>(rest % 60);
  return time;
}

struct ChatTemplate::Impl {
  jinja::Tree tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::is_reserved_variable(std::string_view name) {
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return fail("chat template: ", source.size(), " bytes, at most ", kMaxSourceBytes, " are supported");
  }
  if (auto invalid = first_invalid_utf8(source)) return fail("chat template: byte ", *invalid, " is no valid UTF-8");
  try {
    return ChatTemplate(std::make_unique<const Impl>(Impl{jinja::parse_template(source)}));
  } catch (const Failure& failure) {
    return error_of(failure);
  }
}

Result<Rendered> ChatTemplate::render(const ChatInput& input, const TemplateLimits& limits) const {
  try {
    Machine machine(impl_->tree, limits, input.now);
    if (input.variables) {
      for (const json::Member& variable : *input.variables) {
        if (is_reserved_variable(variable.key))
          return fail("chat template: the variable '", variable.key, "' is reserved");
        machine.set_variable(variable.key, machine.from_json(variable.value, Origin::kInput));
      }
    }
    machine.set_variable("messages", messages_of(machine, input.messages));
    machine.set_variable("tools", input.tools ? machine.from_json(*input.tools, Origin::kInput) : jinja::Value::none());
    machine.set_variable("add_generation_prompt", jinja::Value::of_bool(input.add_generation_prompt));
    machine.set_variable("bos_token", machine.make_text(replace_invalid_utf8(input.bos_token)));
    machine.set_variable("eos_token", machine.make_text(replace_invalid_utf8(input.eos_token)));
    const jinja::Text text = machine.run();
    return Rendered{text.bytes(), {text.from_input().begin(), text.from_input().end()}};
  } catch (const Failure& failure) {
    return error_of(failure);
  }
}

}  // namespace quire
