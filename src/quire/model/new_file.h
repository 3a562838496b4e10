#pragma once
// NewFile: a file that appears whole or not at all. It is written without a name (O_TMPFILE), and keep() gives it its
// place; without keep() it is gone with the object, and with the process, however that ends. On file systems that know
// no nameless files it has a temporary name beside its place (PATH.XXXXXX); there a process that is killed leaves that
// behind.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quire/base/result.h"

namespace quire::model {

enum class Existing { refuse, replace };

class NewFile {
 public:
  /// Error: PATH exists and is to be refused, or is no regular file; or nothing can be created beside it.
  static Result<NewFile> create(const std::string& path, Existing existing);
  NewFile(NewFile&&) noexcept;
  NewFile& operator=(NewFile&&) noexcept;
  ~NewFile();

  /// Error: the disk is full, and the like; the message has the system's words.
  Result<void> write(std::span<const std::byte> bytes);
  /// Writes out what the system holds and renames. Error also if PATH has come into being and is to be refused.
  Result<void> keep();

 private:
  struct State;
  explicit NewFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire::model
