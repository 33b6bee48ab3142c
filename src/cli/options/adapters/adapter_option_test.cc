#include "cli/options/adapters/adapter_option.h"

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

TEST(AdapterOption, OptionsStandBehindThePathInAnyOrder) {
  const serving::StartAdapter plain = parse_adapter_option("poet=a/b").value();
  EXPECT_EQ(plain.name, "poet");
  EXPECT_EQ(plain.path, "a/b");
  EXPECT_FALSE(plain.load.partial);
  EXPECT_FALSE(plain.pinned);
  const serving::StartAdapter told =
      parse_adapter_option("poet=a,b/c,partial,orientation=swapped,pinned").value();
  EXPECT_EQ(told.path, "a,b/c");
  EXPECT_TRUE(told.load.partial);
  EXPECT_TRUE(told.pinned);
  EXPECT_EQ(told.load.orientation, lora::Orientation::swapped);
  // Text that is no option belongs to the path.
  EXPECT_EQ(parse_adapter_option("poet=a,whole").value().path, "a,whole");
  EXPECT_FALSE(parse_adapter_option("poet=,partial").ok());
}

}  // namespace
}  // namespace motley::cli
