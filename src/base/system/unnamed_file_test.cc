#include "base/system/unnamed_file.h"

#include <string>

#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"

namespace motley {
namespace {

TEST(UnnamedFile, IsReadAsMemoryAndLeavesNoName) {
  const TemporaryFolder folder;
  for (const std::filesystem::path& at : {std::filesystem::path(), folder.path()}) {
    UnnamedFile file = UnnamedFile::create(at).value();
    file.reserve(8).value();
    file.write("abc").value();
    file.write("defgh").value();
    EXPECT_EQ(file.size(), 8U);
    EXPECT_EQ(file.beginning(5).value(), "abcde");
    EXPECT_EQ(file.beginning(100).value(), "abcdefgh");
    EXPECT_EQ(list_folder(folder.path()).value().size(), 0U);
    const MappedFile mapped = std::move(file).map("body").value();
    EXPECT_EQ(mapped.text(), "abcdefgh");
    EXPECT_EQ(mapped.path(), "body");
  }
}

TEST(UnnamedFile, MayBeEmpty) {
  EXPECT_EQ(UnnamedFile::create({}).value().size(), 0U);
  EXPECT_EQ(std::move(UnnamedFile::create({}).value()).map("body").value().text(), "");
}

TEST(UnnamedFile, NeedsAFolder) {
  const auto file = UnnamedFile::create("/nowhere/at/all");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::io);
}

TEST(UnnamedFile, RefusesMoreThanTheDiskHas) {
  const TemporaryFolder folder;
  UnnamedFile file = UnnamedFile::create(folder.path()).value();
  const Result<void> reserved = file.reserve(std::uint64_t{1} << 62);
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().code(), ErrorCode::storage_full);
  UnnamedFile in_memory = UnnamedFile::create({}).value();
  EXPECT_EQ(in_memory.reserve(std::uint64_t{1} << 62).error().code(), ErrorCode::out_of_memory);
}

TEST(UnnamedFile, HoldsTheCopyOfAFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("a", std::string(3'000'000, 'x'));
  FileRules rules(FileAccess::copied);
  rules.copies_in = folder.path();
  const MappedFile copy = MappedFile::open(path, rules).value();
  remove_file(path).value();
  EXPECT_EQ(copy.text(), std::string(3'000'000, 'x'));
  EXPECT_EQ(list_folder(folder.path()).value().size(), 0U);
}

}  // namespace
}  // namespace motley
