#include "quire/blockfile/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

namespace quire {
namespace {

constexpr char kLockName[] = "lock";
constexpr std::string_view kTemporary = ".tmp";

DiskStatus status_of(int error) {
  if (error == ENOENT) return DiskStatus::missing;
  if (error == ENOSPC || error == EDQUOT) return DiskStatus::no_space;
  return DiskStatus::io_error;
}

/// Closes on leaving.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

Result<int> open_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail("directory '", path, "' cannot be made: ", std::strerror(errno));
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return fail("directory '", path, "' cannot be opened: ", std::strerror(errno));
  struct stat found {};
  if (fstat(directory, &found) != 0 || (found.st_mode & 0077) != 0) {
    close(directory);
    return fail("directory '", path, "' may be used by others; KV data tells what the prompts were: chmod 700 it");
  }
  return directory;
}

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<DirectoryDisk>> DirectoryDisk::open(const std::string& path) {
  QUIRE_TRY(const int directory, open_directory(path));
  const int lock = openat(directory, kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (lock >= 0) close(lock);
    close(directory);
    if (error == EWOULDBLOCK) return fail("directory '", path, "' is in use by another process; give each its own");
    return fail("directory '", path, "' cannot be locked: ", std::strerror(error));
  }
  return std::unique_ptr<DirectoryDisk>(new DirectoryDisk(path, directory, lock));
}

DirectoryDisk::~DirectoryDisk() {
  close(lock_);
  close(directory_);
}

Result<std::vector<Disk::File>> DirectoryDisk::list() {
  // A descriptor of its own: reading a directory moves its position.
  const int descriptor = openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = descriptor < 0 ? nullptr : fdopendir(descriptor);
  if (!entries) {
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    return fail("directory '", path_, "' cannot be read: ", std::strerror(error));
  }
  std::vector<std::tuple<std::int64_t, std::int64_t, std::string, std::uint64_t>> found;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    struct stat info {};
    if (fstatat(directory_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
    if (name.ends_with(kTemporary)) {
      unlinkat(directory_, name.c_str(), 0);
      continue;
    }
    if (name != kLockName)
      found.emplace_back(info.st_mtim.tv_sec, info.st_mtim.tv_nsec, name, static_cast<std::uint64_t>(info.st_size));
  }
  closedir(entries);
  std::sort(found.begin(), found.end());
  std::vector<File> files;
  for (const auto& [seconds, nanoseconds, name, bytes] : found) files.push_back({name, bytes});
  return files;
}

DiskStatus DirectoryDisk::read(const std::string& name, std::uint64_t max_bytes, std::vector<std::byte>& bytes) {
  const Descriptor file{openat(directory_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.value < 0) return status_of(errno);
  struct stat info {};
  if (fstat(file.value, &info) != 0) return status_of(errno);
  bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(max_bytes, static_cast<std::uint64_t>(info.st_size))));
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = ::read(file.value, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_of(errno);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  bytes.resize(size);
  return DiskStatus::ok;
}

DiskStatus DirectoryDisk::write(const std::string& name, std::span<const std::byte> bytes) {
  const std::string temporary = name + std::string(kTemporary);
  int error = 0;
  {
    const Descriptor file{
        openat(directory_, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.value < 0) return status_of(errno);
    if (!write_all(file.value, bytes)) error = errno;
  }
  if (error == 0 && renameat(directory_, temporary.c_str(), directory_, name.c_str()) != 0) error = errno;
  if (error == 0) return DiskStatus::ok;
  unlinkat(directory_, temporary.c_str(), 0);
  return status_of(error);
}

DiskStatus DirectoryDisk::remove(const std::string& name) {
  return unlinkat(directory_, name.c_str(), 0) == 0 ? DiskStatus::ok : status_of(errno);
}

}  // namespace quire
