#include "text/regex/regex.h"

#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

// tests/regex compares matches with the `tokenizers` package; here are tests of what the package
// does not show: refusals, limits, and where a search begins.
namespace motley::text {
namespace {

constexpr Regex::Engine engines[] = {Regex::Engine::table_if_possible, Regex::Engine::backtracker};

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string refusal(std::string_view pattern) {
  const auto regex = Regex::compile(pattern, "pre_tokenizer");
  return regex.ok() ? "compiles" : regex.error().message();
}

// "BEGIN-END", "none" or the error.
std::string found(std::string_view pattern, std::string_view text, std::size_t from = 0,
                  Regex::Engine engine = Regex::Engine::table_if_possible) {
  const auto regex = Regex::compile(pattern, "pre_tokenizer", engine);
  if (!regex.ok()) return regex.error().message();
  const auto match = regex->find(text, from);
  if (!match.ok()) return match.error().message();
  if (!match->has_value()) return "none";
  return std::to_string((*match)->begin) + "-" + std::to_string((*match)->end);
}

TEST(Regex, SearchesFromTheByteAndSeesWhatIsBefore) {
  for (const Regex::Engine engine : engines) {
    EXPECT_EQ(found("b+", "abbab", 0, engine), "1-3");
    EXPECT_EQ(found("b+", "abbab", 2, engine), "2-3");
    EXPECT_EQ(found("b+", "abbab", 5, engine), "none");
    EXPECT_EQ(found("", "ab", 2, engine), "2-2");
    EXPECT_EQ(found("(?<=a)b", "ab", 1, engine), "1-2");
    EXPECT_EQ(found("^b", "a\nb", 2, engine), "2-3");
    EXPECT_EQ(found("\\Ab", "bb", 1, engine), "none");
    EXPECT_EQ(found("\\Gb", "ab", 1, engine), "1-2");
    EXPECT_EQ(found("\\G.", "\u4e2d\u6587", 3, engine), "3-6");
  }
}

TEST(Regex, RefusesWhatItLacksByName) {
  struct Case {
    std::string_view pattern;
    std::string_view words;
  };
  constexpr Case cases[] = {
      {"(a)\\1", "back-reference"},
      {"(?<n>a)\\k<n>", "back-reference"},
      {"(?<n>a)\\g<n>", "calls a group"},
      {"(?R)", "recurs"},
      {"(?(1)a|b)", "condition"},
      {"(?~abc)", "absent operator"},
      {"(?{x})", "callout"},
      {"\\X", "text segments"},
      {"a\\Kb", "uses \\K"},
      {"\\p{Klingon}", "'Klingon'"},
      {"\\p{[word]}", "'[word]'"},
      {"\\xe3\\x81\\x82", "a byte of UTF-8"},
      {"\\cA", "control or meta"},
      {"(?y{g}:a)", "an option"},
      {"(?s:.)", "an option"},
      {"(?P<n>a)", "an option"},
      {"(?<=a+)b", "without a bound"},
      {"(?<=a(?=b)c?)d", "more than one length"},
      {"(\\b|a){3}", "counts repeats of a place"},
  };
  for (const Case& one : cases) {
    const std::string message = refusal(one.pattern);
    EXPECT_NE(message.find(one.words), std::string::npos) << one.pattern << ": " << message;
    EXPECT_NE(message.find("pre_tokenizer"), std::string::npos) << message;
  }
}

TEST(Regex, RefusesWhatIsMalformed) {
  struct Case {
    std::string_view pattern;
    std::string_view words;
  };
  constexpr Case cases[] = {
      {"(a", "opens a group"},
      {"a)", "closes a group"},
      {"[a", "without its ]"},
      {"[]", "empty class"},
      {"[^]", "empty class"},
      {"[z-a]", "whose end is before"},
      {"[a-\\d]", "ends in a class"},
      {"[\\d-a]", "begins with a class"},
      {"[[:foo:]]", "[:foo:]"},
      {"*a", "repeats nothing"},
      {"{2}", "repeats nothing"},
      {"a|+", "repeats nothing"},
      {"a\\", "ends in a backslash"},
      {"\\p{L", "without its }"},
      {"\\x{110000}", "no code point"},
      {"\\x{D800}", "no code point"},
      {"\\u12", "no code point"},
      {"(?<n", "name does not end"},
      {"(?#a", "comment without"},
      {"a{100001}", "more than 100000"},
      {"\xff", "not UTF-8"},
  };
  for (const Case& one : cases) {
    const std::string message = refusal(one.pattern);
    EXPECT_NE(message.find(one.words), std::string::npos) << one.pattern << ": " << message;
  }
}

TEST(Regex, HostilePatternsAreRefusedOrSmall) {
  EXPECT_NE(refusal(repeated("(", 100'000)).find("too deeply"), std::string::npos);
  EXPECT_NE(refusal(repeated("[", 100'000)).find("too deeply"), std::string::npos);
  EXPECT_NE(refusal("a" + repeated("?", 100'000)).find("too often"), std::string::npos);
  EXPECT_NE(refusal(repeated("a|", 100'000)).find("too long"), std::string::npos);
  EXPECT_EQ(found(repeated("(?:", 199) + "a" + repeated(")", 199), "ba"), "1-2");
  EXPECT_EQ(found("a{100000}", std::string(100'000, 'a')), "0-100000");
  EXPECT_EQ(found("(?:ab){50000}", repeated("ab", 50'000)), "0-100000");
}

TEST(Regex, TakesTooManyStepsOnlyByAnError) {
  const std::string text(20'000, 'a');
  for (const std::string_view pattern :
       {"(?:a*b?)*c(?<=c)", "(?:a|aa)*(?<=b)", "a*b", "(?:(?:a{0,1000}){0,1000})b",
        "(?:a?){30}a{30}b(?<=b)", "(?:(?:(?:a{1000}){1000}){1000})"}) {
    for (const Regex::Engine engine : engines) {
      EXPECT_NE(found(pattern, text, 0, engine).find("too m"), std::string::npos)
          << pattern << ": " << found(pattern, text, 0, engine);
    }
  }
}

// Each search reads the whole run, and finds one character.
TEST(Regex, SearchesOfATextMayTakeSoManyStepsTogether) {
  for (const Regex::Engine engine :
       {Regex::Engine::table_if_possible, Regex::Engine::backtracker}) {
    const Regex regex = Regex::compile(R"(\s*[\r\n]+|\s)", "test", engine).value();
    const std::string text(100'000, ' ');
    std::size_t spent = 0;
    std::size_t found = 0;
    auto match = regex.find(text, found, spent);
    while (match.ok()) match = regex.find(text, ++found, spent);
    EXPECT_EQ(match.error().code(), ErrorCode::unsupported);
    EXPECT_GT(found, 10U);
    EXPECT_LT(found, 1'000U);
    EXPECT_TRUE(regex.find(text, found).ok());
  }
}

// Here the package's search hits a limit of Oniguruma.
TEST(Regex, LongRunsTakeTimeInProportion) {
  const std::string spaces = repeated(std::string(1000, ' '), 10'000);
  for (const Regex::Engine engine : engines) {
    EXPECT_EQ(found("\\s+(?!\\S)|\\s+", spaces, 0, engine), "0-10000000");
    EXPECT_EQ(found("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces + "x", 0, engine), "0-9999999");
  }
}

TEST(Regex, ThreadsShareOne) {
  const auto regex = Regex::compile("(?<=x)a+b|c(?>d+)", "shared");
  ASSERT_TRUE(regex.ok());
  const std::string text = repeated("xaab cddd ", 500);
  const auto count = [&] {
    int matches = 0;
    for (std::size_t from = 0;;) {
      const auto match = regex->find(text, from);
      if (!match.ok() || !match->has_value()) return matches;
      ++matches;
      from = (*match)->end;
    }
  };
  std::vector<int> counts(4);
  {
    std::vector<std::jthread> threads;
    for (int& own : counts) threads.emplace_back([&] { own = count(); });
  }
  EXPECT_EQ(counts, std::vector<int>(4, 1000));
}

}  // namespace
}  // namespace motley::text
