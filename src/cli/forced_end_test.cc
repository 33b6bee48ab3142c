#include "cli/forced_end.h"

#include <csignal>
#include <system_error>
#include <unistd.h>

#include <gtest/gtest.h>

#include "cli/lack_of_threads.h"

namespace motley::cli {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;

class ForcedEndDeathTest : public testing::Test {
 protected:
  // The process is started again for each, because it has threads.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// As a shutdown that waits for a thread that does not end.
[[noreturn]] void wait_for_ever() {
  while (true) ::pause();
}

TEST_F(ForcedEndDeathTest, ASecondSignalEndsTheProcessWhateverItsThreadsDo) {
  EXPECT_EXIT(
      {
        const HeldSignals signals(HeldSignals::Hangup::asks);
        ForcedEnd forced_end(signals);
        forced_end.arm(1h);
        std::thread stuck(wait_for_ever);
        ::kill(::getpid(), SIGHUP);  // which ends nothing
        ::kill(::getpid(), SIGTERM);
        stuck.join();
      },
      testing::ExitedWithCode(0), "hangup_ignored(.|\n)*a second signal");
}

TEST_F(ForcedEndDeathTest, AShutdownThatTakesTooLongEndsTheProcess) {
  EXPECT_EXIT(
      {
        const HeldSignals signals;
        ForcedEnd forced_end(signals);
        forced_end.arm(1ms);
        wait_for_ever();
      },
      testing::ExitedWithCode(ForcedEnd::stuck_status), "a thread does not end");
}

TEST(ForcedEnd, LetsAnOrderlyShutdownBe) {
  const HeldSignals signals;
  {
    ForcedEnd unused(signals);
  }
  ForcedEnd forced_end(signals);
  forced_end.arm(1h);
  forced_end.arm(0ms);  // the first counts
}

// As where a thread can't be started: std::thread throws.
void lack_a_thread() {
  throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

TEST_F(ForcedEndDeathTest, ALackOfThreadsIsExplained) {
  EXPECT_EXIT(
      {
        explain_lack_of_threads();
        []() noexcept { lack_a_thread(); }();
      },
      testing::ExitedWithCode(1), "motley: no thread can be started .*ulimit -u");
}

}  // namespace
}  // namespace motley::cli
