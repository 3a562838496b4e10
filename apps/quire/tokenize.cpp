// quire tokenize: text to token ids.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "quire/engine/tokenizer_data.h"
#include "quire/json/json.h"
#include "quire/model/gguf.h"
#include "quire/text/tokenizer.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;

struct TokenizeFlags {
  std::string model_path;
  std::optional<std::string> text;
  bool json_lines = false, special = false, bos = false, pieces = false;
};

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  QUIRE_TRY(auto file, model::GgufFile::open(path));
  QUIRE_TRY(auto data, engine::tokenizer_data(file));
  return Tokenizer::create(std::move(data));
}

Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view text, const TokenizeFlags& flags) {
  QUIRE_TRY(auto ids, tokenizer.encode(text, flags.special ? SpecialTokens::parsed : SpecialTokens::as_text));
  if (flags.bos) {
    if (!tokenizer.bos()) return fail("--bos: the model has no BOS token");
    ids.insert(ids.begin(), *tokenizer.bos());
  }
  return ids;
}

std::string as_array(const std::vector<TokenId>& ids) {
  std::string line = "[";
  for (TokenId id : ids) line += cat(line.size() > 1 ? ", " : "", id);
  return line + "]\n";
}

std::string as_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string lines;
  for (TokenId id : ids) {
    lines += cat(id, "\t");
    json::append_string(lines, tokenizer.token_bytes(id));
    lines += '\n';
  }
  return lines;
}

Result<void> tokenize_lines(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  LineReader input;
  std::string line;
  for (std::size_t number = 1; input.next(line); ++number) {
    auto value = json::parse(line, {.max_bytes = kMaxInputBytes});
    if (!value.ok()) return fail("line ", number, ": ", value.error().message, "; wanted a JSON string");
    const std::string* text = value->if_string();
    if (text == nullptr) return fail("line ", number, ": found ", json::kind_name(value->kind()), ", wanted a string");
    auto ids = encode(tokenizer, *text, flags);
    if (!ids.ok()) return fail("line ", number, ": ", ids.error().message);
    // A caller that waits for each answer gets it at once; one that pipes a whole file is not slowed down.
    if (!write_output(as_array(*ids)) || (!input.ready() && !flush_output())) return {};
  }
  if (!input.error().empty()) return fail(input.error());
  return {};
}

Result<void> tokenize(const TokenizeFlags& flags) {
  QUIRE_TRY(auto tokenizer, open_tokenizer(flags.model_path));
  if (flags.json_lines) return tokenize_lines(*tokenizer, flags);
  std::string text;
  if (flags.text) {
    text = *flags.text;
  } else {
    QUIRE_TRY(text, read_input(kMaxInputBytes));
  }
  QUIRE_TRY(auto ids, encode(*tokenizer, text, flags));
  write_output(flags.pieces ? as_pieces(*tokenizer, ids) : as_array(ids));
  return {};
}

}  // namespace

void add_tokenize(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<TokenizeFlags>();
  auto* command = app.add_subcommand("tokenize", "Token ids of a text, as a JSON array");
  add_model(*command, flags->model_path);
  auto* text = command->add_option("TEXT", flags->text, "The text (default: all of standard input, as it is)");
  auto* lines = command->add_flag("--json-lines", flags->json_lines,
                                  "Read one JSON string a line, write one array of ids a line");
  lines->excludes(text);
  command->add_flag("--special", flags->special, "Parse control tokens spelled in the text");
  command->add_flag("--bos", flags->bos, "Put BOS in front");
  command->add_flag("--pieces", flags->pieces, "A line for each token: its id, a tab, its text as a JSON string")
      ->excludes(lines);
  command->callback([flags, &chosen] {
    chosen = [flags] {
      auto done = tokenize(*flags);
      if (!done.ok()) {
        flush_output();
        report(cat("tokenize: ", done.error().message));
      }
      return done.ok() ? kDone : kFailed;
    };
  });
}

}  // namespace quire::cli
