#include "base/progress.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_clock.h"

namespace motley {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ProgressTest : public testing::Test {
 protected:
  Progress::Options options(std::uint64_t total, bool terminal = false) {
    return {.label = "loading",
            .total = total,
            .unit = Progress::Unit::count,
            .terminal = terminal,
            .sink = [this](std::string_view text) { shown_.emplace_back(text); },
            .clock = &clock_};
  }
  std::vector<std::string> take() { return std::exchange(shown_, {}); }

  test::ScriptedClock clock_;
  std::vector<std::string> shown_;
};

std::string bar(int filled, const std::string& amounts) {
  const auto width = static_cast<std::size_t>(filled);
  return "\r\x1b[Kloading [" + std::string(width, '#') + std::string(30 - width, '.') + "] " +
         amounts;
}

TEST_F(ProgressTest, PrintsALineEveryTenPerCent) {
  Progress progress(options(1000));
  for (int i = 0; i < 1000; ++i) {
    clock_.advance(milliseconds(100));
    progress.advance(1);
  }
  EXPECT_THAT(take(), ElementsAre("loading: 10 % (100 of 1000)\n", "loading: 20 % (200 of 1000)\n",
                                  "loading: 30 % (300 of 1000)\n", "loading: 40 % (400 of 1000)\n",
                                  "loading: 50 % (500 of 1000)\n", "loading: 60 % (600 of 1000)\n",
                                  "loading: 70 % (700 of 1000)\n", "loading: 80 % (800 of 1000)\n",
                                  "loading: 90 % (900 of 1000)\n"));
  progress.finish();
  EXPECT_THAT(take(), ElementsAre("loading: 1000 in 1 min 40 s\n"));
}

TEST_F(ProgressTest, PrintsAtMostOneLineForEachTenthOfAnyTotal) {
  for (std::uint64_t total = 1; total <= 60; ++total) {
    Progress progress(options(total));
    int last_tenth = 0;
    for (std::uint64_t done = 1; done <= total; ++done) {
      clock_.advance(std::chrono::seconds(2));
      progress.set(done);
      const auto tenth = static_cast<int>(10 * done / total);
      const bool wanted = tenth > last_tenth && done < total;
      EXPECT_EQ(take().size(), wanted ? 1U : 0U) << done << " of " << total;
      last_tenth = tenth;
    }
  }
}

TEST_F(ProgressTest, PrintsAtMostOneLineASecond) {
  Progress progress(options(100));
  progress.set(10);
  EXPECT_THAT(take(), ElementsAre("loading: 10 % (10 of 100)\n"));
  clock_.advance(milliseconds(999));
  progress.set(50);
  EXPECT_THAT(take(), IsEmpty());
  clock_.advance(milliseconds(1));
  progress.set(51);
  EXPECT_THAT(take(), ElementsAre("loading: 51 % (51 of 100)\n"));
}

TEST_F(ProgressTest, PlainLinesHoldNoControlCharacters) {
  {
    Progress progress(options(10));
    for (int i = 0; i < 5; ++i) {
      clock_.advance(std::chrono::seconds(3));
      progress.advance(1);
    }
  }
  EXPECT_EQ(shown_.size(), 5U);
  for (const std::string& line : shown_) {
    EXPECT_EQ(line.find_first_of("\r\x1b"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  }
}

TEST_F(ProgressTest, RedrawsTheBarAtMostTenTimesASecond) {
  Progress progress(options(300, true));
  progress.set(10);
  EXPECT_THAT(take(), ElementsAre(bar(1, "10 of 300")));
  clock_.advance(milliseconds(99));
  progress.set(100);
  EXPECT_THAT(take(), IsEmpty());
  clock_.advance(milliseconds(1));
  progress.set(150);
  EXPECT_THAT(take(), ElementsAre(bar(15, "150 of 300")));
  clock_.advance(milliseconds(100));
  progress.set(300);
  EXPECT_THAT(take(), ElementsAre(bar(30, "300 of 300")));
  progress.finish();
  EXPECT_THAT(take(), ElementsAre("\r\x1b[Kloading: 300 in 200 ms\n"));
}

TEST_F(ProgressTest, EndsTheBarsLineWhenTheWorkFails) {
  {
    Progress progress(options(10, true));
    progress.set(5);
    take();
  }
  EXPECT_THAT(take(), ElementsAre("\n"));
}

TEST_F(ProgressTest, LeavesNoEmptyLineWhereNoBarStands) {
  {
    Progress progress(options(10, true));
  }
  EXPECT_THAT(take(), IsEmpty());
  {
    Progress progress(options(10, true));
    progress.set(10);
    progress.finish();
    take();
  }
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(ProgressTest, MovedIsEndedOnce) {
  {
    auto first = std::make_unique<Progress>(options(10, true));
    first->set(5);
    const Progress second(std::move(*first));
    take();
    first.reset();
    EXPECT_THAT(take(), IsEmpty());
  }
  EXPECT_THAT(take(), ElementsAre("\n"));
}

TEST_F(ProgressTest, NeverGoesBeyondTheTotal) {
  Progress progress(options(10, true));
  progress.set(25);
  EXPECT_THAT(take(), ElementsAre(bar(30, "10 of 10")));
}

TEST_F(ProgressTest, NothingToDoIsDone) {
  Progress line(options(0));
  line.set(0);
  EXPECT_THAT(take(), IsEmpty());
  line.finish();
  EXPECT_THAT(take(), ElementsAre("loading: 0 in 0 us\n"));
  Progress progress(options(0, true));
  progress.set(0);
  EXPECT_THAT(take(), ElementsAre(bar(30, "0 of 0")));
}

TEST_F(ProgressTest, ShowsBytesInUnits) {
  auto in_bytes = options(3ULL << 30);
  in_bytes.unit = Progress::Unit::bytes;
  Progress progress(in_bytes);
  progress.set(3ULL << 29);
  EXPECT_THAT(take(), ElementsAre("loading: 50 % (1.5 GiB of 3.0 GiB)\n"));
}

}  // namespace
}  // namespace motley
