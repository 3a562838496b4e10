#include "quire/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "quire/text/byte_level.h"
#include "quire/text/detokenizer.h"
#include "quire/text/text_encoder.h"
#include "quire/text/token_table.h"
#include "quire/text/utf8.h"

namespace quire {

struct Tokenizer::Impl {
  TokenizerData data;
  bool sentencepiece = false;
  std::unique_ptr<TextEncoder> encoder;
  TextTable by_name;
  std::string bytes;                   ///< of all tokens, one after the other
  std::vector<std::uint32_t> offsets;  ///< [vocab_size + 1] into bytes
  LongestMatcher user_defined;
  LongestMatcher all_special;  ///< user-defined, control and unknown tokens
  std::vector<TokenId> end_tokens;

  Result<void> check_sizes() const;
  Result<void> check_ids() const;
  Result<void> load();
  void load_bytes();
  Result<void> load_special();
  void load_end_tokens();

  std::string bytes_of(std::size_t id) const;
  TokenType type(TokenId id) const { return type_of(data, static_cast<std::size_t>(id.value)); }

  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special,
                                      std::span<const TextRange> plain) const;
  std::vector<TokenId> encode_prepared(std::string_view text, SpecialTokens special,
                                       std::span<const TextRange> plain) const;
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;
};

namespace {

constexpr std::size_t kMaxVocabularyBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxVocabulary = std::size_t{1} << 24;

/// Control tokens of these names end a generation in every family that has them.
constexpr std::string_view kEndTokenNames[] = {
    "<|im_end|>",    "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<end_of_turn>", "<EOT>",         "<|EOT|>",    "<_EOT_>",    "<|end_of_turn|>", "</s>",
};

/// Ranges of a text as ranges of escape_spaces(text).
std::vector<TextRange> escape_ranges(std::string_view text, std::span<const TextRange> ranges) {
  std::vector<TextRange> out(ranges.begin(), ranges.end());
  std::size_t at = 0;
  std::size_t grown = 0;
  const auto moved = [&](std::size_t position) {
    for (; at < position; ++at) grown += text[at] == ' ' ? kEscapedSpace.size() - 1 : 0;
    return position + grown;
  };
  for (TextRange& range : out) {
    range.begin = moved(range.begin);
    range.end = moved(range.end);
  }
  return out;
}

/// Walks along sorted ranges with positions that do not fall.
class RangeWalker {
 public:
  explicit RangeWalker(std::span<const TextRange> ranges) : ranges_(ranges) {}

  bool touches(std::size_t begin, std::size_t end) {
    while (next_ < ranges_.size() && (ranges_[next_].end <= begin || ranges_[next_].begin == ranges_[next_].end))
      ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin < end;
  }

 private:
  std::span<const TextRange> ranges_;
  std::size_t next_ = 0;
};

}  // namespace

Result<void> Tokenizer::Impl::check_sizes() const {
  const std::size_t count = data.tokens.size();
  if (count == 0) return fail("tokenizer.ggml.tokens: found no tokens");
  if (count > kMaxVocabulary) {
    return fail("tokenizer.ggml.tokens: found ", count, " entries, the limit is ", kMaxVocabulary);
  }
  if (!data.types.empty() && data.types.size() != count) {
    return fail("tokenizer.ggml.token_type: found ", data.types.size(), " entries, wanted one for each of the ", count,
                " tokens");
  }
  for (std::size_t id = 0; id < data.types.size(); ++id) {
    if (data.types[id] < 0 || data.types[id] > 6) {
      return fail("tokenizer.ggml.token_type[", id, "]: found ", data.types[id], ", wanted 1 to 6");
    }
  }
  std::size_t total_bytes = 0;
  for (const std::string& token : data.tokens) total_bytes += token.size();
  if (total_bytes > kMaxVocabularyBytes) {
    return fail("tokenizer.ggml.tokens: found ", total_bytes, " bytes of text, the limit is ", kMaxVocabularyBytes);
  }
  return {};
}

