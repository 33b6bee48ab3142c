#include "cli/options/arguments/environment.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

using Values = std::map<std::string, std::string, std::less<>>;

Environment read(const Values& values) {
  const auto variables = [&](std::string_view name) -> std::optional<std::string> {
    const auto at = values.find(name);
    if (at == values.end()) return std::nullopt;
    return at->second;
  };
  const auto homes = [](std::string_view user) -> std::optional<std::string> {
    if (user.empty()) return "/passwd/me";
    if (user == "you") return "/passwd/you";
    return std::nullopt;
  };
  return read_environment(variables, homes);
}

std::string cache(const Values& values) { return read(values).hub.folder.string(); }

TEST(Environment, TheCacheIsWhereHuggingfaceHubHasIt) {
  EXPECT_EQ(cache({{"HOME", "/home/me"}}), "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(cache({}), "/passwd/me/.cache/huggingface/hub");
  EXPECT_EQ(cache({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/x/"}}), "/x/huggingface/hub");
  EXPECT_EQ(cache({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/hf"}}), "/hf/hub");
  EXPECT_EQ(cache({{"HF_HOME", "/hf"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}), "/old");
  EXPECT_EQ(cache({{"HF_HUB_CACHE", "/new"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}), "/new");
  // Set, and empty.
  EXPECT_EQ(cache({{"HF_HUB_CACHE", ""}}), ".");
  EXPECT_EQ(cache({{"HF_HOME", ""}}), "hub");
  EXPECT_EQ(cache({{"XDG_CACHE_HOME", ""}}), "huggingface/hub");
}

TEST(Environment, HomesAndVariablesInAPathAreExpanded) {
  const Values home = {{"HOME", "/home/me/"}, {"DISK", "/mnt/$HOME"}, {"EMPTY", ""}};
  const auto with = [&](const std::string& path) {
    Values values = home;
    values["HF_HUB_CACHE"] = path;
    return cache(values);
  };
  EXPECT_EQ(with("~/hub"), "/home/me/hub");
  EXPECT_EQ(with("~"), "/home/me");
  EXPECT_EQ(with("~you/hub"), "/passwd/you/hub");
  EXPECT_EQ(with("~none/hub"), "~none/hub");
  EXPECT_EQ(with("/a/~/hub"), "/a/~/hub");
  EXPECT_EQ(with("$DISK/hub"), "/mnt/$HOME/hub");
  EXPECT_EQ(with("/a/${EMPTY}b$EMPTY"), "/a/b");
  EXPECT_EQ(with("/a/$NONE/${NONE}/$/${x"), "/a/$NONE/${NONE}/$/${x");
  EXPECT_EQ(cache({{"HOME", "/home/me"}, {"HF_HOME", "~/hf"}}), "/home/me/hf/hub");
  EXPECT_EQ(cache({{"HOME", "/"}}), "/.cache/huggingface/hub");
}

TEST(Environment, OfflineIsOneOfFourWords) {
  for (const char* word : {"1", "ON", "yes", "True"}) {
    EXPECT_TRUE(read({{"HF_HUB_OFFLINE", word}}).hub.offline) << word;
    EXPECT_TRUE(read({{"TRANSFORMERS_OFFLINE", word}}).hub.offline) << word;
  }
  for (const char* word : {"", "0", "off", "2", " 1"})
    EXPECT_FALSE(read({{"HF_HUB_OFFLINE", word}}).hub.offline) << word;
  EXPECT_FALSE(read({}).hub.offline);
  // The old name counts where the new one is empty or not set.
  EXPECT_TRUE(read({{"HF_HUB_OFFLINE", ""}, {"TRANSFORMERS_OFFLINE", "1"}}).hub.offline);
  EXPECT_FALSE(read({{"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}}).hub.offline);
}

}  // namespace
}  // namespace motley::cli
