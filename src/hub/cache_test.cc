#include "hub/cache.h"

#include <array>
#include <string>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"

namespace motley::hub {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string one = "1111111111111111111111111111111111111111";
const std::string two = "2222222222222222222222222222222222222222";
const std::string three = "3333333333333333333333333333333333333333";

// A cache with acme/demo: main and refs/pr/1 are `one`, the tag v1 and feature/x are `two`, and
// nothing names `three`.
class HubCache : public testing::Test {
 protected:
  HubCache() {
    for (const std::string& commit : {one, two, three})
      put(cat(demo, "snapshots/", commit, "/config.json"), commit);
    put(demo + "refs/main", one);
    put(demo + "refs/refs/pr/1", one + "\n");
    put(demo + "refs/v1", two);
    put(demo + "refs/feature/x", two);
  }
  void put(const std::string& name, std::string_view content) const {
    fs::create_directories((folder_ / name).parent_path());
    folder_.file(name, content);
  }
  Cache cache() const { return {.folder = folder_ / "hub"}; }

  // The commit of the snapshot, or the error.
  std::string found(std::string_view name) const {
    const auto snapshot = find_snapshot(cache(), parse_repository(name).value());
    return snapshot.ok() ? snapshot->folder.filename().string() : snapshot.error().message();
  }

  const std::string demo = "hub/models--acme--demo/";
  TemporaryFolder folder_;
};

TEST_F(HubCache, ARevisionIsAReferenceOrAWholeCommit) {
  EXPECT_EQ(found("acme/demo"), one);
  EXPECT_EQ(found("hf://acme/demo"), one);
  EXPECT_EQ(found("acme/demo@refs/pr/1"), one);
  EXPECT_EQ(found("acme/demo@v1"), two);
  EXPECT_EQ(found("acme/demo@feature/x"), two);
  EXPECT_EQ(found("acme/demo@" + three), three);
  put("hub/models--gpt2/snapshots/" + two + "/config.json", "{}");
  put("hub/models--gpt2/refs/main", two);
  EXPECT_EQ(found("hf://gpt2"), two);
}

TEST_F(HubCache, WhatIsNotThereIsNamedWithTheCommandThatFetchesIt) {
  EXPECT_EQ(found("acme/other@v2"),
            cat("acme/other is not in the Hugging Face cache (", (folder_ / "hub").string(),
                "): fetch it: hf download acme/other --revision v2"));
  EXPECT_EQ(found("acme/other"),
            cat("acme/other is not in the Hugging Face cache (", (folder_ / "hub").string(),
                "): fetch it: hf download acme/other"));
  EXPECT_EQ(found("acme/demo@v2"),
            cat("acme/demo is in the Hugging Face cache, but not its revision 'v2' (",
                (folder_ / "hub/models--acme--demo").string(),
                "): fetch it: hf download acme/demo --revision v2; or name one that is there: "
                "acme/demo@feature/x, acme/demo@main, acme/demo@refs/pr/1, acme/demo@v1, "
                "acme/demo@",
                three));
  // The folder of references is none.
  EXPECT_THAT(found("acme/demo@refs"), HasSubstr("not its revision 'refs'"));
  Cache offline = cache();
  offline.offline = true;
  EXPECT_THAT(
      find_snapshot(offline, parse_repository("acme/demo@a'b").value()).error().message(),
      HasSubstr("fetch it: HF_HUB_OFFLINE=0 hf download acme/demo --revision 'a'\\''b'; or"));
  EXPECT_THAT(find_snapshot(Cache{}, parse_repository("acme/demo").value()).error().message(),
              HasSubstr("hf download acme/demo"));
}

TEST_F(HubCache, AnAbbreviatedCommitIsNotGuessed) {
  EXPECT_THAT(found("acme/demo@3333333"), HasSubstr("write the whole commit: acme/demo@" + three));
  // But huggingface_hub writes a reference where one was downloaded.
  put(demo + "refs/3333333", three);
  EXPECT_EQ(found("acme/demo@3333333"), three);
}

TEST_F(HubCache, NoOtherRevisionStandsInForMain) {
  put("hub/models--acme--pinned/snapshots/" + two + "/config.json", "{}");
  EXPECT_EQ(found("acme/pinned@" + two), two);
  EXPECT_THAT(found("acme/pinned"),
              AllOf(HasSubstr("not its revision 'main'"), HasSubstr("acme/pinned@" + two)));
}

TEST_F(HubCache, AReferenceLeadsIntoSnapshotsOnly) {
  put(demo + "refs/bad", "../../other");
  EXPECT_THAT(found("acme/demo@bad"), HasSubstr("a reference that names no commit"));
  put(demo + "refs/empty", "");
  EXPECT_THAT(found("acme/demo@empty"), HasSubstr("a reference that names no commit"));
  put(demo + "refs/gone", std::string(40, '4'));
  EXPECT_THAT(found("acme/demo@gone"),
              AllOf(HasSubstr("not its revision 'gone'"), Not(HasSubstr("@gone,"))));
}

TEST_F(HubCache, PartsOfACacheMayBeLinks) {
  fs::create_directories(folder_ / "disk");
  fs::rename(folder_ / "hub/models--acme--demo", folder_ / "disk/moved");
  fs::create_directory_symlink(folder_ / "disk/moved", folder_ / "hub/models--acme--demo");
  fs::create_directory_symlink(folder_ / "hub", folder_ / "link");
  const Cache linked{.folder = folder_ / "link"};
  const Snapshot snapshot = find_snapshot(linked, {.id = "acme/demo"}).value();
  EXPECT_EQ(fs::canonical(snapshot.folder), fs::canonical(folder_ / "disk/moved/snapshots" / one));
  EXPECT_EQ(snapshot_at(snapshot.folder)->repository.id, "acme/demo");
  EXPECT_EQ(snapshot_of_folder(folder_ / "hub/models--acme--demo", linked).value()->repository.id,
            "acme/demo");
}

// Other users' caches, and those of containers.
TEST_F(HubCache, ACacheMayBeReadOnly) {
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    const mode_t mode = entry.is_directory() ? 0555 : 0444;
    ASSERT_EQ(::chmod(entry.path().c_str(), mode), 0);
  }
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0555), 0);
  // Permissions don't hold for root: this thread looks at files as another user.
  const int before = ::setfsuid(65534);
  const std::string commit = found("acme/demo@v1");
  ::setfsuid(static_cast<uid_t>(before));
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
    if (entry.is_directory()) ::chmod(entry.path().c_str(), 0755);
  ::chmod(folder_.path().c_str(), 0755);
  EXPECT_EQ(commit, two);
}

