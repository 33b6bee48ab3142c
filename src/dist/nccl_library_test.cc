#include "dist/nccl_library.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/nccl_ranks.h"

namespace motley::dist {
namespace {

using testing::HasSubstr;

// The shell that it starts has this process's environment.
TEST(NcclLibrary, IsOpenedWithoutMulticastWhateverIsSet) {
  ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "1", 1), 0);
  static_cast<void>(NcclLibrary::open().ok());
  EXPECT_EQ(std::system("test $NCCL_NVLS_ENABLE = 0"), 0);
}

// Holds on machines that have it and on those that lack it.
TEST(NcclLibrary, IsOpenedOrTheErrorSaysWhatToInstall) {
  set_nccl_environment();
  const auto opened = NcclLibrary::open();
  if (opened.ok()) {
    EXPECT_TRUE(opened->check(nccl_success, "do it", nullptr).ok());
    const auto failed = opened->check(2, "do it", nullptr);
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.error().message(), HasSubstr("NCCL failed to do it: "));
    return;
  }
  EXPECT_EQ(opened.error().code(), ErrorCode::unavailable);
  EXPECT_THAT(opened.error().what(), HasSubstr("needs NCCL 2"));
  EXPECT_THAT(opened.error().where(), HasSubstr("libnccl.so.2"));
  EXPECT_THAT(opened.error().fix(), HasSubstr("pip install nvidia-nccl-cu13"));
}

TEST(NcclRanks, WithoutGpusAreAnError) {
  set_nccl_environment();
  const auto group = NcclRanks::create({.gpus = {1000, 1001}});
  ASSERT_FALSE(group.ok());
  EXPECT_FALSE(group.error().fix().empty());
}

}  // namespace
}  // namespace motley::dist
