#include "quire/traces/bytes.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace quire {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::size_t kTarBlock = 512;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct InflateEnder {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

/// Where a text ends: for a cut file the place that a reader would look at.
std::string end_of_text(std::string_view text) {
  const auto row = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const std::size_t line = text.rfind('\n');
  const std::size_t column = line == std::string_view::npos ? text.size() : text.size() - line - 1;
  return cat("row ", row, ", column ", column + 1);
}

/// An octal field of a tar header.
std::optional<std::uint64_t> parse_octal(std::string_view field) {
  std::uint64_t value = 0;
  std::size_t i = 0;
  while (i < field.size() && field[i] == ' ') ++i;
  for (; i < field.size() && field[i] != '\0' && field[i] != ' '; ++i) {
    if (field[i] < '0' || field[i] > '7' || value >> 60 != 0) return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(field[i] - '0');
  }
  return value;
}

std::string_view text_field(std::string_view field) { return field.substr(0, field.find('\0')); }

}  // namespace

Result<std::string> read_trace_bytes(const std::string& path) {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (!file) return fail(path, ": ", std::strerror(errno));
  std::string bytes;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    bytes.append(buffer, count);
    if (bytes.size() > kMaxTraceBytes) return fail(path, ": more than ", kMaxTraceBytes, " bytes");
  }
  if (std::ferror(file.get())) return fail(path, ": ", std::strerror(errno));
  if (!std::string_view(bytes).starts_with(kGzipMagic)) return bytes;
  return unpack(path, bytes);
}

Result<std::string> unpack(std::string_view name, std::string_view bytes) {
  if (!bytes.starts_with(kGzipMagic)) return std::string(bytes);
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return fail(name, ": no memory to unpack it");
  const std::unique_ptr<z_stream, InflateEnder> ender(&stream);
  std::string out;
  std::string buffer(1 << 16, '\0');
  std::size_t at = 0;
  while (true) {
    if (stream.avail_in == 0 && at < bytes.size()) {
      const std::size_t count = std::min<std::size_t>(bytes.size() - at, 1 << 20);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));
      stream.avail_in = static_cast<uInt>(count);
      at += count;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int outcome = inflate(&stream, Z_NO_FLUSH);
    out.append(buffer, 0, buffer.size() - stream.avail_out);
    if (out.size() > kMaxTraceBytes) return fail(name, ": unpacks to more than ", kMaxTraceBytes, " bytes");
    if (outcome == Z_STREAM_END) {
      const bool more = stream.avail_in > 0 || at < bytes.size();
      if (!more) return out;
      if (inflateReset(&stream) != Z_OK) return fail(name, ": no memory to unpack it");
    } else if (outcome == Z_BUF_ERROR ||
               (outcome == Z_OK && stream.avail_in == 0 && at == bytes.size() && stream.avail_out > 0)) {
      return fail(name, ", ", end_of_text(out), ": the gzip stream is cut short behind ", bytes.size(),
                  " bytes, wanted its end");
    } else if (outcome != Z_OK) {
      return fail(name, ", ", end_of_text(out), ": the gzip stream is damaged within its first ", at - stream.avail_in,
                  " bytes (", stream.msg ? stream.msg : "bad data", ")");
    }
  }
}

bool looks_like_tar(std::string_view bytes) { return bytes.size() >= kTarBlock && bytes.substr(257, 5) == "ustar"; }

Result<std::vector<TarMember>> read_tar(std::string_view name, std::string_view bytes) {
  std::vector<TarMember> members;
  for (std::size_t at = 0; at + kTarBlock <= bytes.size();) {
    const std::string_view head = bytes.substr(at, kTarBlock);
    if (head[0] == '\0') return members;  // the end: blocks of zeros
    const auto size = parse_octal(head.substr(124, 12));
    if (!looks_like_tar(head) || !size) return fail(name, ": no tar header at byte ", at);
    at += kTarBlock;
    if (*size > bytes.size() - at)
      return fail(name, ": the tar archive is cut short in ", text_field(head.substr(0, 100)), ": ", bytes.size() - at,
                  " bytes left, wanted ", *size);
    const char type = head[156];
    if (type == '0' || type == '\0') {
      std::string path(text_field(head.substr(0, 100)));
      if (const auto prefix = text_field(head.substr(345, 155)); !prefix.empty()) path = cat(prefix, "/", path);
      members.push_back({std::move(path), bytes.substr(at, *size)});
    }
    at += (*size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  return members;
}

}  // namespace quire
