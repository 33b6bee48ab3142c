// Tokenizers in the shapes of today's models against what the `tokenizers` package made of the same
// files and texts (tests/text/goldens, made by tools/make_tokenizer_goldens.py).

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace motley::text {
namespace {

using Ids = std::vector<std::int32_t>;

const std::filesystem::path goldens = MOTLEY_TEXT_GOLDENS;

constexpr EncodeOptions bare{.add_special_tokens = false};

std::vector<json::Value> read_lines(const std::filesystem::path& path) {
  const std::string text = read_text(path, std::size_t{64} << 20).value();
  std::vector<json::Value> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(
        json::parse(std::string_view(text).substr(at, end - at), path.string()).value());
    at = end + 1;
  }
  return lines;
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> read;
    for (const json::Value& line : read_lines(goldens / "texts.jsonl")) {
      if (const std::string* text = line.if_string()) {
        read.push_back(*text);
        continue;
      }
      std::string& text = read.emplace_back();
      for (const json::Value& byte : *line.if_array())
        text += static_cast<char>(*byte.if_integer());
    }
    return read;
  }();
  return all;
}

Ids ids_of(const json::Value& list) {
  Ids ids;
  for (const json::Value& id : *list.if_array())
    ids.push_back(static_cast<std::int32_t>(*id.if_integer()));
  return ids;
}

// The tokens with their texts, for messages.
std::string spell(const Tokenizer& tokenizer, const Ids& ids) {
  std::vector<std::string> words;
  words.reserve(ids.size());
  for (const std::int32_t id : ids)
    words.push_back(cat(id, ":", printable(tokenizer.token_of(id).value_or("?"))));
  return join(words, " ");
}

class TokenizerGoldens : public testing::TestWithParam<std::string_view> {
 protected:
  std::filesystem::path folder() const { return goldens / GetParam(); }

  const Tokenizer tokenizer_ = Tokenizer::load(folder()).value();
};

TEST_P(TokenizerGoldens, EncodesAndDecodesTextsLikeThePackage) {
  for (const json::Value& line : read_lines(folder() / "encoded.jsonl")) {
    const json::Object& expected = *line.if_object();
    const auto number = static_cast<std::size_t>(*expected.find("text")->if_integer());
    const std::string& text = texts()[number];
    SCOPED_TRACE(cat("text ", number, ": ", printable(text.substr(0, 300))));
    const Ids wanted = ids_of(*expected.find("ids"));
    const Ids found = tokenizer_.encode(text, bare).value();
    ASSERT_EQ(found, wanted) << spell(tokenizer_, found) << "\ninstead of\n"
                             << spell(tokenizer_, wanted);
    Ids whole = ids_of(*expected.find("before"));
    whole.insert(whole.end(), wanted.begin(), wanted.end());
    EXPECT_EQ(tokenizer_.encode(text).value(), whole);
    const std::string read = utf8::repaired(text);
    for (const bool skip : {false, true}) {
      const json::Value* decoded = expected.find(skip ? "skipped" : "decoded");
      EXPECT_EQ(tokenizer_.decode(whole, skip), decoded == nullptr ? read : *decoded->if_string());
    }
  }
}

TEST_P(TokenizerGoldens, DecodesAnyIdsLikeThePackage) {
  for (const json::Value& line : read_lines(folder() / "decoded.jsonl")) {
    const json::Object& expected = *line.if_object();
    const Ids ids = ids_of(*expected.find("ids"));
    SCOPED_TRACE(spell(tokenizer_, ids));
    EXPECT_EQ(tokenizer_.decode(ids, false), *expected.find("decoded")->if_string());
    EXPECT_EQ(tokenizer_.decode(ids, true), *expected.find("skipped")->if_string());
  }
}

TEST_P(TokenizerGoldens, StreamsWhatItDecodes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    Ids ids(random() % 20);
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % static_cast<unsigned>(tokenizer_.size() + 2)) - 1;
    const bool skip = round % 2 == 0;
    StreamDecoder stream(tokenizer_, skip);
    std::string streamed;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string piece = stream.push(ids[i]);
      ASSERT_TRUE(utf8::valid(piece));
      streamed += piece;
      // What was passed on is the beginning of whatever comes of it.
      const Ids begun(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      ASSERT_TRUE(tokenizer_.decode(begun, skip).starts_with(streamed)) << spell(tokenizer_, begun);
    }
    streamed += stream.finish();
    ASSERT_EQ(streamed, tokenizer_.decode(ids, skip)) << spell(tokenizer_, ids);
  }
}

TEST_P(TokenizerGoldens, PassesWholeCharactersOnAtOnce) {
  const std::string text = "Plain words 1 by 1, nothing held back";
  StreamDecoder stream(tokenizer_, false);
  std::string streamed;
  for (const std::int32_t id : tokenizer_.encode(text, bare).value()) streamed += stream.push(id);
  EXPECT_EQ(streamed + stream.finish(), streamed);
}

