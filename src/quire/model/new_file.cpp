#include "quire/model/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::model {
namespace {

/// What open() would have given the file: mkostemp takes only the owner's rights.
mode_t default_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Gives a nameless file the name. False, with errno: it exists, and the like.
bool give_name(int fd, const char* path) {
  const std::string open_file = "/proc/self/fd/" + std::to_string(fd);
  return linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

/// A name beside the path that nothing has yet.
std::string free_name(const std::string& path) {
  for (int i = 0;; ++i) {
    const std::string name = path + "." + std::to_string(getpid()) + "." + std::to_string(i);
    struct stat status;
    if (lstat(name.c_str(), &status) != 0) return name;
  }
}

}  // namespace

struct NewFile::State {
  std::string path, temporary;  ///< temporary: empty while it has no name
  Existing existing = Existing::refuse;
  int fd = -1;

  ~State() {
    if (fd < 0) return;
    close(fd);
    if (!temporary.empty()) unlink(temporary.c_str());
  }
  Error failed(std::string_view what) const { return fail("cannot ", what, " '", path, "': ", std::strerror(errno)); }
};

NewFile::NewFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
NewFile::NewFile(NewFile&&) noexcept = default;
NewFile& NewFile::operator=(NewFile&&) noexcept = default;
NewFile::~NewFile() = default;

Result<NewFile> NewFile::create(const std::string& path, Existing existing) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return fail("'", path, "' exists and is not a regular file");
    if (existing == Existing::refuse) return fail("'", path, "' exists already");
  }
  auto state = std::make_unique<State>();
  state->path = path;
  state->existing = existing;
  state->fd = open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (state->fd < 0) {
    state->temporary = path + ".XXXXXX";
    state->fd = mkostemp(state->temporary.data(), O_CLOEXEC);
  }
  if (state->fd < 0) return state->failed("create a file beside");
  if (fchmod(state->fd, default_mode()) != 0) return state->failed("set the rights of");
  return NewFile(std::move(state));
}

Result<void> NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(state_->fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return state_->failed("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> NewFile::keep() {
  State& state = *state_;
  if (fsync(state.fd) != 0) return state.failed("write");
  const char* to = state.path.c_str();
  const auto came_meanwhile = [&] {
    return fail("'", state.path, "' exists already: it came while this one was made");
  };
  if (state.temporary.empty()) {
    if (give_name(state.fd, to)) {
      close(std::exchange(state.fd, -1));
      return {};
    }
    if (errno == EEXIST && state.existing == Existing::refuse) return came_meanwhile();
    // To replace a file takes a name first; so does a system without /proc, which then says so.
    const std::string name = free_name(state.path);
    if (!give_name(state.fd, name.c_str())) return state.failed("give a name to the new file beside");
    state.temporary = name;
  }
  const char* from = state.temporary.c_str();
  int result = -1;
  if (state.existing == Existing::refuse) {
    result = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (result != 0 && errno == EEXIST) return came_meanwhile();
  }
  // Also for file systems that know no RENAME_NOREPLACE.
  if (result != 0) result = std::rename(from, to);
  if (result != 0) return state.failed("rename the new file to");
  close(std::exchange(state.fd, -1));
  return {};
}

}  // namespace quire::model
