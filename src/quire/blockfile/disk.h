#pragma once
// Disk: a flat directory of files, as far as the file tier needs one. An interface, so that tests can put a disk there
// that fails.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/result.h"

namespace quire {

enum class DiskStatus : std::uint8_t { ok, missing, no_space, io_error };

class Disk {
 public:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
  };
  virtual ~Disk() = default;
  /// All files, the least recently written first.
  virtual Result<std::vector<File>> list() = 0;
  /// What of the file can be read, at most max_bytes; fewer bytes than it has are no error here.
  virtual DiskStatus read(const std::string& name, std::uint64_t max_bytes, std::vector<std::byte>& bytes) = 0;
  /// Under this name there is, afterwards, the whole file, or what was there before. A machine that loses power may
  /// show another; a process that is killed does not.
  virtual DiskStatus write(const std::string& name, std::span<const std::byte> bytes) = 0;
  virtual DiskStatus remove(const std::string& name) = 0;
};

/// A directory of the file system, owned by this process for as long as the object lives: files with mode 0600 in a
/// directory with mode 0700 (KV data tells what the prompts were). A file is written under a temporary name, then
/// renamed. Files that are being written when the process ends are removed by the next list().
class DirectoryDisk final : public Disk {
 public:
  /// Makes the directory if only its last part is missing. An error says what is wrong: another process owns it, others
  /// may read it, no such path.
  static Result<std::unique_ptr<DirectoryDisk>> open(const std::string& path);
  ~DirectoryDisk() override;

  Result<std::vector<File>> list() override;
  DiskStatus read(const std::string& name, std::uint64_t max_bytes, std::vector<std::byte>& bytes) override;
  DiskStatus write(const std::string& name, std::span<const std::byte> bytes) override;
  DiskStatus remove(const std::string& name) override;

 private:
  DirectoryDisk(std::string path, int directory, int lock)
      : path_(std::move(path)), directory_(directory), lock_(lock) {}

  const std::string path_;
  const int directory_, lock_;  ///< file descriptors
};

}  // namespace quire