TEST_P(TokenizerGoldens, GivesTheSameFromManyThreads) {
  std::vector<Ids> expected;
  for (const std::string& text : texts()) expected.push_back(tokenizer_.encode(text).value());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
    threads.emplace_back([&, rank] {
      for (std::size_t i = 0; i < texts().size(); ++i) {
        const std::size_t at = (i + rank * 17) % texts().size();
        if (tokenizer_.encode(texts()[at]).value() != expected[at]) ++wrong[rank];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

// Texts with marks: parts that a template wrote, and untrusted parts.
class Forgery {
 public:
  Forgery(const Tokenizer& tokenizer, unsigned seed) : random_(seed) {
    for (std::int32_t id = 0; id < tokenizer.size(); ++id)
      if (tokenizer.is_special(id)) special_.emplace_back(*tokenizer.token_of(id));
  }

  const std::string& special() { return special_[random_() % special_.size()]; }

  // Whole special tokens, pieces of them, and what normalizers and models make more of.
  std::string untrusted() {
    static const std::vector<std::string> others = {
        " ", "  ",     "\n",     "a", "<",    ">", "|",    "\u2581", "<", ">",
        "Ω", "\u0338", "\u0301", "é", "\xFF", "1", "word", "\u200B", "K"};
    std::string text;
    for (auto parts = random_() % 5; parts > 0; --parts) {
      const std::string& token = special();
      switch (random_() % 4) {
        case 0:
          text += token;
          break;
        case 1:
          text += token.substr(0, random_() % (token.size() + 1));
          break;
        case 2:
          text += token.substr(random_() % (token.size() + 1));
          break;
        default:
          text += others[random_() % others.size()];
      }
    }
    return text;
  }

 private:
  std::mt19937 random_;
  std::vector<std::string> special_;
};

std::ptrdiff_t count_special(const Tokenizer& tokenizer, const Ids& ids) {
  return std::ranges::count_if(ids, [&](std::int32_t id) { return tokenizer.is_special(id); });
}

TEST_P(TokenizerGoldens, UntrustedTextNeverGivesSpecialTokens) {
  Forgery forgery(tokenizer_, 2);
  for (int round = 0; round < 3000; ++round) {
    MarkedText text;
    text.append(forgery.untrusted(), true);
    const Ids ids = tokenizer_.encode(text, bare).value();
    ASSERT_EQ(count_special(tokenizer_, ids), 0) << printable(text.text) << "\n"
                                                 << spell(tokenizer_, ids);
  }
}

TEST_P(TokenizerGoldens, TemplatesKeepTheirSpecialTokensAndOnlyThose) {
  Forgery forgery(tokenizer_, 3);
  for (int round = 0; round < 3000; ++round) {
    MarkedText text;
    std::ptrdiff_t written = 0;
    for (int part = 0; part < 3; ++part) {
      text.append(forgery.special(), false);
      ++written;
      text.append(forgery.untrusted(), true);
    }
    const Ids ids = tokenizer_.encode(text, bare).value();
    // A template's token that must be a single word is none if untrusted text stands beside it.
    const bool exact = !GetParam().starts_with("mixed");
    const std::ptrdiff_t found = count_special(tokenizer_, ids);
    ASSERT_TRUE(exact ? found == written : found <= written) << printable(text.text) << "\n"
                                                             << spell(tokenizer_, ids);
  }
}

TEST_P(TokenizerGoldens, MarksChangeNothingWhereNoUntrustedSpecialTokenIs) {
  for (const std::string& text : texts()) {
    const Ids plain = tokenizer_.encode(text, bare).value();
    if (count_special(tokenizer_, plain) > 0) continue;
    MarkedText marked;
    marked.append(text, true);
    const Ids found = tokenizer_.encode(marked, bare).value();
    ASSERT_EQ(found, plain) << printable(text.substr(0, 300)) << "\n" << spell(tokenizer_, found);
  }
}

TEST_P(TokenizerGoldens, IgnoresMarksWhereHuggingFaceIsFollowed) {
  for (const std::string& text : texts()) {
    MarkedText marked;
    marked.append(text, true);
    EXPECT_EQ(tokenizer_.encode(marked, {.add_special_tokens = false, .special_in_untrusted = true})
                  .value(),
              tokenizer_.encode(text, bare).value());
  }
}

TEST_P(TokenizerGoldens, BytesOfTokensAreThoseOfTheText) {
  if (GetParam().starts_with("mixed")) return;  // pipelines that lose what they read
  for (const std::string& text : texts()) {
    const Ids ids = tokenizer_.encode(text, bare).value();
    std::string bytes;
    for (const std::int32_t id : ids) bytes += tokenizer_.bytes_of(id);
    // Some decoders take the space away that their tokenizers have put in front.
    const std::string decoded = tokenizer_.decode(ids, false);
    ASSERT_TRUE(bytes == decoded || bytes == cat(" ", decoded)) << printable(text.substr(0, 300));
  }
  EXPECT_EQ(tokenizer_.bytes_of(-1), "");
  EXPECT_EQ(tokenizer_.bytes_of(tokenizer_.size()), "");
}

TEST_P(TokenizerGoldens, EncodesWordsAndWhiteSpaceOfAMegabyte) {
  for (const std::string_view unit : {"a", " ", "\n", "\u4e2d", "ab1 "}) {
    std::string text;
    while (text.size() < (std::size_t{1} << 20)) text += unit;
    const Ids ids = tokenizer_.encode(text, bare).value();
    // Mixed pipelines leave white space out, and some decoders a space in front.
    if (!GetParam().starts_with("mixed") && unit != " ") {
      EXPECT_EQ(tokenizer_.decode(ids, false), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGoldens,
                         testing::Values("qwen2", "qwen35", "llama3", "o200k", "deepseek", "neox",
                                         "llama2_legacy", "llama2_metaspace", "mixed_characters",
                                         "mixed_bytes", "mixed_words"),
                         [](const auto& pipeline) { return std::string(pipeline.param); });

}  // namespace
}  // namespace motley::text