Result<void> Tokenizer::Impl::check_ids() const {
  const auto check = [this](std::string_view key, std::optional<TokenId> id) -> Result<void> {
    if (!id || (id->value >= 0 && static_cast<std::size_t>(id->value) < data.tokens.size())) return {};
    return fail(key, ": found ", *id, ", the vocabulary has ", data.tokens.size(), " tokens");
  };
  QUIRE_TRY_VOID(check("tokenizer.ggml.bos_token_id", data.bos));
  QUIRE_TRY_VOID(check("tokenizer.ggml.eos_token_id", data.eos));
  QUIRE_TRY_VOID(check("tokenizer.ggml.eot_token_id", data.eot));
  QUIRE_TRY_VOID(check("tokenizer.ggml.unknown_token_id", data.unk));
  QUIRE_TRY_VOID(check("tokenizer.ggml.padding_token_id", data.pad));
  for (TokenId id : data.extra_end_tokens) QUIRE_TRY_VOID(check("end token", id));
  if (data.add_bos && !data.bos) {
    return fail("tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  if (data.add_eos && !data.eos) {
    return fail("tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
  }
  return {};
}

Result<void> Tokenizer::Impl::load() {
  QUIRE_TRY_VOID(check_sizes());
  QUIRE_TRY_VOID(check_ids());
  if (data.model != "gpt2" && data.model != "llama") {
    return fail("tokenizer.ggml.model: found '", data.model,
                "', supported: gpt2 (byte-level BPE), llama (SentencePiece)");
  }
  sentencepiece = data.model == "llama";
  QUIRE_TRY(encoder, sentencepiece ? make_sentencepiece_encoder(data) : make_byte_level_encoder(data));
  data.merges = {};
  data.scores = {};
  by_name = TextTable(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) by_name.add(data.tokens[id], static_cast<std::int32_t>(id));
  load_bytes();
  QUIRE_TRY_VOID(load_special());
  load_end_tokens();
  return {};
}

std::string Tokenizer::Impl::bytes_of(std::size_t id) const {
  const std::string& name = data.tokens[id];
  const TokenType type = type_of(data, id);
  if (is_control_type(type)) return name;
  if (!sentencepiece) return type == TokenType::user_defined ? name : byte_level_bytes(name).value_or(name);
  if (type == TokenType::byte) {
    if (const auto byte = byte_token_value(name)) return std::string(1, static_cast<char>(*byte));
  }
  return unescape_spaces(name);
}

void Tokenizer::Impl::load_bytes() {
  offsets.reserve(data.tokens.size() + 1);
  offsets.push_back(0);
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    bytes += bytes_of(id);
    offsets.push_back(static_cast<std::uint32_t>(bytes.size()));
  }
}

Result<void> Tokenizer::Impl::load_special() {
  std::vector<LongestMatcher::Entry> written;
  std::vector<LongestMatcher::Entry> all;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = type_of(data, id);
    if (type != TokenType::user_defined && !is_control_type(type)) continue;
    const std::string& name = data.tokens[id];
    if (name.size() > kMaxSpecialTokenBytes) {
      return fail("tokenizer.ggml.tokens[", id, "]: a special token of ", name.size(), " bytes, the limit is ",
                  kMaxSpecialTokenBytes);
    }
    const LongestMatcher::Entry entry{sentencepiece ? escape_spaces(name) : name, static_cast<std::int32_t>(id)};
    all.push_back(entry);
    if (type == TokenType::user_defined) written.push_back(entry);
  }
  user_defined = LongestMatcher(std::move(written));
  all_special = LongestMatcher(std::move(all));
  return {};
}

void Tokenizer::Impl::load_end_tokens() {
  end_tokens = data.extra_end_tokens;
  if (data.eos) end_tokens.push_back(*data.eos);
  if (data.eot) end_tokens.push_back(*data.eot);
  for (std::string_view name : kEndTokenNames) {
    const TokenId id{by_name.find(name)};
    if (id.value >= 0 && type(id) == TokenType::control) end_tokens.push_back(id);
  }
  std::sort(end_tokens.begin(), end_tokens.end());
  end_tokens.erase(std::unique(end_tokens.begin(), end_tokens.end()), end_tokens.end());
}

