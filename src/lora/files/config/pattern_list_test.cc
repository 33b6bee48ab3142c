#include "lora/files/config/pattern_list.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::lora {
namespace {

PatternList list_of(const std::vector<std::string>& patterns) {
  PatternList list;
  for (const std::string& pattern : patterns) list.add(pattern).value();
  return list;
}

TEST(PatternList, TheFirstOfNamesAndExpressionsWins) {
  const PatternList list =
      list_of({"q_proj", R"(.*layers\.1\..*)", "layers.1.self_attn.k_proj", R"(v_\w+)", "v_proj"});
  EXPECT_EQ(list.size(), 5U);
  EXPECT_EQ(list.first_match("model.layers.1.self_attn.q_proj"), 0U);
  EXPECT_EQ(list.first_match("model.layers.1.self_attn.k_proj"), 1U);
  EXPECT_EQ(list.first_match("layers.2.self_attn.v_proj"), 3U);
  EXPECT_EQ(list.first_match("v_proj"), 3U);
  EXPECT_EQ(list.first_match("model.layers.2.self_attn.k_proj"), std::nullopt);
  EXPECT_EQ(list.first_match("model.layers.2.self_attn.xq_proj"), std::nullopt);
  EXPECT_EQ(list.first_match(""), std::nullopt);
}

TEST(PatternList, ADotStandsForAnyCharacterUnlessItIsQuoted) {
  const PatternList list = list_of({R"(a\.b)", "a.b", "axb"});
  EXPECT_EQ(list.first_match("a.b"), 0U);
  EXPECT_EQ(list.first_match("a_b"), 1U);
  EXPECT_EQ(list.first_match("axb"), 1U);
  EXPECT_EQ(list.first_match("ab"), std::nullopt);
}

// The trie gives the same answers as the automata.
TEST(PatternList, AgreesWithTheExpressionsOneByOne) {
  std::mt19937 random(7);
  const auto pick = [&](std::string_view letters, int least, int most) {
    std::string text;
    const int length = std::uniform_int_distribution(least, most)(random);
    for (int i = 0; i < length; ++i)
      text += letters[std::uniform_int_distribution<std::size_t>(0, letters.size() - 1)(random)];
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    PatternList list;
    std::vector<text::NamePattern> alone;
    for (int i = 0; i < 12; ++i) {
      const std::string pattern = pick(i % 4 == 3 ? "ab.*" : "ab.", 1, 4);
      auto compiled = text::NamePattern::compile(pattern);
      if (!compiled.ok()) continue;
      list.add(pattern).value();
      alone.push_back(*std::move(compiled));
    }
    for (int i = 0; i < 20; ++i) {
      const std::string name = pick("ab.", 0, 6);
      std::optional<std::size_t> first;
      for (std::size_t place = 0; place < alone.size() && !first; ++place) {
        if (alone[place].matches_end(name)) first = place;
      }
      ASSERT_EQ(list.first_match(name), first) << name << " in round " << round;
    }
  }
}

// EVA writes a rank for every module. Searching them one by one takes minutes at this size.
TEST(PatternList, ManyNamesCostNoMoreThanOne) {
  PatternMap<int> ranks;
  const auto name = [](int i) {
    return cat("model.layers.", i / 384, ".mlp.experts.", i % 384 / 3, ".part_", i % 3);
  };
  constexpr int modules = 48 * 384;
  for (int i = 0; i < modules; ++i) ranks.add(name(i), i).value();
  for (int i = 0; i < modules; ++i) ASSERT_EQ(*ranks.find(name(i)), i);
  EXPECT_EQ(ranks.find("model.layers.48.mlp.experts.0.part_0"), nullptr);
}

std::string message_of(const std::vector<std::string>& patterns) {
  PatternList list;
  for (const std::string& pattern : patterns) {
    const Result<void> added = list.add(pattern);
    if (!added.ok()) return added.error().message();
  }
  return "";
}

TEST(PatternList, HoldsSoManyExpressionsOfSoManyStates) {
  EXPECT_EQ(message_of(std::vector<std::string>(PatternList::max_expressions, ".*x")), "");
  EXPECT_NE(message_of(std::vector<std::string>(PatternList::max_expressions + 1, ".*x"))
                .find("regular expressions"),
            std::string::npos);
  const std::string long_one = cat("[", std::string(4000, 'a'), "]*");
  EXPECT_NE(message_of(std::vector<std::string>(300, long_one)).find("bytes"), std::string::npos);
  // Few bytes, but almost as many states as one expression may have.
  EXPECT_NE(message_of(std::vector<std::string>(60, "(?:a{100}){190}")).find("too large together"),
            std::string::npos);
}

TEST(PatternList, SearchesStopWhereTheBudgetEnds) {
  PatternList list;
  text::MatchBudget budget(1'000'000);
  list.count_in(&budget, "rank_pattern");
  for (int i = 0; i < 2000; ++i) list.add(cat(".*x", i)).value();
  int searches = 0;
  for (; !budget.spent(); ++searches)
    EXPECT_EQ(list.first_match(cat("model.layers.11.mlp.experts.", searches, ".gate_proj")),
              std::nullopt);
  EXPECT_GT(searches, 1);
  EXPECT_LT(searches, 100);
  EXPECT_EQ(budget.spender(), "rank_pattern");
  EXPECT_EQ(list.first_match("model.layers.0.mlp.down_proj"), std::nullopt);
}

// Dots match any character, so a trie may have a path for every subset of a name's letters.
TEST(PatternList, WaysThroughTheTreeAreCounted) {
  PatternList list;
  text::MatchBudget budget(100'000);
  list.count_in(&budget, "alpha_pattern");
  for (int ways = 0; ways < 1 << 14; ++ways) {
    std::string pattern;
    for (int i = 0; i < 14; ++i) pattern += (ways >> i & 1) != 0 ? '.' : 'a';
    list.add(cat(pattern, "z")).value();
  }
  for (int i = 0; i < 10; ++i) list.first_match(cat("aaaaaaaaaaaaaa", i));
  EXPECT_TRUE(budget.spent());
}

}  // namespace
}  // namespace motley::lora
