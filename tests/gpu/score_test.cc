// Whole models on a GPU: the goldens, and the laws that hold for any batch.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "ops/logits.h"
#include "score/golden_model.h"

namespace motley::score_tests {
namespace {

GoldenModel::Options on_gpu(bool exact = true, bool graphs = true) {
  return {.exact = exact, .device = {.kind = tensor::DeviceChoice::Kind::cuda}, .graphs = graphs};
}

struct Distance {
  double largest = 0;
  double sum = 0;
  std::int64_t count = 0;

  void add(const std::vector<runner::ScoreLine>& lines,
           const std::vector<runner::ScoreResult>& results) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (std::size_t t = 1; t < lines[i].tokens.size(); ++t) {
        const double apart =
            std::abs(double{results[i].token_logprobs[t]} - (*lines[i].reference)[t]);
        // NaN is far from everything.
        largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
        sum += apart;
        ++count;
      }
    }
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

class GpuScore : public testing::TestWithParam<std::string> {};

// Sums in another order than the reference's: what the goldens allow the CPU is not less.
TEST_P(GpuScore, EqualsTheReferenceInFloat32) {
  GoldenModel golden(GetParam(), on_gpu());
  constexpr double tolerance = 1e-3;
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<runner::ScoreLine> lines = golden.lines_of(each);
    const std::vector<lora::Mix> mixes(lines.size(), golden.mix_of(each));
    Distance distance;
    distance.add(lines, golden.score(lines, mixes));
    EXPECT_LE(distance.largest, tolerance)
        << GetParam() << ", case " << *at(each, "name").if_string();
  }
}

// One line of a file after the other, or all cases' lines as one mixed batch.
TEST_P(GpuScore, AllCasesAsOneMixedBatchEqualTheReference) {
  GoldenModel golden(GetParam(), on_gpu());
  std::vector<runner::ScoreLine> lines;
  std::vector<lora::Mix> mixes;
  for (const json::Value& each : cases_of(golden.golden())) {
    const lora::Mix mix = golden.mix_of(each);
    for (const runner::ScoreLine& line : golden.lines_of(each)) {
      lines.push_back(line);
      mixes.push_back(mix);
    }
  }
  Distance distance;
  distance.add(lines, golden.score(lines, mixes));
  EXPECT_LE(distance.largest, 1e-3) << GetParam();
}

// Mean difference of a token's log-probability that bf16 may make, as for the CPU.
TEST_P(GpuScore, StaysCloseInBf16WhereRoutersAreDecided) {
  GoldenModel golden(GetParam(), on_gpu(false));
  std::map<std::string, std::vector<runner::ScoreLine>> by_adapter;
  for (runner::ScoreLine& line : golden.read_lines("decided.jsonl"))
    by_adapter[json::write(line.adapter_field)].push_back(std::move(line));
  for (const auto& [name, lines] : by_adapter) {
    std::vector<lora::Mix> mixes;
    for (const runner::ScoreLine& line : lines) mixes.push_back(golden.mix(line.adapters));
    Distance distance;
    distance.add(lines, golden.score(lines, mixes));
    // Tied heads make sharp logits: as in golden_score_test.cc.
    const bool is_tied = GetParam() == "qwen3" || GetParam() == "qwen3_5";
    EXPECT_LE(distance.mean(), is_tied ? 2.5e-2 : 2e-2) << GetParam() << " " << name;
  }
}

// A case that is decoded token by token.
struct Decoding {
  std::string name;
  std::int32_t slot = 0;  // of its state
  lora::Mix mix;
  std::vector<std::int32_t> pages;
  std::int64_t length = 0;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> next;
  std::vector<std::int32_t> said;
};

std::vector<std::int32_t> numbers_of(const json::Value& list) {
  std::vector<std::int32_t> numbers;
  for (const json::Value& number : *list.if_array())
    numbers.push_back(static_cast<std::int32_t>(*number.if_integer()));
  return numbers;
}

std::size_t longest_answer(GoldenModel& golden) {
  std::size_t longest = 0;
  for (const json::Value& each : cases_of(golden.golden()))
    longest = std::max(longest, numbers_of(at(at(each, "greedy"), "token_ids")).size());
  return longest;
}

// With pages for all steps that follow.
std::vector<Decoding> decodings(GoldenModel& golden) {
  constexpr std::size_t least_steps = 16;
  const std::size_t steps = std::max(longest_answer(golden), least_steps);
  std::vector<Decoding> all;
  runner::ConsecutivePages pages(golden.runner().kv());
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<std::int32_t> prompt = numbers_of(at(at(each, "greedy"), "prompt"));
    all.push_back({.name = *at(each, "name").if_string(),
                   .slot = static_cast<std::int32_t>(all.size()),
                   .mix = golden.mix_of(each),
                   .pages = pages.take(static_cast<std::int64_t>(prompt.size() + steps)),
                   .prompt = prompt,
                   .next = prompt});
  }
  return all;
}

