#pragma once
// QUIRE_CHECK: an always-on assertion for bugs in Quire itself. It must never be reachable from a request, a flag or a
// file: those get a Result with a message. On failure it prints the condition and the place, then aborts.

#include <string>

#include "quire/base/cat.h"

namespace quire {

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& detail);

}  // namespace quire

#define QUIRE_CHECK(condition, ...)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::quire::check_failed(#condition, __FILE__, __LINE__, ::quire::cat(__VA_ARGS__)); \
  } while (false)
