#include "quire/text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace quire {
namespace {

const std::string kData = std::string(QUIRE_SOURCE_DIR) + "/tests/data/templates/";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

json::Value read_json(const std::string& path) {
  auto value = json::parse(read_file(path));
  EXPECT_TRUE(value.ok()) << path << ": " << (value.ok() ? "" : value.error().message);
  return value.ok() ? *std::move(value) : json::Value(json::Object{});
}

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *std::move(value) : json::Value();
}

Result<Rendered> render(std::string_view source, const ChatInput& input, const TemplateLimits& limits = {}) {
  QUIRE_TRY(const auto chat_template, ChatTemplate::parse(source));
  return chat_template.render(input, limits);
}

/// With "text" as the content of one user message, and the moment that the stored texts were made for.
Result<Rendered> render_text(std::string_view source, const std::string& content = "",
                             const TemplateLimits& limits = {}) {
  const json::Value messages(json::Array{json::Object{{"role", "user"}, {"content", content}}});
  ChatInput input{messages};
  return render(source, input, limits);
}

std::string outcome(const Result<Rendered>& result) {
  return result.ok() ? result->text : "error: " + result.error().message;
}

ChatInput input_of(const json::Value& chat) {
  ChatInput input{*chat.find("messages")};
  input.tools = chat.find("tools");
  const json::Value* prompt = chat.find("add_generation_prompt");
  input.add_generation_prompt = !prompt || prompt->as_bool();
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  const json::Value* variables = chat.find("variables");
  input.variables = variables ? variables->if_object() : nullptr;
  input.now = {2025, 3, 9, 8, 5, 7};
  return input;
}

// ---- against jinja2 (tests/differential/jinja_check.py makes the stored texts) ----

TEST(ChatTemplate, TemplatesOfEveryFamilyRenderAsInJinja2) {
  const json::Value chats = read_json(kData + "chats.json");
  int num_templates = 0, num_rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    ++num_templates;
    auto chat_template = ChatTemplate::parse(read_file(entry.path().string()));
    ASSERT_TRUE(chat_template.ok()) << name << ": " << chat_template.error().message;
    const json::Value expected = read_json(kData + name + ".expected.json");
    ASSERT_EQ(expected.as_array().size(), chats.as_array().size()) << name;
    for (std::size_t i = 0; i < chats.as_array().size(); ++i) {
      auto rendered = chat_template->render(input_of(chats.as_array()[i]));
      const json::Value& wanted = expected.as_array()[i];
      const std::string label = name + "/" + wanted.find("chat")->as_string();
      if (const json::Value* text = wanted.find("text")) {
        EXPECT_EQ(outcome(rendered), text->as_string()) << label;
        ++num_rendered;
        continue;
      }
      ASSERT_FALSE(rendered.ok()) << label << ": " << rendered->text;
      const std::string& why = wanted.find("error")->as_string();
      // What the template itself raises arrives in its own words; Python's words are Python's.
      if (!why.starts_with('(')) {
        EXPECT_TRUE(rendered.error().message.ends_with(": " + why)) << label << rendered.error().message;
      }
    }
  }
  EXPECT_GE(num_templates, 12);
  EXPECT_GE(num_rendered, 150);
}

TEST(ChatTemplate, EveryConstructRendersAsInJinja2) {
  const json::Value snippets = read_json(kData + "snippets.json");
  const json::Value none(json::Array{});
  ChatInput input{none};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.variables = snippets.find("variables")->if_object();
  input.now = {2025, 3, 9, 8, 5, 7};
  EXPECT_GE(snippets.find("snippets")->as_array().size(), 90u);
  for (const json::Value& snippet : snippets.find("snippets")->as_array()) {
    const std::string& source = snippet.find("template")->as_string();
    EXPECT_EQ(outcome(render(source, input)), snippet.find("text")->as_string()) << source;
  }
  for (const json::Value& source : snippets.find("errors")->as_array()) {
    auto rendered = render(source.as_string(), input);
    ASSERT_FALSE(rendered.ok()) << source.as_string() << ": " << rendered->text;
    EXPECT_TRUE(rendered.error().message.starts_with("chat template, line 1: ")) << rendered.error().message;
  }
  for (const json::Value& source : snippets.find("syntax_errors")->as_array()) {
    auto chat_template = ChatTemplate::parse(source.as_string());
    ASSERT_FALSE(chat_template.ok()) << source.as_string();
    EXPECT_TRUE(chat_template.error().message.starts_with("chat template, line ")) << chat_template.error().message;
  }
}

