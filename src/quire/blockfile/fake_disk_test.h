#pragma once
// A disk in memory that fails when it is told to, for tests.

#include <algorithm>
#include <map>
#include <set>

#include "quire/blockfile/disk.h"

namespace quire {

class FakeDisk final : public Disk {
 public:
  Result<std::vector<File>> list() override {
    std::vector<File> files;
    for (const std::string& name : order) files.push_back({name, contents.at(name).size()});
    return files;
  }
  DiskStatus read(const std::string& name, std::uint64_t max_bytes, std::vector<std::byte>& bytes) override {
    if (next_read != DiskStatus::ok) return std::exchange(next_read, DiskStatus::ok);
    const auto found = contents.find(name);
    if (found == contents.end()) return DiskStatus::missing;
    bytes = found->second;
    bytes.resize(std::min<std::size_t>(bytes.size(), max_bytes));
    return DiskStatus::ok;
  }
  DiskStatus write(const std::string& name, std::span<const std::byte> bytes) override {
    ++num_writes;
    if (next_write != DiskStatus::ok) return std::exchange(next_write, DiskStatus::ok);
    contents[name].assign(bytes.begin(), bytes.end());
    std::erase(order, name);
    order.push_back(name);
    return DiskStatus::ok;
  }
  DiskStatus remove(const std::string& name) override {
    std::erase(order, name);
    return contents.erase(name) > 0 ? DiskStatus::ok : DiskStatus::missing;
  }

  std::map<std::string, std::vector<std::byte>> contents;
  std::vector<std::string> order;
  DiskStatus next_read = DiskStatus::ok, next_write = DiskStatus::ok;  ///< of one call
  int num_writes = 0;
};

}  // namespace quire
