// Renders chat templates; what the differential script compares with jinja2.
//
//   render_tool < REQUESTS > ANSWERS
//
// Each line of REQUESTS is an object: "template", "messages", and optionally "tools", "add_generation_prompt",
// "bos_token", "eos_token", "variables" and "now" ([year, month, day, hour, minute, second]). Each line of ANSWERS is
// {"text": ..., "from_input": [[begin, end], ...]} or {"error": ...}.

#include <iostream>
#include <string>

#include "quire/json/json.h"
#include "quire/text/chat_template.h"

namespace {

using namespace quire;

std::string text_at(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value ? value->as_string() : "";
}

Result<Rendered> render(const json::Value& request) {
  QUIRE_TRY(const auto chat_template, ChatTemplate::parse(text_at(request, "template")));
  const json::Value none(json::Array{});
  const json::Value* messages = request.find("messages");
  const json::Value* prompt = request.find("add_generation_prompt");
  const json::Value* variables = request.find("variables");
  ChatInput input{messages ? *messages : none};
  input.tools = request.find("tools");
  input.add_generation_prompt = prompt && prompt->as_bool();
  input.bos_token = text_at(request, "bos_token");
  input.eos_token = text_at(request, "eos_token");
  input.variables = variables ? variables->if_object() : nullptr;
  if (const json::Value* now = request.find("now")) {
    auto part = [&](std::size_t i) { return static_cast<int>(now->as_array().at(i).as_int()); };
    input.now = {part(0), part(1), part(2), part(3), part(4), part(5)};
  }
  return chat_template.render(input);
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    auto request = json::parse(line);
    if (!request.ok()) {
      std::cerr << "render_tool: " << request.error().message << '\n';
      return 2;
    }
    std::string out;
    json::Writer writer(out);
    auto rendered = render(*request);
    writer.begin_object();
    if (rendered.ok()) {
      writer.field("text", rendered->text).key("from_input").begin_array();
      for (const auto& range : rendered->from_input) {
        writer.begin_array().value(range.begin).value(range.end).end_array();
      }
      writer.end_array();
    } else {
      writer.field("error", rendered.error().message);
    }
    writer.end_object();
    std::cout << out << '\n';
  }
  return 0;
}
