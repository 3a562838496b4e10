#pragma once
// Standard input and output as the commands use them. Not thread-safe.

#include <string>
#include <string_view>

#include "quire/base/result.h"

namespace quire::cli {

/// If the parent closed fd 0, 1 or 2, a file opened later would get that number and be read or written by mistake. Puts
/// /dev/null there instead: reading gives the end of the input, writing an error.
void keep_standard_streams_open();

/// "quire: message" on stderr; line breaks in the message become spaces.
void report(std::string_view message);

/// Writes to stdout, buffered. False once writing has failed: the command should stop.
bool write_output(std::string_view text);

/// Writes out what is buffered. False if any write failed; that is reported once, unless the reader just went away.
bool flush_output();

/// Lines of stdin. Reads the file descriptor itself, so use nothing else for stdin beside it.
class LineReader {
 public:
  /// The next line without its line break; waits for it. False at the end of the input, or if it cannot be read.
  bool next(std::string& line);
  /// True if next() would not wait.
  bool ready();
  /// Why reading failed; empty if it did not.
  const std::string& error() const { return error_; }

 private:
  void fill();

  std::string buffer_;
  std::size_t begin_ = 0;     ///< where the next line starts
  std::size_t searched_ = 0;  ///< no line break in [begin_, searched_)
  bool ended_ = false;
  std::string error_;
};

/// The rest of stdin. Error: more than max_bytes, or it cannot be read.
Result<std::string> read_input(std::size_t max_bytes);

/// "WHAT 42 %" on stderr, kept up to date; nothing if that is no terminal.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress() { end(); }
  void show(double fraction);
  /// Takes the line away.
  void end();

 private:
  std::string what_;
  const bool visible_;
  int shown_ = -1;  ///< percent
};

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

}  // namespace quire::cli