Result<std::vector<TokenId>> Tokenizer::Impl::encode(std::string_view text, SpecialTokens special,
                                                     std::span<const TextRange> plain) const {
  if (text.size() > kMaxTextBytes) return fail("text of ", text.size(), " bytes, the limit is ", kMaxTextBytes);
  if (const auto position = first_invalid_utf8(text)) {
    return fail("the text is not valid UTF-8: ill-formed at byte ", *position);
  }
  if (!sentencepiece) return encode_prepared(text, special, plain);
  return encode_prepared(escape_spaces(text), special, escape_ranges(text, plain));
}

std::vector<TokenId> Tokenizer::Impl::encode_prepared(std::string_view text, SpecialTokens special,
                                                      std::span<const TextRange> plain) const {
  std::vector<TokenId> out;
  const LongestMatcher& matcher = special == SpecialTokens::parsed ? all_special : user_defined;
  RangeWalker plain_ranges(plain);
  std::size_t piece_begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (matcher.never_begins(text[at])) {
      ++at;
      continue;
    }
    const auto match = matcher.find(text.substr(at), [&](std::size_t length, std::int32_t id) {
      return type({id}) == TokenType::user_defined || !plain_ranges.touches(at, at + length);
    });
    if (match.length == 0) {
      ++at;
      continue;
    }
    encode_piece(text.substr(piece_begin, at - piece_begin), out);
    out.push_back({match.id});
    piece_begin = at += match.length;
  }
  encode_piece(text.substr(piece_begin), out);
  return out;
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (sentencepiece && data.add_space_prefix) {
    encoder->encode(std::string(kEscapedSpace).append(piece), out);
  } else {
    encoder->encode(piece, out);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(TokenizerData data) {
  auto impl = std::make_unique<Impl>();
  impl->data = std::move(data);
  QUIRE_TRY_VOID(impl->load());
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  return impl_->encode(text, special, {});
}

Result<std::vector<TokenId>> Tokenizer::encode_with_plain_ranges(std::string_view text,
                                                                 std::span<const TextRange> plain) const {
  std::size_t end = 0;
  for (const TextRange& range : plain) {
    QUIRE_CHECK(range.begin >= end && range.begin <= range.end && range.end <= text.size(), "range ", range.begin, "..",
                range.end);
    end = range.end;
  }
  return impl_->encode(text, SpecialTokens::parsed, plain);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!contains(id)) return {};
  const auto index = static_cast<std::size_t>(id.value);
  return std::string_view(impl_->bytes)
      .substr(impl_->offsets[index], impl_->offsets[index + 1] - impl_->offsets[index]);
}

bool Tokenizer::is_control(TokenId id) const { return contains(id) && is_control_type(impl_->type(id)); }

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  Detokenizer detokenizer(*this, options);
  std::string out;
  for (TokenId id : ids) out += detokenizer.push(id);
  out += detokenizer.finish();
  return out;
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->data.tokens.size()); }
std::optional<TokenId> Tokenizer::bos() const { return impl_->data.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->data.eos; }
std::optional<TokenId> Tokenizer::unk() const { return impl_->data.unk; }
std::optional<TokenId> Tokenizer::pad() const { return impl_->data.pad; }
bool Tokenizer::add_bos() const { return impl_->data.add_bos; }
bool Tokenizer::add_eos() const { return impl_->data.add_eos; }
bool Tokenizer::add_space_prefix() const { return impl_->sentencepiece && impl_->data.add_space_prefix; }
std::span<const TokenId> Tokenizer::end_tokens() const { return impl_->end_tokens; }

bool Tokenizer::is_end(TokenId id) const {
  return std::binary_search(impl_->end_tokens.begin(), impl_->end_tokens.end(), id);
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const std::int32_t id = impl_->by_name.find(token);
  if (id < 0) return std::nullopt;
  return TokenId{id};
}

}  // namespace quire
