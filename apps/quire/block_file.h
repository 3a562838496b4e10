#pragma once
// TemporaryBlockFile: KV blocks in a file, appended and read back.

#include <string>

#include "quire/sim/exercise.h"

namespace quire::cli {

class TemporaryBlockFile final : public BlockFile {
 public:
  /// In `directory`, where it stays and is named by path(); "": in the directory for temporary files, where it is gone
  /// once this object is.
  static Result<TemporaryBlockFile> create(const std::string& directory);
  TemporaryBlockFile(TemporaryBlockFile&& other) noexcept;
  TemporaryBlockFile& operator=(TemporaryBlockFile&&) = delete;
  ~TemporaryBlockFile() override;

  Result<std::uint64_t> write(std::span<const std::byte> bytes) override;
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) override;
  const std::string& path() const { return path_; }

 private:
  TemporaryBlockFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
  std::uint64_t end_ = 0;
};

}  // namespace quire::cli
