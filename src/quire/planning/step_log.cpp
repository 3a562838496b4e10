#include "quire/planning/step_log.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "quire/base/cat.h"

namespace quire::planning {

StepLog::StepLog() {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::temp_directory_path(error);
  if (error) directory = "/tmp";
  path_ = (directory / "quire-steps-XXXXXX").string();
  const int file = mkstemp(path_.data());
  if (file >= 0) close(file);
}

StepLog::~StepLog() { std::remove(path_.c_str()); }

Result<std::vector<std::byte>> StepLog::bytes() const {
  std::ifstream file(path_, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail("the command log '", path_, "' cannot be read: ", std::strerror(errno));
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Result<RecordedRun> StepLog::read() const {
  QUIRE_TRY(const std::vector<std::byte> log, bytes());
  return replay_in_simulator(log);
}

}  // namespace quire::planning
