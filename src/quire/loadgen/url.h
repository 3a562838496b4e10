#pragma once
// The address of a server: http://HOST[:PORT][/PATH].

#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/result.h"

namespace quire::loadgen {

struct Url {
  std::string host;  ///< a name or an address; IPv6 without its brackets
  std::uint16_t port = 80;
  std::string path;  ///< before "/v1/...": "" or "/base"; a "/v1" at the end of the URL is not part of it

  /// As the Host header has it.
  std::string authority() const;
};

/// An error names what was found and what was wanted. No https: put a proxy in front.
Result<Url> parse_url(std::string_view text);

}  // namespace quire::loadgen
