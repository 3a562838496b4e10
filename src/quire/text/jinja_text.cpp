#include "quire/text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "quire/text/utf8.h"

namespace quire::jinja {
namespace {

bool all_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Mappings of one code point to several, the common ones (Unicode SpecialCasing).
struct SpecialCase {
  char32_t from;
  std::string_view upper, title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, "SS", "Ss"},   {0x0149, "ʼN", "ʼN"}, {0x01F0, "J̌", "J̌"},   {0x0587, "ԵՒ", "Եւ"},
    {0xFB00, "FF", "Ff"},   {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"},
};

const SpecialCase* special_case(char32_t c) {
  for (const SpecialCase& special : kSpecialCases) {
    if (special.from == c) return &special;
  }
  return nullptr;
}

enum class Case { kUpper, kLower, kTitle };

void append_cased(std::string& out, char32_t c, Case wanted) {
  if (wanted == Case::kLower) {
    if (c == 0x0130) {  // I with dot above
      out += "i\xCC\x87";
      return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    return;
  }
  if (const SpecialCase* special = special_case(c)) {
    out += wanted == Case::kUpper ? special->upper : special->title;
    return;
  }
  const auto point = static_cast<utf8proc_int32_t>(c);
  append_utf8(out, static_cast<char32_t>(wanted == Case::kUpper ? utf8proc_toupper(point) : utf8proc_totitle(point)));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

bool is_sigma_at_word_end(std::string_view bytes, const Character& at) {
  auto neighbour_is_cased = [&](std::size_t from, int step) {
    std::size_t i = from;
    if (step < 0) {
      if (i == 0) return false;
      do --i;
      while (i > 0 && is_continuation(bytes[i]));
    }
    return i < bytes.size() && is_cased(utf8_step(bytes.substr(i)).code_point);
  };
  return neighbour_is_cased(at.begin, -1) && !neighbour_is_cased(at.end, +1);
}

/// Each code point through `case_of`, which also sees the one before (0 at the start).
template <class CaseOf>
Text map_case(const Text& text, CaseOf case_of) {
  Text out;
  char32_t previous = 0;
  std::size_t range = 0;
  const auto ranges = text.from_input();
  std::string piece;
  for_each_character(text.bytes(), [&](const Character& c) {
    while (range < ranges.size() && ranges[range].end <= c.begin) ++range;
    const bool input = range < ranges.size() && ranges[range].begin <= c.begin;
    piece.clear();
    const Case wanted = case_of(c.code_point, previous);
    if (wanted == Case::kLower && c.code_point == 0x03A3 && is_sigma_at_word_end(text.bytes(), c)) {
      append_utf8(piece, 0x03C2);
    } else {
      append_cased(piece, c.code_point, wanted);
    }
    out.append(piece, input ? Origin::kInput : Origin::kTemplate);
    previous = c.code_point;
  });
  return out;
}

}  // namespace

void Text::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!from_input_.empty() && from_input_.back().end == begin) {
    from_input_.back().end = end;
  } else {
    from_input_.push_back({begin, end});
  }
}

void Text::append(std::string_view bytes, Origin origin) {
  if (origin == Origin::kInput) mark(bytes_.size(), bytes_.size() + bytes.size());
  ascii_ = ascii_ && all_ascii(bytes);
  bytes_ += bytes;
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  const std::size_t shift = bytes_.size();
  auto range = std::partition_point(other.from_input_.begin(), other.from_input_.end(),
                                    [&](const TextRange& r) { return r.end <= begin; });
  for (; range != other.from_input_.end() && range->begin < end; ++range) {
    mark(shift + std::max(range->begin, begin) - begin, shift + std::min(range->end, end) - begin);
  }
  const std::string_view bytes = std::string_view(other.bytes_).substr(begin, end - begin);
  ascii_ = ascii_ && (other.ascii_ || all_ascii(bytes));
  bytes_ += bytes;
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

std::size_t Text::length() const {
  if (ascii_) return bytes_.size();
  return static_cast<std::size_t>(
      std::count_if(bytes_.begin(), bytes_.end(), [](char c) { return !is_continuation(c); }));
}

std::vector<std::size_t> Text::offsets() const {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (!is_continuation(bytes_[i])) offsets.push_back(i);
  }
  offsets.push_back(bytes_.size());
  return offsets;
}

void for_each_character(std::string_view bytes, const std::function<void(const Character&)>& visit) {
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const Utf8Step step = lead < 0x80 ? Utf8Step{Utf8Step::Kind::character, 1, lead} : utf8_step(bytes.substr(i));
    visit({step.code_point, i, i + step.length});
    i += step.length;
  }
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

Text to_upper(const Text& text) {
  return map_case(text, [](char32_t, char32_t) { return Case::kUpper; });
}

Text to_lower(const Text& text) {
  return map_case(text, [](char32_t, char32_t) { return Case::kLower; });
}

Text swap_case(const Text& text) {
  return map_case(text, [](char32_t c, char32_t) { return is_upper(c) ? Case::kLower : Case::kUpper; });
}

Text capitalize(const Text& text) {
  return map_case(text, [](char32_t, char32_t previous) { return previous == 0 ? Case::kTitle : Case::kLower; });
}

Text title_case(const Text& text) {
  return map_case(text, [](char32_t, char32_t previous) { return is_cased(previous) ? Case::kLower : Case::kTitle; });
}

Text title_filter(const Text& text) {
  auto begins_word = [](char32_t previous) {
    return previous == 0 || is_space(previous) || previous == '-' || previous == '(' || previous == '{' ||
           previous == '[' || previous == '<';
  };
  return map_case(text,
                  [&](char32_t, char32_t previous) { return begins_word(previous) ? Case::kUpper : Case::kLower; });
}

Text reversed(const Text& text) {
  const auto offsets = text.offsets();
  Text out;
  for (std::size_t i = offsets.size() - 1; i > 0; --i) out.append(text, offsets[i - 1], offsets[i]);
  return out;
}

Text strip(const Text& text, Side side, std::optional<std::string_view> characters) {
  std::vector<char32_t> set;
  if (characters) for_each_character(*characters, [&](const Character& c) { set.push_back(c.code_point); });
  auto removed = [&](std::size_t begin) {
    const char32_t c = utf8_step(std::string_view(text.bytes()).substr(begin)).code_point;
    return characters ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  std::size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end && removed(begin)) {
    do ++begin;
    while (begin < end && is_continuation(text.bytes()[begin]));
  }
  while (side != Side::kLeft && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && is_continuation(text.bytes()[last])) --last;
    if (!removed(last)) break;
    end = last;
  }
  return text.slice(begin, end);
}

