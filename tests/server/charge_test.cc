// What a request is charged is at least what it allocates, field by field: its plan and all that is
// kept of its answer, without the engine, whose part of the charge is on top. Writing the answer
// takes a few pieces more, however long it is.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/test_server.h"
#include "support/allocations.h"

namespace motley::server {
namespace {

using motley::test::live_bytes;
using motley::test::peak_bytes;
using motley::test::watch_peak;

// A field that can be small or large, in a request that is the same otherwise.
struct Field {
  std::string name;
  bool chat = false;
  bool numbers = false;  // of the route of tokens
  std::string fixed = R"("max_tokens": 1)";
  std::function<std::string(int amount)> body;  // members of the request's object
  int small = 1;
  int large = 0;
  // At most this many times what the field allocates here is charged for it. The engine's part and
  // upper bounds of texts are in it.
  double max_factor = 8;
  bool routed = false;  // the server keeps experts
};

std::ostream& operator<<(std::ostream& out, const Field& field) { return out << field.name; }

std::string repeated(std::string_view piece, int count, std::string_view between = ",") {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += between;
    text += piece;
  }
  return text;
}

// Ids of the vocabulary, which are all different up to 1,400.
std::string ids(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += cat(i == 0 ? "" : ",", 100 + i % 1400);
  return text;
}

struct Cost {
  std::int64_t charged = 0;
  std::int64_t allocated = 0;  // until the answer is written
  std::int64_t written = 0;    // and while it is
};

class Charges : public testing::TestWithParam<Field> {
 protected:
  Cost cost_of(const Field& field, int amount) const {
    const std::string text =
        cat(R"({"model": "base", )", field.fixed, ", ", field.body(amount), "}");
    const json::Value body = json::parse(text, "body").value();
    const std::int64_t before = live_bytes();
    const GenerationPlanner& planner = field.routed ? routing_planner_ : planner_;
    auto planned = field.chat      ? planner.chat(body)
                   : field.numbers ? planner.tokens(body)
                                   : planner.completion(body);
    if (!planned.ok()) {
      ADD_FAILURE() << planned.error().message();
      return {};
    }
    GenerationPlan plan = *std::move(planned);
    watch_peak();
    auto transcript =
        serving::Transcript::make(std::move(plan.rules), plan.requests.size(), plan.choices)
            .value();
    answer(plan, transcript);
    Cost cost{.charged = static_cast<std::int64_t>(plan.charge.memory_bytes),
              .allocated = peak_bytes() - before};
    while (!plan.reply->next_piece(transcript).empty()) {
    }
    cost.written = peak_bytes() - before;
    return cost;
  }

  // Every choice says as many tokens as it may, with what the request asks for.
  static void answer(GenerationPlan& plan, serving::Transcript& transcript) {
    for (std::size_t prompt = 0; prompt < plan.requests.size(); ++prompt) {
      const engine::Request& request = plan.requests[prompt];
      const auto tokens = static_cast<std::int64_t>(request.tokens.size());
      const engine::SamplingParams& sampling = request.sampling;
      const std::size_t width = sampling.alternatives();
      const std::vector<engine::TopLogprob> top(width, {.token = 100, .logprob = -1});
      const bool named = sampling.ranks && !sampling.logprob_tokens.empty();
      const std::vector<std::int32_t> top_ranks(named ? width : 0, 1);
      transcript.take({.request = prompt, .event = engine::StartEvent{.prompt_tokens = tokens}});
      if (request.prompt_logprobs && tokens > 1) transcript.take(scores(prompt, request));
      const auto route = [&](std::optional<int> choice, std::int64_t count) {
        if (!request.routed_experts_from) return;
        const auto bytes = static_cast<std::size_t>(count) * routed_sizes.bytes_of_token();
        transcript.take({.request = prompt,
                         .event = engine::RoutedExpertsEvent{
                             .choice = choice, .ids = std::vector<std::uint8_t>(bytes)}});
      };
      for (std::int64_t i = 0; i < tokens; i += 500)
        route({}, std::min<std::int64_t>(500, tokens - i));
      for (int choice = 0; choice < request.choices; ++choice) {
        for (std::int64_t i = 0; i < request.max_tokens; ++i) {
          if (i > 0) route(choice, 1);
          keep(plan, transcript,
               {prompt, engine::TokenEvent{.choice = choice,
                                           .id = 100 + static_cast<std::int32_t>(i % 50),
                                           .logprob = -1,
                                           .rank = sampling.ranks ? 1 : 0,
                                           .top = top,
                                           .top_ranks = top_ranks}});
        }
        keep(plan, transcript,
             {.request = prompt,
              .event =
                  engine::ChoiceEvent{.choice = choice, .reason = engine::FinishReason::length}});
      }
      transcript.take({.request = prompt, .event = engine::Usage{.prompt_tokens = tokens}});
    }
  }