// One step of some of them; each one's likeliest token is its next, and what its logits are.
std::vector<std::vector<float>> step(GoldenModel& golden, std::span<Decoding> all) {
  runner::Runner& runner = golden.runner();
  std::vector<runner::Chunk> chunks;
  for (const Decoding& each : all)
    chunks.push_back({.pages = each.pages,
                      .length = each.length,
                      .tokens = each.next,
                      .mix = each.mix,
                      .state = runner::SequenceState::certain_rows(each.slot, each.length,
                                                                   std::ssize(each.next))});
  std::vector<std::vector<float>> logits;
  auto sink = [&](const tensor::Tensor& rows,
                  std::span<const runner::LogitRow> which) -> Result<void> {
    const auto width = static_cast<std::size_t>(rows.dim(1));
    for (std::size_t i = 0; i < which.size(); ++i) {
      std::vector<float>& row = logits.emplace_back(width);
      MOTLEY_TRY_VOID(runner.stream().copy(
          row.data(), rows.select(static_cast<std::int64_t>(i)).bytes(), width * sizeof(float)));
    }
    return runner.stream().synchronize();
  };
  runner.step(chunks, sink).value();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].length += static_cast<std::int64_t>(all[i].next.size());
    const auto best = std::ranges::max_element(logits[i]) - logits[i].begin();
    all[i].next = {static_cast<std::int32_t>(best)};
    all[i].said.push_back(all[i].next[0]);
  }
  return logits;
}

// Every case's prompt, then single tokens, all in one batch.
TEST_P(GpuScore, ContinuesGreedilyInOneMixedBatchThroughGraphs) {
  GoldenModel golden(GetParam(), [] {
    GoldenModel::Options options = on_gpu();
    options.max_rows = 1024;
    return options;
  }());
  std::vector<Decoding> all = decodings(golden);
  const std::size_t longest = longest_answer(golden);
  for (std::size_t i = 0; i < longest; ++i) step(golden, all);
  EXPECT_GE(golden.runner().graph_launches() + 3, longest) << "graphs ran the steps";
  std::size_t index = 0;
  for (const json::Value& each : cases_of(golden.golden())) {
    std::vector<std::int32_t> expected = numbers_of(at(at(each, "greedy"), "token_ids"));
    all[index].said.resize(expected.size());
    EXPECT_EQ(all[index].said, expected) << GetParam() << ", case " << all[index].name;
    ++index;
  }
}

void expect_graphs_equal_eager_steps(const std::string& model, bool kv_codes) {
  for (const bool exact : {true, false}) {
    GoldenModel::Options options = on_gpu(exact);
    options.kv_codes = kv_codes;
    GoldenModel by_graph(model, options);
    options.graphs = false;
    GoldenModel eager(model, options);
    std::vector<Decoding> left = decodings(by_graph);
    std::vector<Decoding> right = decodings(eager);
    // Prompts one at a time, then batches that grow, so that pages and sizes differ.
    for (std::size_t i = 0; i < left.size(); ++i) {
      step(by_graph, std::span(left).subspan(i, 1));
      step(eager, std::span(right).subspan(i, 1));
    }
    // The second half repeats the first, whose steps have become graphs.
    for (std::size_t round = 0; round < 12; ++round) {
      const std::size_t count = std::min(left.size(), 1 + round % 3 * 5);
      const std::size_t first = (round % 6 * 2) % (left.size() - count + 1);
      const auto a = step(by_graph, std::span(left).subspan(first, count));
      const auto b = step(eager, std::span(right).subspan(first, count));
      ASSERT_EQ(a, b) << model << ", exact " << exact << ", round " << round;
    }
    EXPECT_GT(by_graph.runner().graph_launches(), 0U);
    EXPECT_EQ(eager.runner().graph_launches(), 0U);
  }
}

// Graphs that were captured for fewer rows, other adapters and other pages say what eager steps
// say, bit for bit.
TEST_P(GpuScore, GraphsEqualEagerSteps) { expect_graphs_equal_eager_steps(GetParam(), false); }

