#include "cli/options/adapters/adapter_option.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/command.h"

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

std::string refused_word(const std::string& option) {
  const std::vector<std::string> words{MOTLEY_DEMO_MODEL, "--adapter", option};
  const Arguments arguments = Arguments::parse(serve_command().spec, words).value();
  return read_adapter_options(arguments).error().message();
}

TEST(AdapterOption, AWordThatIsNoOptionIsNamed) {
  const std::string cynic = "a=" MOTLEY_DEMO_MODEL "/adapters/cynic";
  EXPECT_EQ(refused_word(cynic + ",pined"),
            "'pined' is no option of an adapter (--adapter a): did you mean pinned?");
  EXPECT_EQ(refused_word(cynic + ",x,partial"),
            "'x' is no option of an adapter (--adapter a): options after the path are pinned, "
            "partial, b-columns=rank-major, orientation=standard");
}

}  // namespace
}  // namespace motley::cli
