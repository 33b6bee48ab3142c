#include "base/system/files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/memory.h"
#include "base/system/temporary_folder.h"

namespace motley {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FilesTest : public testing::Test {
 protected:
  std::vector<std::string> names() { return list_folder(folder_.path()).value(); }

  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

// The errors of every function that reads a file, for paths that are no files.
struct Refusal {
  ErrorCode code;
  std::string what;
};

void expect_refused(const fs::path& path, const Refusal& wanted) {
  const auto mapped = MappedFile::open(path);
  const auto text = read_text(path, 1000);
  ASSERT_FALSE(mapped.ok()) << path;
  ASSERT_FALSE(text.ok()) << path;
  for (const Error* error : {&mapped.error(), &text.error()}) {
    EXPECT_EQ(error->code(), wanted.code) << error->message();
    EXPECT_THAT(error->what(), HasSubstr(wanted.what));
    EXPECT_EQ(error->where(), printable(path.string()));
    EXPECT_NE(error->fix(), "");
  }
}

TEST_F(FilesTest, MapsWhatTheFileHolds) {
  const std::string content("ab\0\xff\n", 5);
  const auto file = MappedFile::open(folder_.file("a", content));
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->text(), content);
  EXPECT_EQ(file->bytes().size(), 5U);
  EXPECT_EQ(file->path(), folder_ / "a");
}

TEST_F(FilesTest, ACopyOutlivesWhatHappensToTheFile) {
  const std::string content(10'000, 'x');
  const std::filesystem::path path = folder_.file("a", content);
  const auto file = MappedFile::open(path, FileAccess::copied);
  ASSERT_TRUE(file.ok()) << file.error().message();
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file->text(), content);
}

TEST_F(FilesTest, RefusesCopiesThatMemoryDoesNotHold) {
  const std::filesystem::path path = folder_.file("a", "");
  const std::uint64_t size = machine_memory().value().total + 1;
  std::filesystem::resize_file(path, size);  // takes no room on the disk
  EXPECT_EQ(MappedFile::open(path).value().bytes().size(), size);
  const auto file = MappedFile::open(path, FileAccess::copied);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::out_of_memory);
}

TEST_F(FilesTest, MapsAnEmptyFile) {
  const auto file = MappedFile::open(folder_.file("empty", ""));
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_TRUE(file->text().empty());
  file->prefetch(0, 0);
  EXPECT_EQ(read_text(folder_ / "empty", 0).value(), "");
}

TEST_F(FilesTest, MappingMovesWithoutACopy) {
  auto first = std::move(MappedFile::open(folder_.file("a", "first"))).value();
  auto second = std::move(MappedFile::open(folder_.file("b", "second"))).value();
  const std::byte* const data = first.bytes().data();
  MappedFile moved(std::move(first));
  EXPECT_EQ(moved.bytes().data(), data);
  moved = std::move(second);
  EXPECT_EQ(moved.text(), "second");
  EXPECT_EQ(moved.path(), folder_ / "b");
}

TEST_F(FilesTest, MappingOutlivesTheName) {
  const auto file = MappedFile::open(folder_.file("a", "still here"));
  fs::remove(folder_ / "a");
  EXPECT_EQ(file.value().text(), "still here");
}

