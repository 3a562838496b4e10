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

}  // namespace

struct NewFile::State {
  std::string path, temporary;
  Existing existing = Existing::refuse;
  int fd = -1;

  ~State() {
    if (fd < 0) return;
    close(fd);
    unlink(temporary.c_str());
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
  state->temporary = path + ".XXXXXX";
  state->existing = existing;
  state->fd = mkostemp(state->temporary.data(), O_CLOEXEC);
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
  const char* from = state.temporary.c_str();
  const char* to = state.path.c_str();
  int result = -1;
  if (state.existing == Existing::refuse) {
    result = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (result != 0 && errno == EEXIST)
      return fail("'", state.path, "' exists already: it came while this one was made");
  }
  // Also for file systems that know no RENAME_NOREPLACE.
  if (result != 0) result = std::rename(from, to);
  if (result != 0) return state.failed("rename the new file to");
  close(std::exchange(state.fd, -1));
  return {};
}

}  // namespace quire::model
