#pragma once
// NewFile: a file that appears whole or not at all. It is written beside its place under a temporary name
// (PATH.XXXXXX), and keep() gives it its own; without keep() it is gone with the object. A process that is killed
// leaves the temporary file behind.

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