TEST_F(FilesTest, PrefetchesAnyRangeInside) {
  const auto file = MappedFile::open(folder_.file("a", std::string(10'000, 'x')));
  file.value().prefetch(0, 10'000);
  file.value().prefetch(5'000, 1);
  file.value().prefetch(10'000, 0);
  EXPECT_EQ(file.value().text()[9'999], 'x');
}

using FilesDeathTest = FilesTest;

TEST_F(FilesDeathTest, PrefetchOutsideAborts) {
  const auto file = MappedFile::open(folder_.file("a", "abc"));
  EXPECT_DEATH(file.value().prefetch(2, 2), "broken invariant");
  EXPECT_DEATH(file.value().prefetch(4, 0), "broken invariant");
}

TEST_F(FilesTest, FollowsSymbolicLinks) {
  folder_.file("a", "content");
  fs::create_symlink("a", folder_ / "link");
  EXPECT_EQ(MappedFile::open(folder_ / "link").value().text(), "content");
  EXPECT_EQ(read_text(folder_ / "link", 100).value(), "content");
}

TEST_F(FilesTest, RefusesWhatIsMissing) {
  folder_.file("a", "content");
  for (const char* name : {"none", "none/a", "a/b"})
    expect_refused(folder_ / name, {ErrorCode::not_found, "no such file"});
}

TEST_F(FilesTest, SaysWhatADanglingLinkPointsTo) {
  fs::create_symlink("../blobs/4f", folder_ / "dangling");
  const Refusal wanted{ErrorCode::bad_file, "a link to '../blobs/4f', which is missing"};
  expect_refused(folder_ / "dangling", wanted);
  const auto kind = path_kind(folder_ / "dangling");
  ASSERT_FALSE(kind.ok());
  EXPECT_EQ(kind.error().code(), wanted.code);
  EXPECT_EQ(kind.error().what(), wanted.what);
}

TEST_F(FilesTest, WhatAFolderNamesIsNoWrongCall) {
  const auto folder = read_text(folder_.path(), 100);
  ASSERT_FALSE(folder.ok());
  const Error inside = inside_folder(folder.error());
  EXPECT_EQ(inside.code(), ErrorCode::bad_file);
  EXPECT_EQ(inside.what(), folder.error().what());
  EXPECT_EQ(inside.fix(), "the folder is damaged; copy or download it again");
  EXPECT_EQ(inside_folder(no_such_path("a")).code(), ErrorCode::not_found);
  const Error full(ErrorCode::out_of_memory, "the disk is full", "a", "free some space");
  EXPECT_EQ(inside_folder(full).message(), full.message());
}

TEST_F(FilesTest, RemovesAFileThatMayBeMissing) {
  folder_.file("a", "content");
  EXPECT_TRUE(remove_file(folder_ / "a").ok());
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_TRUE(remove_file(folder_ / "a").ok());
  fs::create_directory(folder_ / "folder");
  EXPECT_FALSE(remove_file(folder_ / "folder").ok());
}

TEST_F(FilesTest, RefusesAFolder) {
  expect_refused(folder_.path(), {ErrorCode::invalid_argument, "this is a folder"});
}

TEST_F(FilesTest, RefusesANamedPipeWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_refused(folder_ / "pipe", {ErrorCode::invalid_argument, "not a regular file"});
}

TEST_F(FilesTest, RefusesADevice) {
  expect_refused("/dev/null", {ErrorCode::invalid_argument, "not a regular file"});
}

TEST_F(FilesTest, RefusesLinksThatGoRound) {
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  expect_refused(folder_ / "a", {ErrorCode::bad_file, "round in a circle"});
  const auto kind = path_kind(folder_ / "a");
  ASSERT_FALSE(kind.ok());
  EXPECT_EQ(kind.error().code(), ErrorCode::bad_file);
}

TEST_F(FilesTest, RefusesANameThatIsTooLong) {
  expect_refused(folder_ / std::string(300, 'x'), {ErrorCode::invalid_argument, "too long"});
}

TEST_F(FilesTest, RefusesAZeroByteInAPath) {
  folder_.file("a", "content");
  const fs::path path = folder_ / std::string_view("a\0b", 3);
  expect_refused(path, {ErrorCode::invalid_argument, "zero byte"});
  EXPECT_FALSE(AtomicFile::create(path).ok());
  EXPECT_FALSE(list_folder(folder_.path() / std::string_view(".\0", 2)).ok());
  EXPECT_FALSE(path_kind(path).ok());
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(FilesTest, WithoutPermissionSaysSo) {
  folder_.file("a", "secret");
  ASSERT_EQ(::chmod((folder_ / "a").c_str(), 0), 0);
  // Permissions don't hold for root.
  if (::geteuid() == 0) {
    EXPECT_EQ(read_text(folder_ / "a", 100).value(), "secret");
  } else {
    expect_refused(folder_ / "a", {ErrorCode::io, "not allowed to read"});
  }
}

// Files without content that fill the address space.
TEST_F(FilesTest, WithoutRoomForAMappingMemoryHasEnded) {
  folder_.file("huge", "a");
  fs::resize_file(folder_ / "huge", std::uintmax_t{1} << 43);
  std::vector<MappedFile> mapped;
  for (int i = 0; i < 64; ++i) {
    auto file = MappedFile::open(folder_ / "huge");
    if (!file.ok()) {
      EXPECT_EQ(file.error().code(), ErrorCode::out_of_memory) << file.error().message();
      return;
    }
    mapped.push_back(*std::move(file));
  }
  FAIL() << "64 mappings of 8 TiB each";
}

TEST_F(FilesTest, AFilesBeginningIsReadBeforeTheWhole) {
  folder_.file("a", "0123456789");
  const auto file = OpenFile::open(folder_ / "a", FileAccess::copied);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(file->read_at(2, 3).value(), "234");
  EXPECT_EQ(file->read_at(8, 30).value(), "89");
  EXPECT_EQ(file->read_at(30, 3).value(), "");
  EXPECT_EQ(file->load()->text(), "0123456789");
}

// A link that is exchanged after its path was checked opens another file than was checked.
TEST_F(FilesTest, WhatLiesOutsideAFolderIsNotReadWhateverLinksSay) {
  const TemporaryFolder outside;
  outside.file("secret", "secret");
  const fs::path root = fs::canonical(folder_.path());
  fs::create_directory(root / "inner");
  folder_.file("inner/a", "open");
  fs::create_symlink("inner/a", root / "relative");
  fs::create_symlink(root / "inner", root / "absolute");
  fs::create_symlink(outside.path() / "secret", root / "out");
  fs::create_symlink(outside.path(), root / "elsewhere");
  for (const char* inside : {"inner/a", "relative", "absolute/a"}) {
    const auto text = read_text(root / inside, 100, root);
    ASSERT_TRUE(text.ok()) << inside << ": " << text.error().message();
    EXPECT_EQ(*text, "open");
  }
  FileRules rules(FileAccess::copied);
  rules.beneath = root / "inner";
  EXPECT_EQ(MappedFile::open(root / "relative", rules)->text(), "open");
  EXPECT_THAT(list_folder(root / "absolute", root).value(), ElementsAre("a"));
  for (const char* name : {"out", "elsewhere/secret"}) {
    const auto refused = read_text(root / name, 100, root);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_THAT(refused.error().message(), HasSubstr("lies outside"));
    EXPECT_FALSE(MappedFile::open(root / name, rules).ok());
  }
  EXPECT_FALSE(list_folder(root / "elsewhere", root).ok());
  // A folder whose name only begins like the root's.
  const fs::path like = root.string() + "x";
  fs::create_directory(like);
  std::ofstream(like / "a") << "near";
  EXPECT_FALSE(read_text(like / "a", 100, root).ok());
  fs::remove_all(like);
}

TEST_F(FilesTest, MessagesEscapeNames) {
  const auto file = MappedFile::open(folder_ / "new\nline");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message(), HasSubstr("new\\nline"));
}

TEST_F(FilesTest, ReadsTextUpToItsLimit) {
  folder_.file("a", "12345");
  EXPECT_EQ(read_text(folder_ / "a", 5).value(), "12345");
  const auto longer = read_text(folder_ / "a", 4);
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code(), ErrorCode::bad_file);
  EXPECT_THAT(longer.error().what(), HasSubstr("5 bytes, more than the 4"));
}

TEST_F(FilesTest, AtomicFileAppearsWholeAtCommit) {
  auto file = AtomicFile::create(folder_ / "a").value();
  ASSERT_TRUE(file.write("one ").ok());
  ASSERT_TRUE(file.write("").ok());
  ASSERT_TRUE(file.write("two").ok());
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(content(folder_ / "a"), "one two");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(FilesTest, AtomicFileReplacesTheWholeOldFile) {
  folder_.file("a", "a long old content");
  const auto old = MappedFile::open(folder_ / "a");
  auto file = AtomicFile::create(folder_ / "a").value();
  ASSERT_TRUE(file.write("new").ok());
  EXPECT_EQ(content(folder_ / "a"), "a long old content");
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(content(folder_ / "a"), "new");
  EXPECT_EQ(old.value().text(), "a long old content") << "who has it open keeps the old one";
}

TEST_F(FilesTest, AtomicFileLeavesNothingBehindWithoutCommit) {
  folder_.file("a", "old");
  {
    auto file = AtomicFile::create(folder_ / "a").value();
    ASSERT_TRUE(file.write("new").ok());
    AtomicFile moved = std::move(file);
    ASSERT_TRUE(moved.write("er").ok());
  }
  EXPECT_THAT(names(), ElementsAre("a"));
  EXPECT_EQ(content(folder_ / "a"), "old");
}

TEST_F(FilesTest, AtomicFileLeavesNothingBehindWhenTheCommitFails) {
  {
    auto file = AtomicFile::create(folder_ / "taken").value();
    fs::create_directory(folder_ / "taken");
    const auto committed = file.commit();
    ASSERT_FALSE(committed.ok());
    EXPECT_EQ(committed.error().message(),
              cat("this is a folder (", (folder_ / "taken").string(), "): name a file"));
  }
  EXPECT_THAT(names(), ElementsAre("taken"));
}

TEST_F(FilesTest, AtomicFileInAMissingFolderIsRefused) {
  const auto file = AtomicFile::create(folder_ / "none" / "a");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::not_found);
}

TEST_F(FilesTest, AtomicFileReplacesFilesOnly) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "pipe", fs::path("/dev/null"), fs::path(folder_.path())}) {
    const auto file = AtomicFile::create(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.error().code(), ErrorCode::invalid_argument) << file.error().message();
  }
  EXPECT_THAT(names(), ElementsAre("pipe"));
}

TEST_F(FilesTest, InputIsReadFromFilesAndPipesToTheEnd) {
  const std::string content(300'000, 'x');
  std::ofstream(folder_ / "file") << content;
  EXPECT_EQ(read_input(folder_ / "file", content.size()).value(), content);
  EXPECT_EQ(read_input(folder_ / "file", content.size() - 1).error().code(), ErrorCode::bad_file);
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << content; });
  const auto text = read_input(pipe, content.size());
  writer.join();
  EXPECT_EQ(text.value(), content);
  EXPECT_EQ(read_input(folder_ / "none", 10).error().code(), ErrorCode::not_found);
  EXPECT_EQ(read_input(folder_.path(), 10).error().code(), ErrorCode::invalid_argument);
}

TEST_F(FilesTest, AtomicFileHasThePermissionsOfAnyNewFile) {
  folder_.file("a", "x");
  std::ofstream(folder_ / "b") << "x";
  EXPECT_EQ(fs::status(folder_ / "a").permissions(), fs::status(folder_ / "b").permissions());
}

TEST_F(FilesTest, AtomicFilesOfSeveralThreadsDoNotMeet) {
  const auto before = fs::status(folder_.file("before", "")).permissions();
  std::vector<std::thread> writers;
  std::vector<int> committed(4, 0);
  for (std::size_t t = 0; t < committed.size(); ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        auto file = AtomicFile::create(folder_ / "same");
        if (file.ok() && file->write(std::string(5000, static_cast<char>('a' + t))).ok() &&
            file->commit().ok())
          ++committed[t];
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(committed, ElementsAre(100, 100, 100, 100));
  const std::string whole = content(folder_ / "same");
  EXPECT_EQ(whole, std::string(5000, whole.at(0)));
  EXPECT_THAT(names(), ElementsAre("before", "same"));
  EXPECT_EQ(fs::status(folder_ / "same").permissions(), before);
  EXPECT_EQ(fs::status(folder_.file("after", "")).permissions(), before) << "the umask changed";
}

TEST_F(FilesDeathTest, WritingAfterCommitAborts) {
  auto file = AtomicFile::create(folder_ / "a").value();
  ASSERT_TRUE(file.commit().ok());
  EXPECT_DEATH(static_cast<void>(file.write("x")), "no write after commit");
  EXPECT_DEATH(static_cast<void>(file.commit()), "commit once");
}

TEST_F(FilesTest, ListsNamesInOrder) {
  EXPECT_THAT(names(), IsEmpty());
  for (const char* name : {"b", "a", "C", ".hidden", "10", "9"}) folder_.file(name, "");
  fs::create_directory(folder_ / "folder");
  EXPECT_THAT(names(), ElementsAre(".hidden", "10", "9", "C", "a", "b", "folder"));
}

TEST_F(FilesTest, ListsFoldersOnly) {
  folder_.file("a", "");
  const auto file = list_folder(folder_ / "a");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(file.error().what(), HasSubstr("not a folder"));
  const auto missing = list_folder(folder_ / "none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::not_found);
}

TEST_F(FilesTest, TellsKindsOfPathsApart) {
  folder_.file("file", "");
  fs::create_directory(folder_ / "folder");
  fs::create_symlink("file", folder_ / "to_file");
  fs::create_symlink("folder", folder_ / "to_folder");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(path_kind(folder_ / "file").value(), PathKind::file);
  EXPECT_EQ(path_kind(folder_ / "folder").value(), PathKind::folder);
  EXPECT_EQ(path_kind(folder_ / "to_file").value(), PathKind::file);
  EXPECT_EQ(path_kind(folder_ / "to_folder").value(), PathKind::folder);
  EXPECT_EQ(path_kind(folder_ / "pipe").value(), PathKind::other);
  for (const char* name : {"none", "file/below"})
    EXPECT_EQ(path_kind(folder_ / name).value(), PathKind::missing) << name;
}

}  // namespace
}  // namespace motley
