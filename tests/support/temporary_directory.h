#pragma once
// A directory of the test's own, gone with the object.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "quire/base/check.h"

namespace quire::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char path[] = "/tmp/quire-test-XXXXXX";
    QUIRE_CHECK(mkdtemp(path) != nullptr, "no temporary directory");
    path_ = path;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace quire::test
