#include "base/system/process_figures.h"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(ProcessFigures, AreThisProcess) {
  const ProcessFigures before = process_figures();
  EXPECT_GE(before.threads, 1U);
  EXPECT_GT(before.resident_bytes, 1U << 20);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.max_files, before.open_files);
  EXPECT_GT(before.start_seconds, 0);

  const int file = ::open("/dev/null", O_RDONLY);
  const ProcessFigures after = process_figures();
  EXPECT_EQ(after.open_files, before.open_files + 1);
  EXPECT_GE(after.cpu_seconds, before.cpu_seconds);
  ::close(file);
}

}  // namespace
}  // namespace motley
