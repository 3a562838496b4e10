#include "quire/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

void check_failed(const char* condition, const char* file, int line, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: bug: check '%s' failed%s%s\n", file, line, condition, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace quire
