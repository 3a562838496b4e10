#include "quire/loadgen/url.h"

#include <charconv>

namespace quire::loadgen {

std::string Url::authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string name = is_v6 ? "[" + host + "]" : host;
  return port == 80 ? name : cat(name, ":", port);
}

Result<Url> parse_url(std::string_view text) {
  const auto refusal = [text](std::string_view why) {
    return fail("URL '", text, "': ", why, "; wanted http://HOST:PORT, such as http://127.0.0.1:8080");
  };
  if (text.starts_with("https://")) return refusal("https is not supported");
  if (!text.starts_with("http://")) return refusal("it does not begin with http://");
  std::string_view rest = text.substr(7);
  for (char c : rest) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '?' || c == '#' || c == '@' || c == 0x7F) {
      return refusal("found a character that cannot stand there");
    }
  }
  Url url;
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path = path;
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return refusal("found '[' without ']'");
    url.host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
    if (!authority.empty() && authority.front() != ':') return refusal("found text after ']'");
    port = authority;
  } else {
    const std::size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  if (url.host.empty()) return refusal("the host is missing");
  if (port.empty()) return url;
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (error != std::errc() || end != port.data() + port.size() || url.port == 0) return refusal("found no valid port");
  return url;
}

}  // namespace quire::loadgen
