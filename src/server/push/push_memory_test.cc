#include "server/push/push_memory.h"

#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"
#include "lora/test_base.h"

namespace motley::server {
namespace {

using testing::HasSubstr;

std::unique_ptr<lora::AdapterContent> content() {
  const TemporaryFolder folder;
  lora::test::AdapterFiles files;
  files.add("model.layers.0.self_attn.q_proj.lora_A.weight", {2, 24}, std::vector<float>(48));
  files.write(folder.path(), R"({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})");
  return lora::AdapterContent::copy_of(folder.path(), "poet", {}).value();
}

void wait_for_contents(const PushMemory& memory, std::uint64_t contents) {
  while (memory.figures().contents != contents) std::this_thread::yield();
}

TEST(PushMemory, HasRoomForItsLimit) {
  PushMemory memory({.max_bytes = 100});
  PushMemory::Share first(memory);
  EXPECT_TRUE(first.grow(60).ok());
  {
    PushMemory::Share second(memory);
    EXPECT_TRUE(second.grow(40).ok());
    const Result<void> full = second.grow(1);
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code(), ErrorCode::busy);
    EXPECT_THAT(full.error().message(), HasSubstr("other pushed adapters hold 60 B of the 100 B"));
    const Result<void> never = second.grow(61);
    ASSERT_FALSE(never.ok());
    EXPECT_EQ(never.error().code(), ErrorCode::too_long);
    EXPECT_EQ(second.grow(static_cast<std::uint64_t>(-1)).error().code(), ErrorCode::too_long);
    EXPECT_EQ(memory.figures().used_bytes, 100U);
    second.shrink_to(10);
    EXPECT_EQ(memory.figures().used_bytes, 70U);
  }
  EXPECT_EQ(memory.figures().used_bytes, 60U);
}

TEST(PushMemory, FreesAContentWhenItsLastUseEnds) {
  PushMemory memory({.max_bytes = 100});
  PushMemory::Share share(memory);
  share.grow(70).value();
  auto kept = memory.keep(content(), std::move(share));
  auto used_by_a_load = kept;
  kept.reset();
  EXPECT_EQ(memory.figures().contents, 1U);
  EXPECT_EQ(memory.figures().used_bytes, 70U);
  used_by_a_load.reset();
  wait_for_contents(memory, 0);
  EXPECT_EQ(memory.figures().used_bytes, 0U);
}

TEST(PushMemory, MayEndBeforeItsContents) {
  std::shared_ptr<const lora::AdapterContent> kept;
  {
    PushMemory memory({.max_bytes = 100});
    PushMemory::Share share(memory);
    share.grow(70).value();
    kept = memory.keep(content(), std::move(share));
  }
  EXPECT_FALSE(kept->config().empty());
  kept.reset();
}

}  // namespace
}  // namespace motley::server
