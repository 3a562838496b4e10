#include "quire/blockfile/transfer_thread.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace quire {
namespace {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char path[] = "/tmp/quire-blocks-XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

BlockKey key_of(std::uint8_t number) {
  BlockKey key;
  key.bytes[5] = static_cast<std::byte>(number);
  return key;
}

std::vector<std::byte> bytes_of(std::uint8_t number) {
  return std::vector<std::byte>(5000, static_cast<std::byte>(number));
}

int mode_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : -1;
}

TEST(DirectoryDisk, FilesAndDirectoryAreTheOwnersAlone) {
  const TemporaryDirectory parent;
  const std::string path = parent.path() + "/kv";
  auto disk = DirectoryDisk::open(path);
  ASSERT_TRUE(disk.ok()) << disk.error().message;
  EXPECT_EQ(mode_of(path), 0700);
  EXPECT_EQ((*disk)->write("a", bytes_of(1)), DiskStatus::ok);
  EXPECT_EQ(mode_of(path + "/a"), 0600);
  EXPECT_EQ(mode_of(path + "/lock"), 0600);
  std::vector<std::byte> found;
  EXPECT_EQ((*disk)->read("a", 10'000, found), DiskStatus::ok);
  EXPECT_EQ(found, bytes_of(1));
  EXPECT_EQ((*disk)->read("a", 10, found), DiskStatus::ok);
  EXPECT_EQ(found.size(), 10u);
  EXPECT_EQ((*disk)->read("b", 10, found), DiskStatus::missing);
  EXPECT_EQ((*disk)->remove("a"), DiskStatus::ok);
  EXPECT_EQ((*disk)->remove("a"), DiskStatus::missing);
}

TEST(DirectoryDisk, HasOneOwnerAtATime) {
  const TemporaryDirectory directory;
  auto first = DirectoryDisk::open(directory.path());
  ASSERT_TRUE(first.ok());
  const auto second = DirectoryDisk::open(directory.path());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("in use by another process"), std::string::npos);
  first->reset();
  EXPECT_TRUE(DirectoryDisk::open(directory.path()).ok());
}

TEST(DirectoryDisk, RefusesADirectoryThatOthersMayUseAndOneThatIsNone) {
  const TemporaryDirectory directory;
  chmod(directory.path().c_str(), 0755);
  EXPECT_NE(DirectoryDisk::open(directory.path()).error().message.find("chmod 700"), std::string::npos);
  EXPECT_FALSE(DirectoryDisk::open(directory.path() + "/a/b").ok());
  std::ofstream(directory.path() + "/file") << "x";
  EXPECT_FALSE(DirectoryDisk::open(directory.path() + "/file").ok());
}

TEST(DirectoryDisk, WhatWasBeingWrittenWhenTheProcessEndedIsRemoved) {
  const TemporaryDirectory directory;
  auto disk = DirectoryDisk::open(directory.path());
  ASSERT_TRUE(disk.ok());
  std::ofstream(directory.path() + "/half.tmp") << "half";
  ASSERT_EQ((*disk)->write("whole", bytes_of(2)), DiskStatus::ok);
  const auto files = (*disk)->list();
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ((*files)[0].name, "whole");
  EXPECT_EQ((*files)[0].bytes, 5000u);
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/half.tmp"));
}

TEST(TransferThread, EndsEverythingThatWasSubmittedAndReadsWhatWasWritten) {
  const TemporaryDirectory directory;
  auto disk = DirectoryDisk::open(directory.path());
  ASSERT_TRUE(disk.ok());
  const std::vector<TokenId> tokens{TokenId{1}, TokenId{2}};
  const auto transfer = [&](std::uint64_t id, bool is_read, std::uint8_t number) {
    return Transfer{TransferId{id}, is_read,
                    key_of(number), "s",
                    tokens,         is_read ? std::vector<std::byte>(5000) : bytes_of(number)};
  };
  const BlockFilesOptions options{.domain = key_of(77), .budget_bytes = 1 << 20};
  std::mutex mutex;
  std::condition_variable changed;
  int num_ended = 0;
  const auto on_end = [&] {
    std::lock_guard lock(mutex);
    ++num_ended;
    changed.notify_all();
  };
  {
    TransferThread thread(std::move(*BlockFiles::open(**disk, options)), on_end);
    for (std::uint8_t i = 1; i <= 20; ++i) thread.submit(transfer(i, false, i));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return num_ended == 20; });
    lock.unlock();
    std::set<TransferId> ended;
    for (const EndedTransfer& end : thread.take_ended()) {
      EXPECT_EQ(end.end.outcome, TransferOutcome::done);
      ended.insert(end.end.transfer);
    }
    EXPECT_EQ(ended.size(), 20u);
    EXPECT_GT(thread.bytes(), 20u * 5000);
    for (std::uint8_t i = 1; i <= 30; ++i) thread.submit(transfer(100u + i, true, i));
    for (std::uint8_t i = 50; i <= 60; ++i) thread.submit(transfer(200u + i, false, i));
  }  // finishes all of it
  EXPECT_EQ(num_ended, 20 + 30 + 11);
  TransferThread next(std::move(*BlockFiles::open(**disk, options)), on_end);
  for (std::uint8_t i = 1; i <= 60; ++i) next.submit(transfer(i, true, i));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_ended == 61 + 60; });
  lock.unlock();
  for (const EndedTransfer& end : next.take_ended()) {
    const auto number = static_cast<std::uint8_t>(end.end.transfer.value);
    const bool is_there = number <= 20 || number >= 50;
    EXPECT_EQ(end.end.outcome, is_there ? TransferOutcome::done : TransferOutcome::missing);
    if (is_there) {
      EXPECT_EQ(end.payload, bytes_of(number));
    }
  }
}

}  // namespace
}  // namespace quire
