#include "base/system/mapped_files.h"

#include <array>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "base/test_clock.h"
#include "base/test_waits.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t page = 4096;

// A watch that checks on request, and its log.
class MappedFilesWatchTest : public testing::Test {
 protected:
  MappedFilesWatchTest() {
    log::configure({.sink = [this](std::string_view line) { lines_.emplace_back(line); }});
    path_ = folder_.file("model.safetensors", std::string(3 * page, 'x'));
  }
  ~MappedFilesWatchTest() override { log::configure({}); }

  // The health after a check.
  std::string health_of(MappedFilesWatch& watch) {
    watch.look();
    const Result<void> health = watch.health();
    return health.ok() ? "well" : health.error().message();
  }
  void write(std::string_view text) {
    const int file = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    // The kernel's clock may not have advanced since the file was created.
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 5, .tv_nsec = 7}};
    ASSERT_EQ(::futimens(file, times), 0);
    ::close(file);
  }

  TemporaryFolder folder_;
  std::filesystem::path path_;
  std::vector<std::string> lines_;
};

constexpr Duration an_hour = std::chrono::hours(1);

TEST_F(MappedFilesWatchTest, FilesThatStayAsTheyAreAreWell) {
  MappedFilesWatch watch(an_hour);
  const auto mapped = MappedFile::open(path_).value();
  EXPECT_EQ(health_of(watch), "well");
  // Reading it, and changes beside it, do not count.
  read_text(path_, 1 << 20).value();
  folder_.file("other", "text");
  EXPECT_EQ(health_of(watch), "well");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(MappedFilesWatchTest, SaysOnceThatAFileWasWritten) {
  MappedFilesWatch watch(an_hour);
  const auto mapped = MappedFile::open(path_).value();
  write("y");
  const std::string health = health_of(watch);
  EXPECT_THAT(health, HasSubstr("the file 'model.safetensors' has changed"));
  EXPECT_THAT(health, testing::Not(HasSubstr(folder_.path().string())));
  EXPECT_EQ(watch.health().error().code(), ErrorCode::unavailable);
  write("z");
  EXPECT_EQ(health_of(watch), health) << "for good";
  ASSERT_THAT(lines_, ElementsAre(HasSubstr("files.changed_while_mapped")));
  EXPECT_THAT(lines_[0], HasSubstr(path_.string()));
}

TEST_F(MappedFilesWatchTest, SeesLengthPlaceAndAbsence) {
  {
    MappedFilesWatch watch(an_hour);
    const auto mapped = MappedFile::open(path_).value();
    ASSERT_EQ(::truncate(path_.c_str(), page), 0);
    EXPECT_THAT(health_of(watch), HasSubstr("has changed"));
    EXPECT_THAT(lines_.back(), HasSubstr("it had 12288 bytes and has 4096"));
  }
  {
    MappedFilesWatch watch(an_hour);
    const auto mapped = MappedFile::open(path_).value();
    folder_.file("model.safetensors", std::string(page, 'x'));  // renamed over the mapped file
    EXPECT_THAT(health_of(watch), HasSubstr("has changed"));
    EXPECT_THAT(lines_.back(), HasSubstr("another file is in its place"));
  }
  MappedFilesWatch watch(an_hour);
  const auto mapped = MappedFile::open(path_).value();
  std::filesystem::remove(path_);
  EXPECT_THAT(health_of(watch), HasSubstr("has changed"));
  EXPECT_THAT(lines_.back(), HasSubstr("it is gone"));
}

TEST_F(MappedFilesWatchTest, LooksByItself) {
  test::Event seen;
  log::configure({.sink = [&](std::string_view) { seen.set(); }});
  test::ScriptedClock clock;
  MappedFilesWatch watch(an_hour, &clock);
  const auto mapped = MappedFile::open(path_).value();
  clock.wait_for_threads(1, TimePoint(an_hour), "the watch has looked and waits for an hour");
  write("y");
  clock.advance(an_hour - Duration(1));
  EXPECT_TRUE(watch.health().ok());
  clock.advance(Duration(1));
  seen.wait("the watch has seen the change");
  clock.wait_for_threads(1, TimePoint(2 * an_hour), "the watch has looked again");
  ASSERT_FALSE(watch.health().ok());
  EXPECT_THAT(watch.health().error().message(), HasSubstr("has changed"));
}

TEST_F(MappedFilesWatchTest, CopiesAndClosedFilesMayChange) {
  MappedFilesWatch watch(an_hour);
  const auto copied = MappedFile::open(path_, FileAccess::copied).value();
  {
    auto mapped = MappedFile::open(path_).value();
    const MappedFile moved = std::move(mapped);
  }
  write("y");
  EXPECT_EQ(health_of(watch), "well");
  EXPECT_EQ(copied.text().front(), 'x');
}

// A death test's child reads a page that does not exist any more.
class LostPage : public testing::Test {
 protected:
  LostPage() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LostPage, EndsTheProcessWithOneLine) {
  const auto lose = [] {
    explain_lost_pages();
    const TemporaryFolder folder;
    const auto other = MappedFile::open(folder.file("other.safetensors", "whole")).value();
    const auto path = folder.file("model-00001-of-00002.safetensors", std::string(3 * page, 'x'));
    auto opened = MappedFile::open(path).value();
    const MappedFile mapped = std::move(opened);
    if (::truncate(path.c_str(), page) != 0) ::_exit(3);
    std::filesystem::remove_all(folder.path());
    if (mapped.text()[2 * page] == 'x') ::_exit(4);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(1),
              "^motley: a page of the file can't be read any more "
              "\\(.*/model-00001-of-00002.safetensors\\): it was cut short, or its disk failed");
}

// Replaces standard error by a full pipe. Later output is passed to the previous standard error if
// `is_read`.
void fill_standard_error(bool is_read) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) ::_exit(5);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  while (::write(STDERR_FILENO, "xxxx", 4) > 0) {
  }
  ::fcntl(STDERR_FILENO, F_SETFL, 0);
  // The reader is a separate process, which outlives this one.
  if (!is_read || ::fork() != 0) return;
  ::close(STDERR_FILENO);
  std::array<char, page> piece{};
  for (ssize_t size = 0; (size = ::read(ends[0], piece.data(), piece.size())) > 0;) {
    std::string text(piece.data(), static_cast<std::size_t>(size));
    std::erase(text, 'x');
    std::ignore = ::write(before, text.data(), text.size());
  }
  ::_exit(0);
}

