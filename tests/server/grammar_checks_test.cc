// The form that a request asks for is checked once, by a worker, before the engine sees any of its
// prompts: engines check in the thread that calls them, which serves connections.

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using testing::HasSubstr;

// An engine that counts what it is given.
class CountingEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;

  Result<engine::RequestId> submit(engine::Request request,
                                   std::shared_ptr<engine::EventSink> sink) override {
    ++submitted;
    const auto& form = request.sampling.grammar;
    if (form && form->checked) ++checked;
    return FakeEngine::submit(std::move(request), std::move(sink));
  }

  std::atomic<int> submitted{0};
  std::atomic<int> checked{0};
};

constexpr int prompts = 50;

std::string many_prompts(std::string_view form) {
  std::string list;
  for (int i = 0; i < prompts; ++i) list += cat(i == 0 ? "" : ",", "\"a", i, "\"");
  return post("/v1/completions", cat("{\"prompt\": [", list, "], \"max_tokens\": 1, ", form, "}"));
}

class GrammarChecks : public testing::Test {
 protected:
  GrammarChecks() : text_(make_model_text(folder_.path(), qwen_tokenizer())) {}

  TemporaryFolder folder_;
  text::ModelText text_;
  CountingEngine engine_{text_.tokenizer()};
  TestServer server_{{.engine = &engine_}};
};

TEST_F(GrammarChecks, AreMadeBeforeTheEngineSeesAnyPrompt) {
  engine_.say("b");
  const Received answer = server_.ask(many_prompts(R"("guided_regex": "[a-z]+")"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(engine_.submitted, prompts);
  EXPECT_EQ(engine_.checked, prompts);
}

TEST_F(GrammarChecks, RefuseTheRequestAndNotEachPrompt) {
  const Received answer = server_.ask(many_prompts(R"("guided_regex": "a{999999999}")"));
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("guided_regex"));
  EXPECT_EQ(engine_.submitted, 0);
}

TEST_F(GrammarChecks, AreMadeForConversations) {
  const auto ask = [&](std::string_view form) {
    return server_.ask(
        post("/v1/chat/completions",
             cat(R"({"messages": [{"role": "user", "content": "hi"}], )", form, "}")));
  };
  engine_.say("b");
  EXPECT_EQ(ask(R"("guided_regex": "[a-z]+")").status, 200);
  EXPECT_EQ(engine_.checked, 1);
  EXPECT_EQ(ask(R"("guided_regex": "a{999999999}")").status, 400);
  EXPECT_EQ(engine_.submitted, 1);
}

}  // namespace
}  // namespace motley::server
