// Fuzzes tokenizers with vocabularies and texts made from the input: any vocabulary is taken or refused; ids are within
// it; decoding gives valid UTF-8, the text itself where the vocabulary has every byte, and the same streamed as at
// once.

#include <fuzzer/FuzzedDataProvider.h>

#include <string>
#include <vector>

#include "quire/base/check.h"
#include "quire/text/detokenizer.h"
#include "quire/text/stop_strings.h"
#include "quire/text/tokenizer.h"

namespace {

using namespace quire;

void add_token(TokenizerData& data, std::string name, std::int32_t type, float score) {
  data.tokens.push_back(std::move(name));
  data.types.push_back(type);
  data.scores.push_back(score);
}

/// The 256 bytes, in the spelling of the kind of vocabulary.
void add_bytes(TokenizerData& data) {
  const bool byte_level = data.model == "gpt2";
  const std::string digits = "0123456789ABCDEF";
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    std::string name;
    append_utf8(name, printable ? byte : next++);
    if (!byte_level) name = "<0x" + digits.substr(byte / 16, 1) + digits.substr(byte % 16, 1) + ">";
    add_token(data, name, byte_level ? 1 : 6, 0);
  }
}

struct Case {
  TokenizerData data;
  bool complete;  ///< every byte has a token
};

Case make_case(FuzzedDataProvider& in) {
  Case c;
  c.data.model = in.PickValueInArray({"gpt2", "llama", "bert"});
  c.data.pre = in.PickValueInArray({"gpt-2", "smollm", "llama-bpe", "qwen2", "default"});
  c.complete = in.ConsumeBool();
  if (c.complete) add_bytes(c.data);
  const int num_tokens = in.ConsumeIntegralInRange(0, 12);
  for (int i = 0; i < num_tokens; ++i) {
    const int type = in.ConsumeIntegralInRange(-1, 7);
    add_token(c.data, in.ConsumeRandomLengthString(8), type, static_cast<float>(in.ConsumeIntegralInRange(-9, 9)));
  }
  const int num_merges = in.ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < num_merges; ++i) c.data.merges.push_back(in.ConsumeRandomLengthString(9));
  // Also merges that can be: of two tokens whose joined name is a token too.
  const int num_real_merges = in.ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < num_real_merges && !c.data.tokens.empty(); ++i) {
    const std::size_t last = c.data.tokens.size() - 1;
    const std::string left = c.data.tokens[in.ConsumeIntegralInRange<std::size_t>(0, last)];
    const std::string right = c.data.tokens[in.ConsumeIntegralInRange<std::size_t>(0, last)];
    add_token(c.data, left + right, 1, static_cast<float>(in.ConsumeIntegralInRange(-9, 9)));
    c.data.merges.push_back(left + " " + right);
  }
  if (in.ConsumeBool()) c.data.unk = TokenId{in.ConsumeIntegralInRange(-1, 300)};
  if (in.ConsumeBool()) c.data.eos = TokenId{in.ConsumeIntegralInRange(-1, 300)};
  c.data.add_space_prefix = in.ConsumeBool();
  return c;
}

void check_ids(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (TokenId id : ids) QUIRE_CHECK(tokenizer.contains(id));
  for (ControlTokens control : {ControlTokens::skip, ControlTokens::show}) {
    const std::string at_once = tokenizer.decode(ids, {.control_tokens = control});
    QUIRE_CHECK(is_valid_utf8(at_once));
    Detokenizer detokenizer(tokenizer, {.control_tokens = control});
    std::string streamed;
    for (TokenId id : ids) streamed += detokenizer.push(id);
    QUIRE_CHECK(streamed + detokenizer.finish() == at_once);
  }
}

/// Where decoding must give the text back: all bytes have tokens, none of which the fuzzed vocabulary redefines, and
/// the kind of tokenizer loses nothing.
bool round_trips(const Case& c, std::size_t num_tokens) {
  return c.complete && num_tokens == 256 && c.data.model == "gpt2" && c.data.pre != "qwen2";
}

void check_stops(const std::string& text, FuzzedDataProvider& in) {
  const std::vector<std::string> stops = {in.ConsumeRandomLengthString(4), in.ConsumeRandomLengthString(4)};
  StopMatcher at_once(stops);
  std::string whole = at_once.feed(text).text;
  whole += at_once.finish();
  StopMatcher by_bytes(stops);
  std::string pieces;
  for (char c : text) pieces += by_bytes.feed(std::string_view(&c, 1)).text;
  pieces += by_bytes.finish();
  QUIRE_CHECK(pieces == whole && by_bytes.matched() == at_once.matched());
  QUIRE_CHECK(text.compare(0, whole.size(), whole) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  FuzzedDataProvider in(bytes, size);
  Case c = make_case(in);
  const std::size_t num_tokens = c.data.tokens.size();
  const bool lossless = round_trips(c, num_tokens);
  auto tokenizer = Tokenizer::create(std::move(c.data));
  check_stops(in.ConsumeRandomLengthString(64), in);
  if (!tokenizer.ok()) return 0;
  const std::string raw = in.ConsumeRemainingBytesAsString();
  const bool valid = is_valid_utf8(raw);
  QUIRE_CHECK((*tokenizer)->encode(raw, SpecialTokens::as_text).ok() == valid);
  const std::string text = replace_invalid_utf8(raw);
  for (SpecialTokens special : {SpecialTokens::as_text, SpecialTokens::parsed}) {
    auto ids = (*tokenizer)->encode(text, special);
    QUIRE_CHECK(ids.ok());
    check_ids(**tokenizer, *ids);
    if (lossless) QUIRE_CHECK((*tokenizer)->decode(*ids) == text);
  }
  auto plain = (*tokenizer)->encode_with_plain_ranges(text, std::vector<TextRange>{{0, text.size()}});
  QUIRE_CHECK(plain.ok() && *plain == *(*tokenizer)->encode(text, SpecialTokens::as_text));
  return 0;
}
