#include "base/system/line_writer.h"

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/test_clock.h"
#include "base/test_waits.h"

namespace motley {
namespace {

using std::chrono::milliseconds;

using test::max_wait;

class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(::pipe(ends_), 0);
    // The smallest size of a pipe.
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
  }
  ~Pipe() {
    close_reader();
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  // Lines from the pipe until one contains this.
  std::vector<std::string> read_until(std::string_view last) {
    std::string text;
    char piece[512];
    while (text.find(last) == std::string::npos || text.back() != '\n') {
      pollfd ready{.fd = ends_[0], .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, static_cast<int>(max_wait.count())) == 0) {
        ADD_FAILURE() << "the pipe never had '" << last << "', only '" << text << "'";
        break;
      }
      const ssize_t count = ::read(ends_[0], piece, sizeof piece);
      if (count <= 0) break;
      text.append(piece, static_cast<std::size_t>(count));
    }
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::string lost_line(std::uint64_t lines) { return cat("lost ", lines, "\n"); }

TEST(LineWriter, LinesComeInOrder) {
  Pipe pipe;
  LineWriter writer({.descriptor = pipe.writer(), .lost_line = lost_line});
  // More than the pipe holds: only the thread waits for the reader.
  constexpr int count = 20'000;
  for (int i = 0; i < count; ++i) ASSERT_TRUE(writer.write(cat("line ", i, "\n")));
  const std::vector<std::string> lines = pipe.read_until(cat("line ", count - 1));
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ASSERT_EQ(lines[static_cast<std::size_t>(i)], cat("line ", i));
  EXPECT_TRUE(writer.flush(max_wait));
  EXPECT_EQ(writer.lost(), 0);
}

// With a blocking and a non-blocking descriptor.
class StoppedReader : public testing::TestWithParam<int> {};

TEST_P(StoppedReader, CostsLinesThatAreCountedAndReportedWhenItReadsAgain) {
  Pipe pipe;
  ::fcntl(pipe.writer(), F_SETFL, GetParam());
  // Full from the beginning.
  const std::string filling(4095, 'x');
  ASSERT_TRUE(write_within(pipe.writer(), filling + '\n', milliseconds(0)));
  LineWriter writer({.descriptor = pipe.writer(), .bytes = 4096, .lost_line = lost_line});
  constexpr int count = 5'000;
  int written = 0;
  std::vector<std::string> expected = {filling};
  for (int i = 0; i < count; ++i) {
    if (!writer.write(cat("line ", i, "\n"))) continue;
    ++written;
    expected.push_back(cat("line ", i));
  }
  const std::uint64_t lost = writer.lost();
  ASSERT_EQ(lost, static_cast<std::uint64_t>(count - written));
  ASSERT_GT(lost, 0);
  EXPECT_FALSE(writer.flush(milliseconds(0)));
  expected.push_back(cat("lost ", lost));
  EXPECT_EQ(pipe.read_until("lost"), expected);
  ASSERT_TRUE(writer.write("after\n"));
  EXPECT_EQ(pipe.read_until("after"), std::vector<std::string>{"after"});
}

INSTANTIATE_TEST_SUITE_P(Descriptors, StoppedReader, testing::Values(0, O_NONBLOCK));

TEST(LineWriter, LinesOfSeveralThreadsStayWholeWhereSomeAreLost) {
  Pipe pipe;
  LineWriter writer({.descriptor = pipe.writer(), .bytes = 8192, .lost_line = lost_line});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < 2000; ++i) writer.write(cat("thread ", t, " line ", i, "\n"));
    });
  }
  std::thread last([&] {
    for (std::thread& thread : threads) thread.join();
    test::wait_for("the ring has room for the last line", [&] { return writer.write("last\n"); });
  });
  std::uint64_t said = 0;
  std::uint64_t whole = 0;
  std::vector<int> next(4, 0);
  for (const std::string& line : pipe.read_until("last")) {
    int thread = 0;
    int number = 0;
    if (line.starts_with("lost ")) {
      said += std::stoull(line.substr(5));
    } else if (line != "last") {
      ASSERT_EQ(std::sscanf(line.c_str(), "thread %d line %d", &thread, &number), 2) << line;
      ASSERT_GE(number, next[static_cast<std::size_t>(thread)]) << line;
      next[static_cast<std::size_t>(thread)] = number + 1;
      ++whole;
    }
  }
  last.join();
  // Lines whose last attempt failed count as lost.
  EXPECT_EQ(said, writer.lost());
  EXPECT_GE(whole + said, 8000);
}

TEST(LineWriter, AReaderThatHasGoneCostsItsLinesOnly) {
  Pipe pipe;
  pipe.close_reader();
  LineWriter writer({.descriptor = pipe.writer(), .lost_line = lost_line});
  writer.write("not\nread\n");
  EXPECT_TRUE(writer.flush(max_wait));
  EXPECT_EQ(writer.lost(), 2);
}

TEST(LineWriter, ADescriptorThatIsClosedCostsItsLinesOnly) {
  int closed = -1;
  {
    const Pipe pipe;
    closed = ::fcntl(pipe.writer(), F_DUPFD, 900);
  }
  ::close(closed);
  LineWriter writer({.descriptor = closed, .lost_line = lost_line});
  writer.write("not read\n");
  EXPECT_TRUE(writer.flush(max_wait));
  EXPECT_EQ(writer.lost(), 1);
}

TEST(LineWriter, ItsEndWritesWhatIsLeft) {
  Pipe pipe;
  {
    LineWriter({.descriptor = pipe.writer(), .lost_line = lost_line}).write("the last line\n");
  }
  EXPECT_EQ(pipe.read_until("\n"), std::vector<std::string>{"the last line"});
}

TEST(LineWriter, ItsEndWaitsOnlySoLongForAReaderThatHasStopped) {
  Pipe pipe;
  test::ScriptedClock clock;
  test::Event ended;
  std::thread user([&] {
    {
      LineWriter writer(
          {.descriptor = pipe.writer(), .patience = milliseconds(1000), .clock = &clock});
      while (writer.write("a line that is not read\n")) {
      }
    }
    ended.set();
  });
  clock.wait_for_threads(1, TimePoint(milliseconds(1000)), "the writer's end waits for the reader");
  EXPECT_FALSE(ended.has_happened());
  clock.advance(milliseconds(1000));
  ended.wait("the writer ends although its reader takes nothing");
  user.join();
}

TEST(WriteWithin, EndsIfThereIsNoReader) {
  Pipe pipe;
  EXPECT_TRUE(write_within(pipe.writer(), "fits\n", milliseconds(0)));
  EXPECT_FALSE(write_within(pipe.writer(), std::string(1 << 20, 'x'), milliseconds(10)));
  EXPECT_FALSE(write_within(-1, "x", milliseconds(10)));
}

}  // namespace
}  // namespace motley