Text replace(const Text& text, std::string_view old, const Text& replacement, std::int64_t count) {
  Text out;
  std::size_t done = 0;
  auto may_replace = [&] { return count != 0; };
  auto put = [&] {
    out.append(replacement);
    if (count > 0) --count;
  };
  if (old.empty()) {
    for_each_character(text.bytes(), [&](const Character& c) {
      if (may_replace()) put();
      out.append(text, c.begin, c.end);
    });
    if (may_replace()) put();
    return out;
  }
  while (may_replace()) {
    const std::size_t found = text.bytes().find(old, done);
    if (found == std::string::npos) break;
    out.append(text, done, found);
    put();
    done = found + old.size();
  }
  out.append(text, done, text.size());
  return out;
}

namespace {

struct Span {
  std::size_t begin, end;
};

/// The maximal runs of code points that are no white space.
std::vector<Span> words_of(std::string_view bytes) {
  std::vector<Span> words;
  bool inside = false;
  for_each_character(bytes, [&](const Character& c) {
    if (is_space(c.code_point)) {
      inside = false;
    } else if (inside) {
      words.back().end = c.end;
    } else {
      words.push_back({c.begin, c.end});
      inside = true;
    }
  });
  return words;
}

std::vector<Text> slices(const Text& text, const std::vector<Span>& spans) {
  std::vector<Text> out;
  out.reserve(spans.size());
  for (const Span& span : spans) out.push_back(text.slice(span.begin, span.end));
  return out;
}

}  // namespace

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, std::int64_t max_splits) {
  std::vector<Span> spans;
  if (!separator) {
    spans = words_of(text.bytes());
    const auto limit = static_cast<std::size_t>(max_splits);
    if (max_splits >= 0 && spans.size() > limit) {
      // The rest stays whole, with the white space at its end.
      spans.resize(limit + 1);
      spans.back().end = text.size();
    }
    return slices(text, spans);
  }
  std::size_t begin = 0;
  for (std::int64_t splits = 0; max_splits < 0 || splits < max_splits; ++splits) {
    const std::size_t found = text.bytes().find(*separator, begin);
    if (found == std::string::npos) break;
    spans.push_back({begin, found});
    begin = found + separator->size();
  }
  spans.push_back({begin, text.size()});
  return slices(text, spans);
}

std::vector<Text> split_from_right(const Text& text, std::optional<std::string_view> separator,
                                   std::int64_t max_splits) {
  std::vector<Span> spans;
  if (!separator) {
    spans = words_of(text.bytes());
    const auto limit = static_cast<std::size_t>(max_splits);
    if (max_splits >= 0 && spans.size() > limit) {
      const std::size_t dropped = spans.size() - limit - 1;
      spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(dropped));
      spans.front().begin = 0;
    }
    return slices(text, spans);
  }
  std::size_t end = text.size();
  for (std::int64_t splits = 0; max_splits < 0 || splits < max_splits; ++splits) {
    if (end < separator->size()) break;
    const std::size_t found = text.bytes().rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    spans.push_back({found + separator->size(), end});
    end = found;
  }
  spans.push_back({0, end});
  std::reverse(spans.begin(), spans.end());
  return slices(text, spans);
}

std::vector<Text> split_lines(const Text& text) {
  auto breaks = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<Span> spans;
  std::size_t begin = 0;
  char32_t previous = 0;
  for_each_character(text.bytes(), [&](const Character& c) {
    if (c.code_point == '\n' && previous == '\r') {
      begin = c.end;  // the second half of one break
    } else if (breaks(c.code_point)) {
      spans.push_back({begin, c.begin});
      begin = c.end;
    }
    previous = c.code_point;
  });
  if (begin < text.size()) spans.push_back({begin, text.size()});
  return slices(text, spans);
}

}  // namespace quire::jinja