  static engine::EventQueue::Entry scores(std::size_t prompt, const engine::Request& request) {
    engine::PromptEvent scores{.first = 1};
    const auto width = static_cast<std::size_t>(request.prompt_top);
    for (std::size_t i = 1; i < request.tokens.size(); ++i) {
      scores.logprobs.push_back(-1);
      scores.ranks.push_back(1);
      scores.top.insert(scores.top.end(), width, {.token = request.tokens[i], .logprob = -1});
    }
    scores.named.assign(request.prompt_named.ids.size(), -1);
    return {.request = prompt, .event = std::move(scores)};
  }

  static void keep(GenerationPlan& plan, serving::Transcript& transcript,
                   engine::EventQueue::Entry arrived) {
    if (const auto update = transcript.take(std::move(arrived))) plan.reply->keep(*update);
  }

  TemporaryFolder folder_;
  text::ModelText text_ = make_model_text(folder_.path(), qwen_tokenizer());
  GenerationPlanner planner_{text_,
                             {.base = "base",
                              .vocabulary = text_.tokenizer().size(),
                              .prompts = {.max_sequence_tokens = 8192}}};
  // Its answers have the experts of their tokens.
  static constexpr engine::RoutedExpertsSizes routed_sizes{
      .layers = 20, .top_k = 8, .experts = 300};
  GenerationPlanner routing_planner_{text_,
                                     {.base = "base",
                                      .vocabulary = text_.tokenizer().size(),
                                      .prompts = {.max_sequence_tokens = 8192},
                                      .routed_experts = routed_sizes}};
};

TEST_P(Charges, CoverWhatAFieldAllocates) {
  const Field& field = GetParam();
  cost_of(field, field.small);  // fills what is made at first use
  const Cost small = cost_of(field, field.small);
  const Cost large = cost_of(field, field.large);
  EXPECT_LE(small.allocated, small.charged);
  EXPECT_LE(large.allocated, large.charged);
  EXPECT_LE(large.written, large.charged + 4 * static_cast<std::int64_t>(Reply::piece_bytes));
  const std::int64_t allocated = large.allocated - small.allocated;
  const std::int64_t charged = large.charged - small.charged;
  RecordProperty("allocated", std::to_string(allocated));
  RecordProperty("charged", std::to_string(charged));
  EXPECT_LE(allocated, charged) << "more of the field takes more than it is charged";
  EXPECT_LE(static_cast<double>(charged), field.max_factor * static_cast<double>(allocated))
      << "more of the field is charged far more than the " << allocated << " bytes that it takes";
}

constexpr std::string_view greeting = R"("messages": [{"role": "user", "content": "hello"}])";

std::vector<Field> fields() {
  const std::string prompt = R"("prompt": [1, 2, 3])";
  return {
      {.name = "Prompts",
       .body = [](int n) { return cat("\"prompt\": [", repeated("[1, 2]", n), "]"); },
       .large = 400},
      {.name = "PromptTokens",
       .body = [](int n) { return cat("\"prompt\": [", ids(n), "]"); },
       .large = 8000},
      {.name = "EchoedText",
       .fixed = R"("n": 4, "max_tokens": 1)",
       .body =
           [](int n) {
             return cat("\"echo\": true, \"prompt\": \"", repeated("word", n, " "), "\"");
           },
       .large = 2000},
      {.name = "Choices", .body = [=](int n) { return cat(prompt, ", \"n\": ", n); }, .large = 128},
      {.name = "Tokens",
       .fixed = R"("n": 8)",
       .body = [=](int n) { return cat(prompt, ", \"max_tokens\": ", n); },
       .large = 4000},
      {.name = "Logprobs",
       .fixed = R"("n": 8)",
       .body = [=](int n) { return cat(prompt, ", \"logprobs\": 20, \"max_tokens\": ", n); },
       .large = 1000},
      {.name = "ChatLogprobs",
       .chat = true,
       .fixed = R"("n": 8)",
       .body =
           [](int n) {
             return cat(greeting,
                        ", \"logprobs\": true, \"top_logprobs\": 20, \"max_tokens\": ", n);
           },
       .large = 1000},
      {.name = "EchoedScores",
       .fixed = R"("max_tokens": 0)",
       .body =
           [](int n) {
             return cat("\"echo\": true, \"logprobs\": 20, \"prompt\": [", ids(n), "]");
           },
       .small = 2,
       .large = 8000},
      {.name = "PromptLogprobs",
       .body = [](int n) { return cat("\"prompt_logprobs\": 20, \"prompt\": [", ids(n), "]"); },
       .small = 2,
       .large = 8000},
      {.name = "NamedTokens",
       .body =
           [](int n) {
             return cat("\"prompt_logprob_token_ids\": [",
                        repeated("[1, 2, 3, 4, 5, 6, 7, 8]", n - 1), "], \"prompt\": [", ids(n),
                        "]");
           },
       .small = 2,
       .large = 8000},
      {.name = "Numbers",
       .numbers = true,
       .fixed = R"("return_token_ids": true)",
       .body =
           [](int n) {
             return cat("\"token_ids\": [1, 2], \"sampling_params\": ",
                        R"({"n": 8, "logprobs": 20, "max_tokens": )", n, "}");
           },
       .large = 1000},
      {.name = "NumbersOfNamedTokens",
       .numbers = true,
       .body =
           [](int n) {
             return cat("\"token_ids\": [1, 2], \"sampling_params\": ",
                        R"({"n": 8, "logprob_token_ids": [)", ids(20), R"(], "max_tokens": )", n,
                        "}");
           },
       .large = 1000},
      {.name = "PromptOfNumbers",
       .numbers = true,
       .fixed = R"("return_token_ids": true)",
       .body =
           [](int n) {
             return cat(R"("sampling_params": {"max_tokens": 1, "prompt_logprobs": 5}, )",
                        "\"token_ids\": [", ids(n), "]");
           },
       .small = 2,
       .large = 8000},
      {.name = "RoutedExperts",
       .fixed = R"("n": 4)",
       .body = [=](int n) { return cat(prompt, ", \"max_tokens\": ", n); },
       .large = 4000,
       .routed = true},
      {.name = "RoutedExpertsOfPrompts",
       .body = [](int n) { return cat("\"prompt\": [", ids(n), "]"); },
       .large = 8000,
       .routed = true},
      {.name = "TokenIds",
       .fixed = R"("n": 8)",
       .body =
           [=](int n) { return cat(prompt, ", \"return_token_ids\": true, \"max_tokens\": ", n); },
       .large = 4000},
      {.name = "Stops",
       .fixed = R"("n": 16, "max_tokens": 1)",
       .body =
           [=](int n) {
             return cat(prompt, ", \"stop\": [\"", repeated("x", n, ""), "\", \"",
                        repeated("y", n, ""), "\"]");
           },
       .large = 1000},
      {.name = "StopTokens",
       .body = [=](int n) { return cat(prompt, ", \"stop_token_ids\": [", ids(n), "]"); },
       .large = 1400},
      {.name = "AllowedTokens",
       .body = [=](int n) { return cat(prompt, ", \"allowed_token_ids\": [", ids(n), "]"); },
       .large = 1400},
      {.name = "Grammar",
       .body =
           [](int n) {
             return cat(R"("prompt": [[1], [2], [3], [4]], "guided_regex": ")",
                        repeated("a", n, ""), "\"");
           },
       .large = 60000},
      {.name = "Tools",
       .chat = true,
       .fixed = R"("n": 8, "max_tokens": 1)",
       .body =
           [](int n) {
             return cat(greeting, R"(, "tools": [{"type": "function", "function": {"name": "f", )",
                        R"("description": ")", repeated("word", n, " "), "\"}}]");
           },
       .large = 2000},
  };
}

INSTANTIATE_TEST_SUITE_P(All, Charges, testing::ValuesIn(fields()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace motley::server
