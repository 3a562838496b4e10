#include "terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::cli {
namespace {

int output_error = 0;  ///< errno of the first failed write; stdout is the process's, so is this
bool output_reported = false;

void note_failure() {
  if (output_error == 0) output_error = errno != 0 ? errno : EIO;
}

}  // namespace

void keep_standard_streams_open() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    // Read-only also for the outputs: a write then fails, and is reported, rather than vanish.
    if (::open("/dev/null", O_RDONLY) != fd) std::_Exit(1);
  }
}

void report(std::string_view message) {
  std::string line = "quire: ";
  line += message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool write_output(std::string_view text) {
  if (output_error != 0) return false;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_failure();
  return output_error == 0;
}

bool flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) note_failure();
  if (output_error != 0 && output_error != EPIPE && !output_reported) {
    report(cat("writing to standard output failed: ", std::strerror(output_error)));
    output_reported = true;
  }
  return output_error == 0;
}

bool LineReader::next(std::string& line) {
  while (true) {
    std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) {
      line.assign(buffer_, begin_, end - begin_);
      begin_ = searched_ = end + 1;
      return true;
    }
    searched_ = buffer_.size();
    if (ended_) break;
    fill();
  }
  if (begin_ == buffer_.size()) return false;
  line.assign(buffer_, begin_);
  begin_ = searched_ = buffer_.size();
  return true;
}

bool LineReader::ready() {
  while (!ended_ && buffer_.find('\n', searched_) == std::string::npos) {
    searched_ = buffer_.size();
    pollfd wait{.fd = 0, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, 0) <= 0) return false;
    fill();
  }
  return true;
}

void LineReader::fill() {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  constexpr std::size_t kChunk = 1 << 16;
  std::size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  ssize_t got;
  do {
    got = ::read(0, buffer_.data() + size, kChunk);
  } while (got < 0 && errno == EINTR);
  if (got < 0) error_ = cat("standard input cannot be read: ", std::strerror(errno));
  if (got <= 0) ended_ = true;
  buffer_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
}

Result<std::string> read_input(std::size_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  while (std::size_t got = std::fread(buffer, 1, sizeof buffer, stdin)) {
    if (got > max_bytes - text.size())
      return fail("standard input: found more than ", max_bytes, " bytes, the most allowed");
    text.append(buffer, got);
  }
  if (std::ferror(stdin)) return fail("standard input cannot be read: ", std::strerror(errno));
  return text;
}

Progress::Progress(std::string what) : what_(std::move(what)), visible_(stderr_is_terminal()) {}

void Progress::show(double fraction) {
  const int percent = static_cast<int>(fraction * 100);
  if (!visible_ || percent == shown_) return;
  shown_ = percent;
  std::fprintf(stderr, "\r%s %3d %%", what_.c_str(), percent);
}

void Progress::end() {
  if (shown_ >= 0) std::fputs("\r\033[K", stderr);
  shown_ = -1;
}

bool stdin_is_terminal() { return ::isatty(0) == 1; }
bool stdout_is_terminal() { return ::isatty(1) == 1; }
bool stderr_is_terminal() { return ::isatty(2) == 1; }

}  // namespace quire::cli
