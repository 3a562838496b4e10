// Tokenises texts with a vocabulary given as JSON; what the differential scripts compare with other implementations.
//
//   tokenize_tool VOCABULARY.json < TEXTS > IDS
//   tokenize_tool --words PRE_TOKENIZER < TEXTS > LENGTHS     the lengths in bytes of the words of each text
//
// VOCABULARY.json is an object with the fields of TokenizerData (ids as numbers). Each line of TEXTS is a JSON string,
// or an object {"text": ..., "special": true}; each line of IDS is an array of ids, or an object {"error": ...}. With
// --decode as second argument each line of input is an array of ids and each line of output a string. With --time the
// whole input is one text (not JSON), and the output is the times of loading and encoding.

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "quire/json/json.h"
#include "quire/text/pretokenizer.h"
#include "quire/text/tokenizer.h"

namespace {

using namespace quire;

std::string read_all(std::istream& in) {
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

std::optional<TokenId> optional_id(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return TokenId{static_cast<std::int32_t>(value->as_int())};
}

bool flag(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->as_bool();
}

template <class Add>
void for_each_in(const json::Value& object, std::string_view key, Add&& add) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return;
  for (const json::Value& item : value->as_array()) add(item);
}

TokenizerData read_vocabulary(const json::Value& v) {
  TokenizerData data;
  data.model = v.find("model")->as_string();
  if (const json::Value* pre = v.find("pre")) data.pre = pre->as_string();
  for_each_in(v, "tokens", [&](const json::Value& item) { data.tokens.push_back(item.as_string()); });
  for_each_in(v, "scores",
              [&](const json::Value& item) { data.scores.push_back(static_cast<float>(item.as_number())); });
  for_each_in(v, "types",
              [&](const json::Value& item) { data.types.push_back(static_cast<std::int32_t>(item.as_int())); });
  for_each_in(v, "merges", [&](const json::Value& item) { data.merges.push_back(item.as_string()); });
  data.bos = optional_id(v, "bos");
  data.eos = optional_id(v, "eos");
  data.unk = optional_id(v, "unk");
  data.add_space_prefix = flag(v, "add_space_prefix");
  return data;
}

std::string encode_line(const Tokenizer& tokenizer, const json::Value& line) {
  const bool parse = line.is_object() && flag(line, "special");
  const std::string& text = line.is_object() ? line.find("text")->as_string() : line.as_string();
  auto ids = tokenizer.encode(text, parse ? SpecialTokens::parsed : SpecialTokens::as_text);
  if (!ids.ok()) return json::dump(json::Object{{"error", ids.error().message}});
  json::Array out;
  for (TokenId id : *ids) out.push_back(id.value);
  return json::dump(out);
}

std::string decode_line(const Tokenizer& tokenizer, const json::Value& line) {
  std::vector<TokenId> ids;
  for (const json::Value& id : line.as_array()) ids.push_back({static_cast<std::int32_t>(id.as_int())});
  return json::dump(json::Value(tokenizer.decode(ids, {.at_text_start = true})));
}

std::string word_lengths(PreTokenizer pre, const std::string& text) {
  json::Array lengths;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(pre, text, begin);
    lengths.push_back(end - begin);
    begin = end;
  }
  return json::dump(lengths);
}

/// Answers each line of the input, a JSON value.
template <class Answer>
int answer_lines(Answer&& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    auto value = json::parse(line);
    if (!value.ok()) {
      std::cerr << "input: " << value.error().message << "\n";
      return 1;
    }
    std::cout << answer(*value) << "\n";
  }
  return 0;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

int time_encode(const Tokenizer& tokenizer, double load_ms) {
  const std::string text = read_all(std::cin);
  const auto start = std::chrono::steady_clock::now();
  auto ids = tokenizer.encode(text, SpecialTokens::as_text);
  const double encode_ms = milliseconds_since(start);
  if (!ids.ok()) {
    std::cerr << ids.error().message << "\n";
    return 1;
  }
  std::cout << "load_ms " << load_ms << " bytes " << text.size() << " tokens " << ids->size() << " encode_ms "
            << encode_ms << " MB/s " << static_cast<double>(text.size()) / encode_ms / 1e3 << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: tokenize_tool VOCABULARY.json [--decode | --time]\n";
    return 2;
  }
  if (argc == 3 && std::string(argv[1]) == "--words") {
    const auto pre = pretokenizer_named(argv[2]);
    if (!pre) {
      std::cerr << "pre-tokenizers: " << kPreTokenizerNames << "\n";
      return 2;
    }
    return answer_lines([&](const json::Value& line) { return word_lengths(*pre, line.as_string()); });
  }
  const std::string mode = argc == 3 ? argv[2] : "";
  std::ifstream file(argv[1]);
  auto vocabulary = json::parse(read_all(file));
  if (!vocabulary.ok()) {
    std::cerr << argv[1] << ": " << vocabulary.error().message << "\n";
    return 1;
  }
  TokenizerData data = read_vocabulary(*vocabulary);
  const auto start = std::chrono::steady_clock::now();
  auto tokenizer = Tokenizer::create(std::move(data));
  const double load_ms = milliseconds_since(start);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.error().message << "\n";
    return 1;
  }
  if (mode == "--time") return time_encode(**tokenizer, load_ms);
  return answer_lines([&](const json::Value& line) {
    return mode == "--decode" ? decode_line(**tokenizer, line) : encode_line(**tokenizer, line);
  });
}
