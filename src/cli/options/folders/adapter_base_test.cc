#include "cli/options/folders/adapter_base.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/temporary_folder.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string commit(40, '1');

class AdapterBase : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view content) const {
    fs::create_directories((folder_ / name).parent_path());
    folder_.file(name, content);
  }
  std::string at(std::string_view name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(AdapterBase, AFolderIsKnownByItsNameAndItsPath) {
  put("demo-8x/config.json", R"({"_name_or_path": "acme/Demo"})");
  fs::create_directory_symlink(folder_ / "demo-8x", folder_ / "link");
  const ServedBase base(folder_ / "demo-8x", {"served"});
  for (const std::string& name :
       {std::string("served"), std::string("demo-8x"), std::string("acme/demo-8x"),
        std::string("acme/demo"), std::string("other/demo"), std::string("/data/demo-8x/"),
        std::string("hf://acme/demo@v1"), at("link"), at("demo-8x"),
        "/home/me/.cache/huggingface/hub/models--acme--demo/snapshots/" + commit})
    EXPECT_TRUE(base.is_named(name)) << name;
  for (const std::string& name :
       {std::string("acme/demo-4x"), std::string("/data/other"), std::string("link"), at("none"),
        "/home/me/hub/models--acme--other/snapshots/" + commit})
    EXPECT_FALSE(base.is_named(name)) << name;
}

TEST_F(AdapterBase, ASnapshotIsKnownByItsRepositoryWhicheverTheRevision) {
  const std::string snapshot = "hub/models--acme--demo/snapshots/" + commit;
  put(snapshot + "/config.json", "{}");
  const ServedBase base(folder_ / snapshot, {"served"});
  EXPECT_TRUE(base.is_named("acme/demo"));
  EXPECT_TRUE(base.is_named("acme/demo@refs/pr/1"));
  EXPECT_TRUE(base.is_named("/x/models--acme--demo/snapshots/" + std::string(40, '2') + "/"));
  EXPECT_FALSE(base.is_named("acme/demo2"));
}

TEST_F(AdapterBase, AnotherBaseIsWarnedOf) {
  put("base/config.json", "{}");
  put("none/adapter_config.json", R"({"base_model_name_or_path": null})");
  put("same/adapter_config.json", R"({"base_model_name_or_path": "acme/base"})");
  put("other/adapter_config.json", R"({"base_model_name_or_path": "acme/other"})");
  std::vector<std::string> lines;
  log::Settings before = log::settings();
  log::configure({.sink = [&](std::string_view line) { lines.emplace_back(line); }});
  const ServedBase base(folder_ / "base", {"base"});
  for (const char* adapter : {"none", "same", "missing"}) base.warn(adapter, folder_ / adapter, {});
  EXPECT_THAT(lines, IsEmpty());
  base.warn("poet", folder_ / "other", {});
  // Files of a client's folder are read below its root only.
  base.warn("poet", folder_ / "other", "/elsewhere");
  log::configure(std::move(before));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines.front(), AllOf(HasSubstr("adapter.other_base"), HasSubstr("adapter=poet"),
                                   HasSubstr("trained_on=acme/other"), HasSubstr("base=base")));
}

}  // namespace
}  // namespace motley::cli
