#include "serving/prompts/planner.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"

namespace motley::serving {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

text::ModelText qwen() {
  const TemporaryFolder folder;
  std::filesystem::copy_file(MOTLEY_TOKENIZERS "/qwen2/tokenizer.json", folder / "tokenizer.json");
  folder.file("chat_template.jinja",
              read_text(std::filesystem::path(MOTLEY_TEMPLATES) / "qwen3", 1 << 20).value());
  return text::ModelText::load(folder.path()).value();
}

ChatRequest conversation(std::string_view its_tools = {}) {
  ChatRequest request;
  request.inputs.messages =
      json::parse(R"([{"role": "user", "content": "How far is the sea from here?"}])", "test")
          .value();
  if (!its_tools.empty()) request.inputs.tools = json::parse(its_tools, "test").value();
  if (!its_tools.empty()) request.tool_use = ToolUse::free;
  return request;
}

constexpr std::string_view far_tool = R"([{"type": "function", "function": {"name": "far",
  "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}}}])";

class PlannerTest : public testing::Test {
 protected:
  Result<ChatPlan> plan(ChatRequest request, GenerationSettings settings = {}) {
    notices = {};
    return planner.chat(request, settings, planner.bounds(nullptr), notices);
  }
  std::string prompt_of(const ChatPlan& plan) const {
    return text.tokenizer().decode(plan.request.tokens, false);
  }

  const text::ModelText text = qwen();
  const Planner planner{text, {.max_sequence_tokens = 400, .keeps_states = true}};
  Notices notices;
};

TEST_F(PlannerTest, AConversationIsRenderedAndHasRoomForItsAnswer) {
  const ChatPlan one = plan(conversation()).value();
  EXPECT_THAT(prompt_of(one), HasSubstr("How far is the sea from here?"));
  EXPECT_THAT(prompt_of(one), EndsWith("<|im_start|>assistant\n"));
  EXPECT_EQ(one.request.max_tokens, 400 - std::ssize(one.request.tokens));
  EXPECT_EQ(plan(conversation(), {.max_tokens = 5})->request.max_tokens, 5);
}

// Where the next turn's prompt begins with the same tokens.
TEST_F(PlannerTest, TheConversationEndsBeforeTheGenerationPrompt) {
  const ChatPlan one = plan(conversation()).value();
  const auto begin = std::span(one.request.tokens).first(one.request.conversation_tokens);
  EXPECT_THAT(text.tokenizer().decode(begin, false), EndsWith("<|im_end|>\n"));
  // What was cut off is no part of the next turn.
  const ChatPlan cut = plan(conversation(), {.truncate = 6}).value();
  EXPECT_EQ(cut.request.tokens.size(), 6U);
  EXPECT_EQ(cut.request.conversation_tokens, 0);
}

TEST_F(PlannerTest, EachChoiceHasAParserOfItsOwn) {
  const ChatPlan three = plan(conversation(), {.choices = 3}).value();
  ASSERT_EQ(three.parsers.size(), 3U);
  EXPECT_EQ(three.request.choices, 3);
  EXPECT_EQ(three.parsers[0]->push("<think>\nhm\n</think>\n\nfar").content, "far");
  EXPECT_EQ(three.parsers[1]->push("near").content, "near");
}

TEST_F(PlannerTest, CallsAreReadWhereThereAreTools) {
  constexpr std::string_view call =
      "<tool_call>\n{\"name\": \"far\", \"arguments\": {\"to\": \"sea\"}}\n</tool_call>";
  const ChatPlan with = plan(conversation(far_tool)).value();
  ParsedOutput read = with.parsers[0]->push(call);
  read.append(with.parsers[0]->finish());
  ASSERT_EQ(read.calls.size(), 1U);
  EXPECT_EQ(read.calls[0].name, "far");
  ChatRequest single = conversation(far_tool);
  single.parallel_calls = false;
  EXPECT_EQ(plan(std::move(single))->rules.stop, std::vector<std::string>{"</tool_call>"});
}

TEST_F(PlannerTest, ACallThatMustBeMadeBeginsInThePrompt) {
  ChatRequest request = conversation(far_tool);
  request.tool_use = ToolUse::one_named;
  request.tool_name = "far";
  const ChatPlan forced = plan(std::move(request)).value();
  EXPECT_THAT(prompt_of(forced), HasSubstr("<tool_call>\n{\"name\": \"far\", \"arguments\": "));
  ASSERT_TRUE(forced.request.sampling.grammar.has_value());
  EXPECT_TRUE(forced.request.sampling.grammar->checked);
}

TEST_F(PlannerTest, ACallThatMustBeMadeNeedNotHaveTheFormOfTheContent) {
  ChatRequest request = conversation(far_tool);
  request.tool_use = ToolUse::one_named;
  request.tool_name = "far";
  GenerationSettings settings{.grammar_field = "guided_regex"};
  settings.sampling.grammar = {.kind = grammar::Spec::Kind::regex, .text = "a+"};
  EXPECT_EQ(plan(request, settings)->request.sampling.grammar,
            plan(request)->request.sampling.grammar);
}

TEST_F(PlannerTest, AFormOfTheContentIsCheckedAndNamedByItsField) {
  GenerationSettings settings{.grammar_field = "guided_regex"};
  settings.sampling.grammar = {.kind = grammar::Spec::Kind::regex,
                               .text = std::string(300 << 10, 'a')};
  const auto refused = plan(conversation(), settings);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().where(), StartsWith("guided_regex"));
  settings.sampling.grammar->text = "a+";
  const ChatPlan constrained = plan(conversation(), settings).value();
  EXPECT_EQ(constrained.parsers[0]->push("<think>aa").content, "<think>aa");
}

TEST_F(PlannerTest, APromptThatLeavesNoRoomIsRefused) {
  ChatRequest long_one = conversation();
  std::string words;
  for (int i = 0; i < 300; ++i) words += cat(" ", i);
  long_one.inputs.messages =
      json::parse(cat(R"([{"role": "user", "content": ")", words, "\"}]"), "test").value();
  const auto refused = plan(std::move(long_one));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::too_long);
  EXPECT_EQ(refused.error().where(), "messages");
}

// Of the numbers that a model's configuration may hold.
TEST(DefaultSampling, TakesAllThatTheModelSays) {
  const text::GenerationConfig model{
      .temperature = 1e9, .top_k = 5000, .top_p = 0, .min_p = 0.25, .repetition_penalty = 1.5};
  const engine::SamplingParams params = default_sampling(model, 100);
  EXPECT_EQ(params.temperature, static_cast<float>(max_temperature));
  EXPECT_EQ(params.top_p, least_top_p);
  EXPECT_EQ(params.top_k, 100);
  EXPECT_EQ(params.min_p, 0.25F);
  EXPECT_EQ(params.repetition_penalty, 1.5F);
  const engine::SamplingParams plain = default_sampling({}, 100);
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.top_k, 0);
}

}  // namespace
}  // namespace motley::serving
