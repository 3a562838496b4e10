#pragma once
// StepLog: a temporary file for the command log of an engine of this process, and what the simulator reads from it once
// that engine is gone. The file goes with the object.

#include <string>

#include "quire/sim/recorded_run.h"

namespace quire::planning {

class StepLog {
 public:
  StepLog();
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  const std::string& path() const { return path_; }
  Result<std::vector<std::byte>> bytes() const;
  Result<RecordedRun> read() const;

 private:
  std::string path_;
};

}  // namespace quire::planning
