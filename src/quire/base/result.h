#pragma once
// Result<T>: a value, or an Error from the outside world (a file, a flag, a request). The message names the thing, what
// was found and what was wanted. Bugs are QUIRE_CHECK; expected outcomes (out of blocks, queue full) are plain values.
// Written here rather than taken from a library because Quire's public headers include no header of a dependency.

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "quire/base/check.h"

namespace quire {

struct Error {
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return check(), std::get<0>(state_); }
  const T& value() const& { return check(), std::get<0>(state_); }
  T&& value() && { return check(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  void check() const { QUIRE_CHECK(ok(), error().message); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

/// Error from parts: fail("key '", name, "': found ", a, ", wanted ", b).
template <class... Args>
Error fail(const Args&... args) {
  return Error{cat(args...)};
}

}  // namespace quire

#define QUIRE_CONCAT_INNER(a, b) a##b
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_INNER(a, b)

/// QUIRE_TRY(auto x, compute()): x is the value, or the enclosing function returns the error.
#define QUIRE_TRY(declaration, expression)                                                                   \
  auto QUIRE_CONCAT(result_, __LINE__) = (expression);                                                       \
  if (!QUIRE_CONCAT(result_, __LINE__).ok()) return ::quire::Error{QUIRE_CONCAT(result_, __LINE__).error()}; \
  declaration = *std::move(QUIRE_CONCAT(result_, __LINE__))

/// QUIRE_TRY_VOID(validate()): returns the error from the enclosing function, if there is one.
#define QUIRE_TRY_VOID(expression)                                          \
  do {                                                                      \
    if (auto result_ = (expression); !result_.ok()) return result_.error(); \
  } while (false)
