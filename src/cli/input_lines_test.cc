#include "cli/input_lines.h"

#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_write();
    ::close(ends_[0]);
  }
  int read_end() const { return ends_[0]; }
  void write(std::string_view text) {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void close_write() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::vector<std::string> lines_of(std::string_view text) {
  Pipe pipe;
  std::thread writer([&] {
    pipe.write(text);
    pipe.close_write();
  });
  InputLines lines(pipe.read_end(), 1 << 20);
  std::vector<std::string> all;
  while (const auto line = lines.next([] {}).value()) all.emplace_back(*line);
  writer.join();
  return all;
}

TEST(InputLines, EndAtNewlinesAndAtTheEnd) {
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of("a\n\nb"), ElementsAre("a", "", "b"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  const std::string wide(300'000, 'x');
  EXPECT_THAT(lines_of(wide + "\n" + wide), ElementsAre(wide, wide));
}

TEST(InputLines, ALineIsThereBeforeTheNextIsWritten) {
  Pipe pipe;
  InputLines lines(pipe.read_end(), 100);
  pipe.write("first\n");
  int waits = 0;
  EXPECT_EQ(lines.next([&] { ++waits; }).value(), "first");
  EXPECT_EQ(waits, 1);
  pipe.write("second\nthird\n");
  EXPECT_EQ(lines.next([&] { ++waits; }).value(), "second");
  EXPECT_EQ(lines.next([&] { ++waits; }).value(), "third");
  EXPECT_EQ(waits, 2) << "what has been read needs no waiting";
}

TEST(InputLines, RefusesALineWithoutEnd) {
  Pipe pipe;
  InputLines lines(pipe.read_end(), 10);
  pipe.write("0123456789abcdef");
  const auto line = lines.next([] {});
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(line.error().message(), HasSubstr("more than 10 bytes"));
}

}  // namespace
}  // namespace motley::cli