// ---- errors ----

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(outcome(render_text("a\nb\n{{ 1 +\n}}")), "error: chat template, line 4: unexpected '}}'");
  EXPECT_EQ(outcome(render_text("a\n\n{{ messages[0].content.nothing.more }}")),
            "error: chat template, line 3: 'str object' has no attribute 'nothing'");
  EXPECT_EQ(outcome(render_text("{% if x %}\n\n")),
            "error: chat template, line 2: expected {% endif %}, found the end of the template");
  EXPECT_EQ(outcome(render_text("{% include 'x' %}")),
            "error: chat template, line 1: the tag 'include' is not supported");
  EXPECT_EQ(outcome(render_text("\n{{ x | frobnicate }}")),
            "error: chat template, line 2: no filter named 'frobnicate'");
}

TEST(ChatTemplate, RaisedMessagesAreBoundedAndHaveNoControlCharacters) {
  EXPECT_EQ(outcome(render_text("{{ raise_exception(messages[0].content) }}", "bad\n\x1b[31m\x7f role")),
            "error: chat template, line 1: bad \\x1b[31m\\x7f role");
  const std::string message =
      outcome(render_text("{{ raise_exception(messages[0].content) }}", std::string(100'000, 'x')));
  EXPECT_LT(message.size(), 1100u);
  EXPECT_TRUE(message.ends_with("..."));
}

TEST(ChatTemplate, ReservedVariablesAreRefused) {
  const json::Value messages(json::Array{});
  for (const char* name :
       {"messages", "tools", "tokenize", "chat_template", "add_generation_prompt", "bos_token", "range"}) {
    EXPECT_TRUE(ChatTemplate::is_reserved_variable(name));
    const json::Object variables{{name, 1}};
    ChatInput input{messages};
    input.variables = &variables;
    EXPECT_EQ(outcome(render("x", input)),
              std::string("error: chat template: the variable '") + name + "' is reserved");
  }
  EXPECT_FALSE(ChatTemplate::is_reserved_variable("enable_thinking"));
}

TEST(ChatTemplate, SourceThatIsNoUtf8OrTooLongIsRefused) {
  EXPECT_FALSE(ChatTemplate::parse("a\xff").ok());
  EXPECT_FALSE(ChatTemplate::parse(std::string(ChatTemplate::kMaxSourceBytes + 1, 'x')).ok());
}

// ---- hostile templates ----

TEST(ChatTemplate, HostileTemplatesEndWithAnError) {
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  std::string long_chain = "{{ 1";
  for (int i = 0; i < 20'000; ++i) long_chain += " + 1";
  std::string nested_loops;
  for (int i = 0; i < 100; ++i) nested_loops += "{% for x in range(10000) %}";
  std::string deep_ifs;
  for (int i = 0; i < 10'000; ++i) deep_ifs += "{% if 1 %}";
  for (const std::string& source : {
           std::string("{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}"),
           std::string("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}"),
           std::string("{{ 'a' * 10**9 }}"),
           std::string("{{ [0] * 10**9 }}"),
           std::string("{{ 10 ** 10 ** 10 }}"),
           std::string("{{ 2 ** 9223372036854775807 }}"),
           std::string("{{ 9223372036854775807 + 1 }}"),
           std::string("{{ (-9223372036854775807 - 1) // -1 }}"),
           std::string("{{ -(-9223372036854775807 - 1) }}"),
           std::string("{{ (-9223372036854775807 - 1) | abs }}"),
           std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string("{% macro a() %}{% call a() %}{% endcall %}{{ caller }}{% endmacro %}{{ a() }}"),
           std::string("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% "
                       "endfor %}"),
           std::string("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.s = ns.s | "
                       "replace('a', ns.s) "
                       "%}{% endfor %}"),
           std::string(
               "{% set ns = namespace(l=[1]) %}{% for i in range(1000) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
           std::string(
               "{% set ns = namespace(l=[1]) %}{% for i in range(1000) %}{% do ns.l.extend(ns.l) %}{% endfor %}"),
           std::string("{% set l = [] %}{% do l.append(l) %}{{ l }}"),
           std::string("{% set l = [] %}{% do l.append(l) %}{{ l | tojson }}"),
           std::string("{% set l = [] %}{% set m = [] %}{% do l.append(m) %}{% do m.append(l) %}{{ l == m }}"),
           std::string("{% set d = {} %}{% do d.update(x=d) %}{{ d | string | length }}"),
           std::string("{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = [ns.l, ns.l] %}{% "
                       "endfor %}{{ ns.l }}"),
           std::string("{{ 'x' | center(10**9) }}"),
           std::string("{{ 'x'.ljust(10**9) }}"),
           std::string("{{ 'x'.zfill(10**9) }}"),
           std::string("{{ '%999999999d' % 1 }}"),
           std::string("{{ '%.999999999f' % 1 }}"),
           std::string("{{ 'a\n' * 100000 | indent(100000) }}"),
           std::string("{{ range(10000) | map('string') | join('x' * 1000) }}"),
           std::string(
               "{% set s = 'x' * 1000000 %}{% for i in range(10000) %}{{ s | upper | lower | length }}{% endfor %}"),
           std::string("{% set s = 'x' * 1000000 %}{% for i in range(10000) %}{{ s[5] ~ s[::-1] }}{% endfor %}"),
           std::string(
               "{% set s = 'x' * 1000000 %}{% for i in range(10000) %}{% if s == s ~ '' %}{% endif %}{% endfor %}"),
           std::string("{% for i in range(10000) %}{{ range(10000) | sort | length }}{% endfor %}"),
           std::string("{{ range(10000) | map('center', 10000) | join | length }}"),
           std::string("{% for i in range(10000) %}") + std::string(2000, 'x') + "{% endfor %}",
           "{{ " + deep + " }}",
           "{{ " + std::string(100'000, '[') + " }}",
           "{{ " + std::string(100'000, '-') + "1 }}",
           "{{ " + std::string(100'000, '{') + " }}",
           long_chain + " }}",
           nested_loops,
           deep_ifs,
       }) {
    auto rendered = render_text(source);
    ASSERT_FALSE(rendered.ok()) << source.substr(0, 200) << " gives " << rendered->text.substr(0, 100);
    EXPECT_LT(rendered.error().message.size(), 200u);
  }
}

TEST(ChatTemplate, NestedDataEndsAtTheDepthLimit) {
  json::Value nested(json::Array{});
  for (int i = 0; i < 2000; ++i) nested = json::Array{std::move(nested)};
  ChatInput input{nested};
  EXPECT_FALSE(render("{{ messages | tojson }}", input).ok());
}

TEST(ChatTemplate, OrdinaryPromptsStayFarFromTheLimits) {
  // 500 turns of 1 kB.
  json::Array messages;
  for (int i = 0; i < 500; ++i) {
    messages.push_back(json::Object{{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(1000, 'x')}});
  }
  const json::Value value(std::move(messages));
  ChatInput input{value};
  auto rendered = render(read_file(kData + "backward_scan.jinja"), input);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_GT(rendered->text.size(), 500'000u);
}

TEST(ChatTemplate, LimitsAreTheCallers) {
  EXPECT_FALSE(render_text("{{ 'abcdef' }}", "", {.max_output_bytes = 5}).ok());
  EXPECT_TRUE(render_text("{{ 'abcde' }}", "", {.max_output_bytes = 5}).ok());
  EXPECT_FALSE(render_text("{{ range(4) | length }}", "", {.max_range = 3}).ok());
  EXPECT_FALSE(render_text("{% for i in range(50) %}{{ i }}{% endfor %}", "", {.max_steps = 100}).ok());
}

// ---- the origin of text ----

/// The text with what came from input in brackets.
std::string marked(const Result<Rendered>& result) {
  if (!result.ok()) return outcome(result);
  std::string out;
  std::size_t done = 0;
  for (const TextRange& range : result->from_input) {
    out += result->text.substr(done, range.begin - done) + "[" +
           result->text.substr(range.begin, range.end - range.begin) + "]";
    done = range.end;
  }
  return out + result->text.substr(done);
}

TEST(ChatTemplateOrigin, FollowsTextThroughEveryOperation) {
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ c }}>", "<[ Héllo wörld ]>"},
      {"{{ '<' + c + '>' }}", "<[ Héllo wörld ]>"},
      {"{{ '<' ~ c ~ '>' }}", "<[ Héllo wörld ]>"},
      {"{{ ('<' + c + '>') | trim }}", "<[ Héllo wörld ]>"},
      {"{{ ('<' + c | trim + '>')[1:4] }}", "[Hél]"},
      {"{{ ('<' + c | trim + '>')[:3] }}", "<[Hé]"},
      {"{{ ('<' + c | trim + '>')[::-1] }}", ">[dlröw olléH]<"},
      {"{{ ('a' + c | trim) | upper }}", "A[HÉLLO WÖRLD]"},
      {"{{ ('a' + c | trim) | title }}", "A[héllo Wörld]"},
      {"{{ ('ab' + c | trim) | reverse }}", "[dlröw olléH]ba"},
      {"{{ ('o' + c | trim) | replace('o', '0') }}", "0[Héll]0[ wörld]"},
      {"{{ 'x-y' | replace('-', c) }}", "x[ Héllo wörld ]y"},
      {"{{ (c ~ '|' ~ 'b').split('|')[0] }}", "[ Héllo wörld ]"},
      {"{{ (c ~ '|' ~ 'b').split('|')[1] }}", "b"},
      {"{{ c.split() | join('-') }}", "[Héllo]-[wörld]"},
      {"{{ ['a', c, 'b'] | join(',') }}", "a,[ Héllo wörld ],b"},
      {"{{ ', '.join([c, 'z']) }}", "[ Héllo wörld ], z"},
      {"{{ c.strip().partition(' ')[2] ~ '!' }}", "[wörld]!"},
      {"{{ '%s=%s' % ('k', c) }}", "k=[ Héllo wörld ]"},
      {"{{ '{}={}'.format('k', c.strip()) }}", "k=[Héllo wörld]"},
      {"{{ 'k' ~ c | tojson }}", "k[\" Héllo wörld \"]"},
      {"{{ {'a': c} | tojson }}", "[{\"a\": \" Héllo wörld \"}]"},
      {"{{ {'a': 'b'} | tojson }}", "{\"a\": \"b\"}"},
      {"{{ [c.strip()] }}", "['[Héllo wörld]']"},
      {"{{ c.strip() | indent(2, true) }}", "  [Héllo wörld]"},
      {"{{ c | escape }}", "[ Héllo wörld ]"},
      {"{{ c.strip() | center(15) }}", "  [Héllo wörld]  "},
      {"{{ c | truncate(6, true) }}", "[ Hé]..."},
      {"{% set x %}<{{ c }}>{% endset %}{{ x }}", "<[ Héllo wörld ]>"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(c) }}", "<[ Héllo wörld ]>"},
      {"{% filter upper %}a{{ c.strip() }}{% endfilter %}", "A[HÉLLO WÖRLD]"},
      {"{% for ch in c.strip()[:3] %}{{ ch }}.{% endfor %}", "[H].[é].[l]."},
      {"{% set ns = namespace(s='') %}{% set ns.s = ns.s + c.strip() %}{{ ns.s }}", "[Héllo wörld]"},
      {"{{ c if c in [c] else 'no' }}", "[ Héllo wörld ]"},
      {"{{ {c: 1}.keys() | first }}", "[ Héllo wörld ]"},
      {"{{ messages | map(attribute='content') | first }}", "[ Héllo wörld ]"},
      {"{{ [c, 'b'] | sort | last }}", "b"},
      {"{{ c | length }}{{ c == 'x' }}", "13False"},
      {"{{ messages[0].role }}", "user"},
      {"{{ '<|' + messages[0].role + '|>' + c.strip() }}", "<|user|>[Héllo wörld]"},
  };
  for (const auto& [source, wanted] : cases) {
    const std::string whole = std::string("{% set c = messages[0].content %}") + source;
    EXPECT_EQ(marked(render_text(whole, " Héllo wörld ")), wanted) << source;
  }
}

TEST(ChatTemplateOrigin, UnknownRolesNamesToolsAndVariablesAreInput) {
  const json::Value messages = parsed(R"([{"role": "<|im_start|>", "name": "n", "content": "c"}])");
  const json::Value tools = parsed(R"([{"type": "function"}])");
  const json::Object variables{{"style", "s"}};
  ChatInput input{messages};
  input.tools = &tools;
  input.variables = &variables;
  input.bos_token = "<s>";
  EXPECT_EQ(
      marked(render(
          "{{ bos_token }}{% for m in messages %}{{ m.role }}-{{ m.name }}{% endfor %}-{{ tools[0].type }}-{{ style }}"
          "{% for k in tools[0] %}-{{ k }}{% endfor %}",
          input)),
      "<s>[<|im_start|>]-[n]-[function]-[s]-[type]");
}

TEST(ChatTemplateOrigin, AHistoryWithAnEmptyListOfCallsRendersAsWithoutIt) {
  const json::Value with =
      parsed(R"([{"role":"user","content":"x"},{"role":"assistant","content":"y","tool_calls":[]}])");
  const json::Value without = parsed(R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"}])");
  const std::string source = read_file(kData + "backward_scan.jinja");
  EXPECT_EQ(outcome(render(source, ChatInput{with})), outcome(render(source, ChatInput{without})));
}

TEST(CivilTime, CountsDaysInBothDirections) {
  auto text = [](std::int64_t seconds) {
    const CivilTime time = civil_time(seconds);
    return cat(time.year, "-", time.month, "-", time.day, " ", time.hour, ":", time.minute, ":", time.second);
  };
  EXPECT_EQ(text(0), "1970-1-1 0:0:0");
  EXPECT_EQ(text(-1), "1969-12-31 23:59:59");
  EXPECT_EQ(text(951782400), "2000-2-29 0:0:0");
  EXPECT_EQ(text(1741507507), "2025-3-9 8:5:7");
  EXPECT_EQ(text(4107542400), "2100-3-1 0:0:0");
}

}  // namespace
}  // namespace quire
