// Characters and regular expressions against what the `tokenizers` package makes of them
// (tools/make_regex_goldens.py).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "base/system/files.h"
#include "base/utf8.h"
#include "text/regex/regex.h"
#include "text/unicode/property.h"
#include "text/unicode/unicode.h"

namespace motley::text {
namespace {

namespace unicode = motley::text::unicode;

constexpr char32_t code_points = 0x110000;

std::vector<json::Object> read_lines(std::string_view name) {
  const std::filesystem::path folder = MOTLEY_REGEX_GOLDENS;
  const std::string text = read_text(folder / name, std::size_t{1} << 24).value();
  std::vector<json::Object> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const json::Value line = json::parse(rest.substr(0, end), name).value();
    lines.push_back(*line.if_object());
    rest.remove_prefix(end + 1);
  }
  return lines;
}

std::string string_of(const json::Object& object, std::string_view key) {
  return *object.find(key)->if_string();
}

// Splits a text at a pattern's matches and at what is between them, as the package does: an empty
// match where the last one ended is none.
std::vector<std::int64_t> cuts(const Regex& regex, std::string_view text) {
  std::vector<std::int64_t> cuts;
  const auto cut = [&](std::size_t at) {
    if (at > 0 && at < text.size() &&
        (cuts.empty() || cuts.back() != static_cast<std::int64_t>(at)))
      cuts.push_back(static_cast<std::int64_t>(at));
  };
  std::optional<std::size_t> last_end;
  for (std::size_t from = 0; from <= text.size();) {
    const auto match = regex.find(text, from);
    EXPECT_TRUE(match.ok()) << match.error().message();
    if (!match.ok() || !match->has_value()) break;
    const Span found = **match;
    if (found.begin == found.end && last_end == found.end) {
      from += from < text.size() ? utf8::decode(text.substr(from)).length : 1;
      continue;
    }
    cut(found.begin);
    cut(found.end);
    from = found.end;
    last_end = from;
  }
  return cuts;
}

void expect_splits_alike(Regex::Engine engine) {
  for (const json::Object& line : read_lines("splits.jsonl")) {
    const std::string pattern = string_of(line, "pattern");
    SCOPED_TRACE(pattern);
    const Result<Regex> regex = Regex::compile(pattern, "pattern", engine);
    EXPECT_TRUE(regex.ok()) << regex.error().message();
    if (!regex.ok()) continue;
    for (const json::Value& row : *line.find("texts")->if_array()) {
      const std::string& text = *row.if_array()->at(0).if_string();
      std::vector<std::int64_t> wanted;
      for (const json::Value& cut : *row.if_array()->at(1).if_array())
        wanted.push_back(*cut.if_integer());
      EXPECT_EQ(cuts(*regex, text), wanted) << json::write(row);
    }
  }
}

TEST(RegexGoldens, SplitsAlike) { expect_splits_alike(Regex::Engine::table_if_possible); }

TEST(RegexGoldens, BacktrackerSplitsAlike) { expect_splits_alike(Regex::Engine::backtracker); }

TEST(UnicodeGoldens, FormsAlike) {
  for (const json::Object& line : read_lines("forms.jsonl")) {
    const std::string text = string_of(line, "text");
    SCOPED_TRACE(json::write(text));
    EXPECT_EQ(unicode::nfc(text), string_of(line, "nfc"));
    EXPECT_EQ(unicode::nfd(text), string_of(line, "nfd"));
    EXPECT_EQ(unicode::nfkc(text), string_of(line, "nfkc"));
    EXPECT_EQ(unicode::nfkd(text), string_of(line, "nfkd"));
    EXPECT_EQ(unicode::lowercase(text), string_of(line, "lowercase"));
    EXPECT_EQ(unicode::without_marks(text), string_of(line, "without_marks"));
  }
}

// FNV-1a over numbers, written with a comma after each.
class Hash {
 public:
  void add(std::uint32_t number) {
    for (const char c : std::to_string(number) + ",")
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  void add(unicode::CodeRange range) {
    add(range.first);
    add(range.last);
  }
  std::string text() const {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[value_ >> shift & 15U];
    return text;
  }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

template <class Function>
void each_character(Function on_character) {
  for (char32_t c = 0; c < code_points; ++c)
    if (!is_surrogate(c)) on_character(c);
}

std::string write(char32_t c) {
  std::string text;
  utf8::append(text, c);
  return text;
}

std::string hash_of_normalizer(std::string (*normalize)(std::string_view)) {
  Hash hash;
  each_character([&](char32_t c) {
    const std::string text = write(c);
    std::string changed = normalize(text);
    if (changed == text) return;
    hash.add(c);
    for (std::string_view rest = changed; !rest.empty();) {
      const utf8::Decoded character = utf8::decode(rest);
      hash.add(character.code_point);
      rest.remove_prefix(character.length);
    }
  });
  return hash.text();
}

// The set that a predicate or an expression makes, without surrogates.
std::string hash_of_set(const unicode::CodeSet& set) {
  const unicode::CodeSet surrogates{{.first = 0xD800, .last = 0xDFFF}};
  const unicode::CodeSet members = set.intersection(surrogates.complement());
  Hash hash;
  for (const unicode::CodeRange range : members.ranges()) hash.add(range);
  return hash.text();
}

std::string hash_of_predicate(bool (*holds)(char32_t)) {
  std::vector<unicode::CodeRange> members;
  each_character([&](char32_t c) {
    if (holds(c)) members.push_back({.first = c, .last = c});
  });
  return hash_of_set(unicode::CodeSet(std::move(members)));
}

// The characters that an expression matches in a text of all of them.
std::string hash_of_expression(std::string_view expression) {
  static const std::string everything = [] {
    std::string text;
    each_character([&](char32_t c) { utf8::append(text, c); });
    return text;
  }();
  const auto regex = Regex::compile(expression, "expression");
  EXPECT_TRUE(regex.ok()) << expression;
  std::vector<unicode::CodeRange> members;
  for (std::size_t from = 0; from < everything.size();) {
    const auto match = regex->find(everything, from);
    if (!match.ok() || !match->has_value()) break;
    const char32_t c =
        utf8::decode(std::string_view(everything).substr((*match)->begin)).code_point;
    members.push_back({.first = c, .last = c});
    from = (*match)->end;
  }
  return hash_of_set(unicode::CodeSet(std::move(members)));
}

TEST(UnicodeGoldens, EveryCharacterAlike) {
  for (const json::Object& line : read_lines("characters.jsonl")) {
    SCOPED_TRACE(json::write(line));
    const std::string hash = string_of(line, "hash");
    if (const json::Value* normalizer = line.find("normalizer")) {
      const std::string& form = *normalizer->if_string();
      EXPECT_EQ(hash, hash_of_normalizer(form == "nfc"         ? unicode::nfc
                                         : form == "nfd"       ? unicode::nfd
                                         : form == "nfkc"      ? unicode::nfkc
                                         : form == "nfkd"      ? unicode::nfkd
                                         : form == "lowercase" ? unicode::lowercase
                                                               : unicode::without_marks));
    } else if (const json::Value* tested = line.find("predicate")) {
      const std::string& predicate = *tested->if_string();
      EXPECT_EQ(hash, hash_of_predicate(predicate == "numeric"          ? unicode::is_numeric
                                        : predicate == "punctuation"    ? unicode::is_punctuation
                                        : predicate == "word"           ? unicode::is_word
                                        : predicate == "combining_mark" ? unicode::is_combining_mark
                                                                        : unicode::is_white_space));
    } else {
      const std::string expression = string_of(line, "expression");
      const bool is_property = expression.starts_with("\\p{");
      const auto set = is_property ? unicode::property(expression.substr(3, expression.size() - 4))
                                   : std::optional<unicode::CodeSet>();
      EXPECT_EQ(hash, set.has_value() ? hash_of_set(*set) : hash_of_expression(expression));
    }
  }
}

TEST(UnicodeGoldens, CategoriesAreTheProperties) {
  constexpr std::string_view names = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
  std::vector<unicode::CodeSet> sets;
  for (std::size_t i = 0; i < names.size(); i += 2)
    sets.push_back(*unicode::property(names.substr(i, 2)));
  each_character([&](char32_t c) {
    const auto category = static_cast<std::size_t>(unicode::category(c));
    ASSERT_TRUE(sets[category].contains(c)) << static_cast<std::uint32_t>(c);
  });
}

}  // namespace
}  // namespace motley::text
