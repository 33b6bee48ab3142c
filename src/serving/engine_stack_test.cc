#include "serving/engine_stack.h"

#include <gtest/gtest.h>

namespace motley::serving {
namespace {

TEST(SizedBy, TheAdviceNamesTheOptionWhereThereIsNoRoom) {
  const Error full(ErrorCode::out_of_memory, "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB",
                   "cpu", "free some memory, or ask for less");
  EXPECT_EQ(sized_by(full, "--adapter-memory").message(),
            "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB (cpu): give less with "
            "--adapter-memory, or free some memory");
  const Error other(ErrorCode::invalid_argument, "not a size", "", "give bytes");
  EXPECT_EQ(sized_by(other, "--adapter-memory").message(), "not a size: give bytes");
}

}  // namespace
}  // namespace motley::serving
