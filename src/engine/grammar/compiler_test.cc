#include "engine/grammar/compiler.h"

#include <atomic>
#include <future>
#include <latch>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::engine {
namespace {

GrammarSpec regex(std::string text) {
  return {.kind = GrammarSpec::Kind::regex, .text = std::move(text)};
}

// Compiles for a vocabulary of bytes, and counts.
class Compiling {
 public:
  Result<Grammar> operator()(const GrammarSpec& spec) {
    ++compiled;
    if (spec.text == "blocked") {
      began.count_down();
      go_on.wait();
    }
    return Grammar::compile(spec, vocabulary_);
  }

  std::atomic<int> compiled = 0;
  std::latch began{1};
  std::latch go_on{1};

 private:
  static GrammarVocabulary bytes() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return GrammarVocabulary::create(tokens, 256, {0}).value();
  }
  GrammarVocabulary vocabulary_ = bytes();
};

// The code of what submit() leads to; nothing where it is a grammar.
std::future<std::optional<ErrorCode>> submitted(GrammarCompiler& compiler,
                                                const GrammarSpec& spec) {
  auto answer = std::make_shared<std::promise<std::optional<ErrorCode>>>();
  compiler.submit(spec, [answer](const Result<Grammar>& grammar) {
    answer->set_value(grammar.ok() ? std::nullopt : std::optional(grammar.error().code()));
  });
  return answer->get_future();
}

TEST(GrammarCompiler, CompilesEachGrammarOnce) {
  Compiling compiling;
  GrammarCompiler compiler(std::ref(compiling), {});
  auto first = submitted(compiler, regex("blocked"));
  auto second = submitted(compiler, regex("blocked"));
  compiling.go_on.count_down();
  EXPECT_EQ(first.get(), std::nullopt);
  EXPECT_EQ(second.get(), std::nullopt);
  EXPECT_EQ(submitted(compiler, regex("blocked")).get(), std::nullopt);
  EXPECT_EQ(compiling.compiled, 1);
  EXPECT_EQ(submitted(compiler, regex("other")).get(), std::nullopt);
  EXPECT_EQ(compiling.compiled, 2);
}

TEST(GrammarCompiler, RefusesHostileGrammarsBeforeAnyThreadSeesThem) {
  Compiling compiling;
  GrammarCompiler compiler(std::ref(compiling), {});
  EXPECT_EQ(submitted(compiler, regex("a{999999999}")).get(), ErrorCode::invalid_argument);
  EXPECT_EQ(compiling.compiled, 0);
  EXPECT_EQ(submitted(compiler, regex("(a")).get(), ErrorCode::invalid_argument);
  EXPECT_EQ(compiling.compiled, 1);
}

TEST(GrammarCompiler, FailsTheRequestAndKeepsTheThread) {
  Compiling compiling;
  GrammarCompiler compiler(std::ref(compiling),
                           {.threads = 1, .patience = std::chrono::milliseconds(1)});
  auto blocked = submitted(compiler, regex("blocked"));
  EXPECT_EQ(blocked.get(), ErrorCode::too_long);
  // Patience may end before the thread comes to it: it has to be at work for what follows.
  while (!compiling.began.try_wait())
    EXPECT_EQ(submitted(compiler, regex("blocked")).get(), ErrorCode::too_long);
  // Behind it in the queue, patience ends too, and the work is dropped.
  EXPECT_EQ(submitted(compiler, regex("queued")).get(), ErrorCode::too_long);
  compiling.go_on.count_down();
  // The late grammar is kept: sooner or later it is there at once.
  while (submitted(compiler, regex("blocked")).get() != std::nullopt) std::this_thread::yield();
  EXPECT_EQ(compiling.compiled, 1);
}

TEST(GrammarCompiler, BoundsItsQueue) {
  Compiling compiling;
  GrammarCompiler compiler(std::ref(compiling), {.threads = 1, .most_queued = 1});
  auto running = submitted(compiler, regex("blocked"));
  compiling.began.wait();
  auto queued = submitted(compiler, regex("a"));
  EXPECT_EQ(submitted(compiler, regex("b")).get(), ErrorCode::busy);
  auto beside = submitted(compiler, regex("a"));  // the same grammar takes no second place
  compiling.go_on.count_down();
  EXPECT_EQ(running.get(), std::nullopt);
  EXPECT_EQ(queued.get(), std::nullopt);
  EXPECT_EQ(beside.get(), std::nullopt);
}

TEST(GrammarCompiler, AnswersWhoWaitsWhenItStops) {
  Compiling compiling;
  std::future<std::optional<ErrorCode>> queued;
  {
    GrammarCompiler compiler(std::ref(compiling), {.threads = 1});
    compiler.submit(regex("blocked"),
                    [&](const Result<Grammar>&) { compiling.go_on.count_down(); });
    compiling.began.wait();
    queued = submitted(compiler, regex("a"));
  }
  EXPECT_EQ(queued.get(), ErrorCode::unavailable);
}

TEST(GrammarCache, DropsWhatWasNotAskedForTheLongest) {
  Compiling compiling;
  const Grammar grammar = compiling(regex("a")).value();
  GrammarCache cache(2 * (grammar.bytes() + 2));
  cache.put("a", grammar);
  cache.put("b", grammar);
  EXPECT_TRUE(cache.find("a"));
  cache.put("c", grammar);
  EXPECT_TRUE(cache.find("a"));
  EXPECT_FALSE(cache.find("b"));
  EXPECT_TRUE(cache.find("c"));
  EXPECT_EQ(cache.size(), 2U);
  GrammarCache tiny(1);
  tiny.put("a", grammar);
  EXPECT_EQ(tiny.bytes(), 0U);
}

}  // namespace
}  // namespace motley::engine