TEST_F(HubCache, AFolderOfACacheMayBeNamedByItsPath) {
  const auto named = [&](std::string_view name) {
    return snapshot_of_folder(folder_ / name, cache()).value();
  };
  EXPECT_EQ(named(demo)->folder.filename(), one);
  EXPECT_FALSE(named("hub").has_value());
  // Without the branch main the only snapshot is meant.
  put("hub/models--acme--pinned/snapshots/" + two + "/config.json", "{}");
  EXPECT_EQ(named("hub/models--acme--pinned")->repository,
            (Repository{.id = "acme/pinned", .revision = two}));
  fs::remove(folder_ / (demo + "refs/main"));
  const auto none = snapshot_of_folder(folder_ / demo, Cache{});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message(),
              AllOf(HasSubstr("a cache of acme/demo without the snapshot of its branch main"),
                    HasSubstr(cat("name one of snapshots/: ", one)),
                    HasSubstr(cat("hf download acme/demo --cache-dir ", folder_.path().string()))));
}

TEST_F(HubCache, AFileWithoutItsBlobIsNamed) {
  const Snapshot snapshot = find_snapshot(cache(), {.id = "acme/demo", .revision = "v1"}).value();
  constexpr std::array<std::string_view, 2> endings = {".json", ".safetensors"};
  EXPECT_TRUE(check_links(cache(), snapshot, endings).ok());
  put(demo + "blobs/aa.1234.incomplete", "half");
  fs::create_symlink("../../blobs/bb", snapshot.folder / "picture.png");
  EXPECT_TRUE(check_links(cache(), snapshot, endings).ok());
  fs::create_symlink("../../blobs/aa", snapshot.folder / "model.safetensors");
  EXPECT_EQ(check_links(cache(), snapshot, endings).error().message(),
            cat("acme/demo lacks model.safetensors in the Hugging Face cache (",
                (snapshot.folder / "model.safetensors").string(),
                "): finish its download: hf download acme/demo --revision v1"));
  put(demo + "blobs/aa", "whole");
  EXPECT_TRUE(check_links(cache(), snapshot, endings).ok());
}

}  // namespace
}  // namespace motley::hub