TEST_F(LostPage, EndsTheProcessThoughStandardErrorIsFull) {
  const auto lose = [](bool is_read) {
    explain_lost_pages();
    const TemporaryFolder folder;
    const auto path = folder.file("weights", std::string(2 * page, 'x'));
    const auto mapped = MappedFile::open(path).value();
    if (::truncate(path.c_str(), page) != 0) ::_exit(3);
    std::filesystem::remove_all(folder.path());
    fill_standard_error(is_read);
    if (mapped.text()[page] == 'x') ::_exit(4);
  };
  EXPECT_EXIT(lose(true), testing::ExitedWithCode(1),
              "^motley: a page of the file can't be read any more \\(.*/weights\\)");
  EXPECT_EXIT(lose(false), testing::ExitedWithCode(1), "^$");
}

TEST_F(LostPage, OfWhatIsNoFileOfOursIsLeftToTheSystem) {
  const auto lose = [] {
    explain_lost_pages();
    const TemporaryFolder folder;
    const auto path = folder.file("other", std::string(2 * page, 'x'));
    {
      const auto mapped = MappedFile::open(path).value();
    }
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const auto* const data =
        static_cast<const char*>(::mmap(nullptr, 2 * page, PROT_READ, MAP_SHARED, file, 0));
    if (::truncate(path.c_str(), 0) != 0) ::_exit(3);
    std::filesystem::remove_all(folder.path());
    if (data[page] == 'x') ::_exit(4);
  };
  EXPECT_EXIT(lose(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace motley