// Base rows have the same bits beside rows with adapters as without them.
TEST_P(GpuScore, BaseRowsDoNotSeeAdaptersBesideThem) {
  for (const bool exact : {true, false}) {
    GoldenModel golden(GetParam(), on_gpu(exact));
    const json::Value& first = cases_of(golden.golden()).front();
    const json::Value& last = cases_of(golden.golden()).back();
    const std::vector<runner::ScoreLine> line(1, golden.lines_of(first).front());
    std::vector<runner::ScoreLine> lines = line;
    lines.push_back(golden.lines_of(last).front());
    // Both with two lines: without the batch-invariant mode other sizes may go other ways.
    const auto without = golden.score(lines, {lora::Mix(), lora::Mix()});
    const auto beside = golden.score(lines, {lora::Mix(), golden.mix_of(last)});
    EXPECT_EQ(without[0].token_logprobs, beside[0].token_logprobs) << GetParam() << " " << exact;
    EXPECT_EQ(without[0].top_logprobs, beside[0].top_logprobs) << GetParam() << " " << exact;
  }
}

void expect_same_bits_in_batch_invariant_steps(const std::string& model, bool kv_codes) {
  for (const bool exact : {true, false}) {
    std::vector<std::vector<runner::ScoreResult>> by_step;
    for (const std::int64_t rows : {1, 7, 512}) {
      GoldenModel::Options options = on_gpu(exact);
      options.max_rows = rows;
      options.batch_invariant = true;
      options.kv_codes = kv_codes;
      GoldenModel golden(model, options);
      std::vector<runner::ScoreLine> lines;
      std::vector<lora::Mix> mixes;
      for (const json::Value& each : cases_of(golden.golden())) {
        lines.push_back(golden.lines_of(each).front());
        mixes.push_back(golden.mix_of(each));
        if (lines.size() == 6) break;
      }
      by_step.push_back(golden.score(lines, mixes));
    }
    for (std::size_t run = 1; run < by_step.size(); ++run) {
      for (std::size_t i = 0; i < by_step[0].size(); ++i)
        EXPECT_EQ(by_step[run][i].token_logprobs, by_step[0][i].token_logprobs)
            << model << ", exact " << exact << ", run " << run << ", line " << i;
    }
  }
}

// In the batch-invariant mode neither the size of steps, nor the pieces of a prompt, nor other rows
// change a bit.
TEST_P(GpuScore, BatchInvariantStepsOfAnySizeGiveTheSameBits) {
  expect_same_bits_in_batch_invariant_steps(GetParam(), false);
}

// Keys and values in FP8. The bounds are the CPU's (golden_score_test.cc), and with what bf16 may
// cost beside them.
class GpuScoreFp8Cache : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, GpuScoreFp8Cache, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

TEST_P(GpuScoreFp8Cache, StaysCloseToTheReferenceWhereRoutersAreDecided) {
  for (const bool exact : {true, false}) {
    GoldenModel::Options options = on_gpu(exact);
    options.kv_codes = true;
    GoldenModel golden(GetParam(), options);
    Distance all;
    for (const runner::ScoreLine& line : golden.read_lines("decided.jsonl"))
      all.add({line}, golden.score({line}, {golden.mix(line.adapters)}));
    EXPECT_LE(all.mean(), exact ? 0.12 : 0.14) << GetParam() << ", exact " << exact;
  }
}

class GpuScoreFp8CacheBits : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, GpuScoreFp8CacheBits,
                         testing::Values("qwen3_moe", "deepseek_v3", "gpt_oss",
                                         "qwen3_moe_modelopt_fp8"),
                         [](const auto& model) { return model.param; });

TEST_P(GpuScoreFp8CacheBits, GraphsEqualEagerSteps) {
  expect_graphs_equal_eager_steps(GetParam(), true);
}

TEST_P(GpuScoreFp8CacheBits, BatchInvariantStepsOfAnySizeGiveTheSameBits) {
  expect_same_bits_in_batch_invariant_steps(GetParam(), true);
}

TEST(GpuMixes, BeyondTheRoomAreRefusedByTheirLineBeforeAnyWork) {
  GoldenModel::Options options = on_gpu();
  options.adapter_rank = 1;
  GoldenModel golden("qwen3_moe", options);
  const json::Value& some = cases_of(golden.golden()).back();
  const lora::Mix mix = golden.mix_of(some);
  const std::vector<runner::ScoreLine> lines(2, golden.lines_of(some).front());
  const auto refused = runner::score(golden.runner(), lines, std::vector{lora::Mix(), mix}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("line 2"));
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("where there is room for 1"));
}

// The table of a step pins its adapters until the next step, or until release_adapters().
TEST(GpuMixes, OfTheLastStepAreLetGo) {
  GoldenModel golden("qwen3_moe", on_gpu());
  const json::Value& some = cases_of(golden.golden()).back();
  golden.score({golden.lines_of(some).front()}, {golden.mix_of(some)});
  golden.forget_adapters();
  EXPECT_GT(golden.pool().usage().pinned_pages, 0);
  ASSERT_TRUE(golden.runner().release_adapters().ok());
  EXPECT_EQ(golden.pool().usage().pinned_pages, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuScore, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::score_tests
