#pragma once
// Reads the golden files of tests/data/goldens.

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/check.h"
#include "quire/base/ids.h"
#include "quire/json/json.h"
#include "tests/support/models.h"

namespace quire::test {

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  QUIRE_CHECK(in.good(), "cannot read ", path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Unpacks with gzip(1), which every Debian has.
inline std::string read_gzip(const std::string& path) {
  const std::string command = "gzip -dc '" + path + "'";
  std::FILE* pipe = popen(command.c_str(), "r");
  QUIRE_CHECK(pipe != nullptr, command);
  std::string text;
  char buffer[1 << 16];
  while (std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  QUIRE_CHECK(pclose(pipe) == 0, command);
  return text;
}

inline json::Value parse_json(const std::string& text) {
  auto value = json::parse(text);
  QUIRE_CHECK(value.ok(), value.error().message);
  return *std::move(value);
}

inline json::Value read_json(const std::string& path) { return parse_json(read_text(path)); }

inline std::vector<TokenId> golden_ids(const json::Value& array) {
  std::vector<TokenId> ids;
  for (const auto& id : array.as_array()) ids.push_back(TokenId{static_cast<std::int32_t>(id.as_int())});
  return ids;
}

/// What the reference answered to a prompt, greedily.
struct GoldenAnswer {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<double> margin;  ///< [greedy.size()] logprob of the best token minus that of the second
};

inline std::vector<GoldenAnswer> read_golden_answers(const RealModel& real) {
  const json::Value file = parse_json(read_gzip(golden_path(real, "logits.json.gz")));
  std::vector<GoldenAnswer> answers;
  for (const json::Value& entry : file.as_array()) {
    GoldenAnswer& answer = answers.emplace_back();
    answer.prompt = golden_ids(*entry.find("prompt_ids"));
    answer.greedy = golden_ids(*entry.find("greedy_ids"));
    for (const auto& margin : entry.find("margin")->as_array()) answer.margin.push_back(margin.as_number());
  }
  return answers;
}

}  // namespace quire::test
