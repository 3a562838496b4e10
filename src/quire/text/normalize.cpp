#include "quire/text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quire/text/utf8.h"

namespace quire {
namespace {

constexpr char32_t kFirstThatMayChange = 0x300;  // below it everything is in form C by itself and beside any other

int combining_class(std::int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

bool may_change(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.code_point >= kFirstThatMayChange) return true;
    at += step.length;
  }
  return false;
}

std::vector<std::int32_t> decompose(std::string_view text) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::vector<std::int32_t> out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    at += step.length;
    std::int32_t parts[8];  // a canonical decomposition has at most 4
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(step.code_point), parts, std::size(parts),
                                               kOptions, &boundary);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
      out.push_back(static_cast<std::int32_t>(step.code_point));
    } else {
      out.insert(out.end(), parts, parts + count);
    }
  }
  return out;
}

/// Canonical ordering: each run of combining marks by class. The library's own ordering is quadratic in the run.
void order_marks(std::vector<std::int32_t>& code_points) {
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, code_points.end(), [](std::int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](std::int32_t a, std::int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  if (!may_change(text)) return std::string(text);
  std::vector<std::int32_t> code_points = decompose(text);
  order_marks(code_points);
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kCompose);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(out, static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]));
  return out;
}

}  // namespace quire
