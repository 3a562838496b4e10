#include "block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace quire::cli {

Result<TemporaryBlockFile> TemporaryBlockFile::create(const std::string& directory) {
  if (!directory.empty()) {
    std::string path = directory + "/quire-exercise-blocks.bin";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return fail(path, ": ", std::strerror(errno));
    return TemporaryBlockFile(fd, std::move(path));
  }
  const char* variable = std::getenv("TMPDIR");
  std::string path = std::string(variable && *variable ? variable : "/tmp") + "/quire-blocks-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) return fail(path, ": ", std::strerror(errno));
  ::unlink(path.c_str());
  return TemporaryBlockFile(fd, std::move(path));
}

TemporaryBlockFile::TemporaryBlockFile(TemporaryBlockFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), end_(other.end_) {}

TemporaryBlockFile::~TemporaryBlockFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::uint64_t> TemporaryBlockFile::write(std::span<const std::byte> bytes) {
  const std::uint64_t at = end_;
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(end_));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail(path_, ": writing ", bytes.size(), " bytes: ", std::strerror(errno));
    end_ += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return at;
}

Result<void> TemporaryBlockFile::read(std::uint64_t at, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail(path_, ": reading ", bytes.size(), " bytes: ", std::strerror(errno));
    if (done == 0) return fail(path_, ": ends at byte ", at, ", wanted ", bytes.size(), " more");
    at += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

}  // namespace quire::cli
