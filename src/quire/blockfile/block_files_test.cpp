#include "quire/blockfile/block_files.h"

#include <gtest/gtest.h>

#include "quire/blockfile/fake_disk_test.h"

namespace quire {
namespace {

BlockKey key_of(int number) {
  BlockKey key;
  key.bytes[0] = static_cast<std::byte>(number);
  return key;
}

class BlockFilesTest : public testing::Test {
 protected:
  void open(std::uint64_t budget_bytes = 1 << 20) {
    auto opened = BlockFiles::open(disk_, {.domain = key_of(99), .budget_bytes = budget_bytes});
    ASSERT_TRUE(opened.ok());
    files_.emplace(std::move(*opened));
  }
  BlockIdentity identity(int number) const { return {key_of(99), key_of(number), "salt", tokens_}; }
  TransferOutcome write(int number) {
    removed_.clear();
    return files_->write(identity(number), payload(number), removed_);
  }
  static std::vector<std::byte> payload(int number) {
    return std::vector<std::byte>(100, static_cast<std::byte>(number));
  }
  TransferOutcome read(int number) {
    std::vector<std::byte> found(100);
    const TransferOutcome outcome = files_->read(identity(number), found);
    EXPECT_EQ(outcome == TransferOutcome::done, found == payload(number));
    return outcome;
  }

  FakeDisk disk_;
  std::vector<TokenId> tokens_{TokenId{5}, TokenId{6}};
  std::optional<BlockFiles> files_;
  std::vector<BlockKey> removed_;
};

TEST(BlockFileName, IsTheKeyInHexadecimalAndNothingElseIsOne) {
  BlockKey key = key_of(0xA0);
  key.bytes[31] = std::byte{0x1F};
  const std::string name = block_file_name(key);
  EXPECT_EQ(name, "a0" + std::string(60, '0') + "1f.kv");
  EXPECT_EQ(parse_block_file_name(name), key);
  for (const std::string& other : {std::string("lock"), name + ".tmp", name.substr(1), "A" + name.substr(1)})
    EXPECT_EQ(parse_block_file_name(other), std::nullopt) << other;
}

TEST_F(BlockFilesTest, WhatWasWrittenIsReadAlsoByTheNextOwner) {
  open();
  EXPECT_EQ(read(1), TransferOutcome::missing);
  EXPECT_EQ(write(1), TransferOutcome::done);
  EXPECT_EQ(write(2), TransferOutcome::done);
  EXPECT_EQ(read(1), TransferOutcome::done);
  disk_.contents["foreign"] = {};
  disk_.order.push_back("foreign");
  open();
  EXPECT_EQ(files_->keys(), (std::vector{key_of(1), key_of(2)}));
  EXPECT_EQ(read(2), TransferOutcome::done);
}

TEST_F(BlockFilesTest, ABudgetRemovesTheLeastRecentlyUsedFilesAndNoForeignOnes) {
  open();
  write(1);
  const std::uint64_t size = files_->bytes();
  open(4 * size);
  for (int number : {2, 3, 4}) EXPECT_EQ(write(number), TransferOutcome::done);
  EXPECT_TRUE(removed_.empty());
  read(1);
  disk_.contents["foreign"] = {};
  EXPECT_EQ(write(5), TransferOutcome::done);
  EXPECT_EQ(removed_, (std::vector{key_of(2), key_of(3)}))
      << "a little more than needed, so that not every write removes";
  EXPECT_EQ(read(2), TransferOutcome::missing);
  EXPECT_EQ(read(1), TransferOutcome::done);
  EXPECT_EQ(disk_.contents.count("foreign"), 1u);
  EXPECT_LE(files_->bytes(), 4 * size);
  open(2 * size);
  EXPECT_EQ(files_->bytes(), size) << "a smaller budget holds at once";
}

TEST_F(BlockFilesTest, ABlockLargerThanTheBudgetIsNotWritten) {
  open(50);
  EXPECT_EQ(write(1), TransferOutcome::no_space);
  EXPECT_EQ(disk_.num_writes, 0);
}

TEST_F(BlockFilesTest, AFullDiskMakesTheTierReadOnlyForAWhile) {
  open();
  write(1);
  disk_.next_write = DiskStatus::no_space;
  EXPECT_EQ(write(2), TransferOutcome::no_space);
  const int num_writes = disk_.num_writes;
  for (int i = 0; i < kWritesSkippedWhenFull; ++i) EXPECT_EQ(write(3), TransferOutcome::no_space);
  EXPECT_EQ(disk_.num_writes, num_writes);
  EXPECT_EQ(read(1), TransferOutcome::done);
  EXPECT_EQ(write(3), TransferOutcome::done);
}

TEST_F(BlockFilesTest, ErrorsAndDamageAreOutcomesAndADamagedFileIsGone) {
  open();
  disk_.next_write = DiskStatus::io_error;
  EXPECT_EQ(write(1), TransferOutcome::io_error);
  write(1);
  disk_.next_read = DiskStatus::io_error;
  EXPECT_EQ(read(1), TransferOutcome::io_error);
  EXPECT_EQ(read(1), TransferOutcome::done);
  auto& bytes = disk_.contents.at(block_file_name(key_of(1)));
  bytes.resize(bytes.size() / 2);
  EXPECT_EQ(read(1), TransferOutcome::damaged);
  EXPECT_EQ(read(1), TransferOutcome::missing);
  EXPECT_EQ(files_->bytes(), 0u);
}

TEST_F(BlockFilesTest, AFileUnderAWrongNameIsAMismatch) {
  open();
  write(1);
  disk_.contents[block_file_name(key_of(2))] = disk_.contents.at(block_file_name(key_of(1)));
  EXPECT_EQ(read(2), TransferOutcome::mismatch);
  tokens_.push_back(TokenId{7});
  EXPECT_EQ(read(1), TransferOutcome::mismatch);
}

TEST_F(BlockFilesTest, AHugeFileIsReadNoFurtherThanABlockMayReach) {
  open();
  write(1);
  disk_.contents.at(block_file_name(key_of(1))).resize(10'000'000);
  EXPECT_EQ(read(1), TransferOutcome::damaged);
}

}  // namespace
}  // namespace quire
