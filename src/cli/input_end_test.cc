#include "cli/input_end.h"

#include <array>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    ::close(ends_[0]);
    close_writer();
  }

  int reader() const { return ends_[0]; }
  void write(std::size_t bytes) {
    const std::string text(bytes, 'x');
    EXPECT_EQ(::write(ends_[1], text.data(), bytes), static_cast<ssize_t>(bytes));
  }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(InputEnd, IsReachedWhenTheWriterIsGone) {
  Pipe pipe;
  InputEnd input(pipe.reader());
  EXPECT_FALSE(input.reached());
  pipe.close_writer();
  EXPECT_TRUE(input.reached());
  EXPECT_TRUE(input.reached());
}

TEST(InputEnd, IsNotReachedByWhatIsWritten) {
  Pipe pipe;
  InputEnd input(pipe.reader());
  pipe.write(10'000);
  EXPECT_FALSE(input.reached());
  pipe.write(10);
  pipe.close_writer();
  EXPECT_TRUE(input.reached());
}

TEST(InputEnd, IsReachedWhereNothingIsOpen) { EXPECT_TRUE(InputEnd(1'000'000).reached()); }

}  // namespace
}  // namespace motley::cli
