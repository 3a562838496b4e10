#include "quire/text/utf8.h"

namespace quire {
namespace {

unsigned byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

/// How many bytes a character of this lead byte has, and the range of its second byte (Unicode 15, table 3-7).
struct Lead {
  int length = 0;  ///< 0: no character begins with this byte
  unsigned low = 0x80;
  unsigned high = 0xBF;
};

Lead classify(unsigned lead) {
  if (lead < 0xC2) return {};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const unsigned first = byte_at(bytes, 0);
  if (first < 0x80) return {Utf8Step::Kind::character, 1, first};
  const Lead lead = classify(first);
  if (lead.length == 0) return {Utf8Step::Kind::invalid, 1, 0xFFFD};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    const auto seen = static_cast<std::uint8_t>(i);
    if (bytes.size() == seen) return {Utf8Step::Kind::incomplete, seen, 0xFFFD};
    const unsigned next = byte_at(bytes, seen);
    const unsigned low = i == 1 ? lead.low : 0x80;
    const unsigned high = i == 1 ? lead.high : 0xBF;
    if (next < low || next > high) return {Utf8Step::Kind::invalid, seen, 0xFFFD};
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {Utf8Step::Kind::character, static_cast<std::uint8_t>(lead.length), code_point};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    if (byte_at(bytes, at) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::character) return at;
    at += step.length;
  }
  return std::nullopt;
}

namespace {

/// Appends the text of `bytes` to `out` and returns how many bytes of an incomplete character are left at the end.
std::size_t append_replaced(std::string& out, std::string_view bytes) {
  std::size_t copied = 0;  // bytes[copied, at) is valid and not yet in out
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind == Utf8Step::Kind::character) {
      at += step.length;
      continue;
    }
    out.append(bytes.substr(copied, at - copied));
    if (step.kind == Utf8Step::Kind::incomplete) return step.length;
    out.append(kReplacementCharacter);
    copied = at += step.length;
  }
  out.append(bytes.substr(copied));
  return 0;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_replaced(out, bytes) > 0) out.append(kReplacementCharacter);
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto continuation = [](char32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    out += continuation(code_point);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    out += continuation(code_point >> 6);
    out += continuation(code_point);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    out += continuation(code_point >> 12);
    out += continuation(code_point >> 6);
    out += continuation(code_point);
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  if (held_.empty()) {
    const std::size_t left = append_replaced(out, bytes);
    held_.assign(bytes.substr(bytes.size() - left));
    return out;
  }
  held_.append(bytes);
  const std::size_t left = append_replaced(out, held_);
  held_.erase(0, held_.size() - left);
  return out;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return std::string(unfinished ? kReplacementCharacter : std::string_view());
}

}  // namespace quire
