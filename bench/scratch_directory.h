#pragma once
// A directory of a benchmark's own below the system's temporary one.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quire::bench {

/// A directory that goes away with this object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "quire-bench.XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace quire::bench
