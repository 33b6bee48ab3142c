#include "cli/signals.h"

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

using namespace std::chrono_literals;

// Sets the program's action on a signal during a test.
class Disposition {
 public:
  Disposition(int signal, void (*handler)(int))
      : signal_(signal), before_(std::signal(signal, handler)) {}
  Disposition(const Disposition&) = delete;
  Disposition& operator=(const Disposition&) = delete;
  ~Disposition() { std::signal(signal_, before_); }

 private:
  int signal_;
  void (*before_)(int);
};

TEST(HeldSignals, WaitForEachOfThem) {
  const Disposition hangup(SIGHUP, SIG_DFL);
  const HeldSignals held;
  EXPECT_FALSE(held.wait(0ms));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ASSERT_EQ(::raise(signal), 0);
    EXPECT_TRUE(held.wait(1000ms)) << signal;
    EXPECT_FALSE(held.wait(0ms)) << signal;
  }
}

TEST(HeldSignals, LeaveAHangupThatIsIgnoredAlone) {
  const Disposition hangup(SIGHUP, SIG_IGN);
  const HeldSignals held;
  ASSERT_EQ(::raise(SIGHUP), 0);
  EXPECT_FALSE(held.wait(0ms));
}

}  // namespace
}  // namespace motley::cli
