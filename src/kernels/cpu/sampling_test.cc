#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::kernels {
namespace {

using testing::ElementsAre;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> log_probabilities;
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> top_ids;
  std::vector<float> top_log_probabilities;
  std::vector<float> named_log_probabilities;
  std::vector<std::int32_t> named_ranks;
};

// Rows of logits and what each wants; masks, counts and biases where a choice points at them.
struct Step {
  std::int64_t width = 0;
  std::vector<float> logits;
  std::vector<SampleChoice> choices;
  std::vector<std::uint32_t> masks;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> bias_ids;
  std::vector<float> biases;
  std::vector<std::int32_t> named_ids;

  Answer run(ThreadPool* pool = nullptr) {
    const auto rows = static_cast<std::int64_t>(choices.size());
    constexpr std::int64_t tops = 8;
    Answer answer{.ids = std::vector<std::int32_t>(choices.size(), -7),
                  .log_probabilities = std::vector<float>(choices.size(), nan),
                  .ranks = std::vector<std::int32_t>(choices.size(), -7),
                  .top_ids = std::vector<std::int32_t>(choices.size() * tops, -7),
                  .top_log_probabilities = std::vector<float>(choices.size() * tops, nan),
                  .named_log_probabilities = std::vector<float>(named_ids.size(), nan),
                  .named_ranks = std::vector<std::int32_t>(named_ids.size(), -7)};
    const StreamHandle stream{pool};
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(cpu_table().sample_scratch_bytes(rows, width, stream)));
    cpu_table().sample({.rows = rows,
                        .width = width,
                        .logits = logits.data(),
                        .logits_stride = width,
                        .choices = choices.data(),
                        .masks = masks.data(),
                        .mask_stride = (width + 31) / 32,
                        .counts = counts.data(),
                        .counts_stride = width,
                        .bias_ids = bias_ids.data(),
                        .biases = biases.data(),
                        .ids = answer.ids.data(),
                        .log_probabilities = answer.log_probabilities.data(),
                        .ranks = answer.ranks.data(),
                        .top_stride = tops,
                        .top_ids = answer.top_ids.data(),
                        .top_log_probabilities = answer.top_log_probabilities.data(),
                        .named_ids = named_ids.data(),
                        .named_log_probabilities = answer.named_log_probabilities.data(),
                        .named_ranks = answer.named_ranks.data(),
                        .scratch = scratch.data()},
                       stream);
    return answer;
  }
};

Step step_of(std::vector<float> logits, const SampleChoice& choice = {}) {
  Step step;
  step.width = static_cast<std::int64_t>(logits.size());
  step.logits = std::move(logits);
  step.choices = {choice};
  return step;
}

std::vector<float> random_logits(std::size_t count, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The definitions, in float64 and with a sort: the probability of every token.
std::vector<double> probabilities_by_definition(const std::vector<float>& logits,
                                                const SampleChoice& choice) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return logits[a] == logits[b] ? a < b : logits[a] > logits[b];
  });
  std::vector<double> kept(logits.size(), 0);
  double total = 0;
  std::int32_t count = 0;
  for (const std::size_t id : order) {
    const double share = std::exp((double{logits[id]} - double{logits[order[0]]}) *
                                  double{choice.inverse_temperature});
    if (share < double{choice.min_p} || (choice.top_k > 0 && count == choice.top_k)) break;
    kept[id] = share;
    total += share;
    ++count;
  }
  double before = 0;
  double left = 0;
  for (const std::size_t id : order) {
    const double share = kept[id];
    if (before >= double{choice.top_p} * total) kept[id] = 0;
    before += share;
    left += kept[id];
  }
  for (double& probability : kept) probability /= left;
  return kept;
}

// How many standard deviations the chi-square of these draws lies above its mean.
double surprise(const std::vector<float>& logits, SampleChoice choice,
                const std::vector<double>& expected) {
  constexpr int draws = 20'000;
  std::vector<int> seen(logits.size(), 0);
  Step step = step_of(logits, choice);
  for (int draw = 0; draw < draws; ++draw) {
    step.choices[0].draw = static_cast<std::uint64_t>(draw);
    ++seen.at(static_cast<std::size_t>(step.run().ids[0]));
  }
  double chi = 0;
  double rest_expected = 0;
  int rest_seen = 0;
  int cells = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(seen[i], 0) << "token " << i << " is ruled out";
    }
    if (expected[i] * draws < 10) {
      rest_expected += expected[i] * draws;
      rest_seen += seen[i];
      continue;
    }
    chi += std::pow(seen[i] - expected[i] * draws, 2) / (expected[i] * draws);
    ++cells;
  }
  if (rest_expected >= 10) {
    chi += std::pow(rest_seen - rest_expected, 2) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(cells - 1, 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

// Fixed seeds: what is drawn never changes. Four deviations would be one in a thousand at most.
TEST(Sample, DrawsTheDistributionOfEachParameter) {
  const std::vector<float> logits = random_logits(200, 1);
  const SampleChoice choices[] = {
      {.inverse_temperature = 1, .seed = 11},
      {.inverse_temperature = 1 / 0.7F, .seed = 12},
      {.inverse_temperature = 1 / 1.8F, .seed = 13},
      {.inverse_temperature = 1, .top_k = 7, .seed = 14},
      {.inverse_temperature = 1, .top_p = 0.8F, .seed = 15},
      {.inverse_temperature = 1, .min_p = 0.05F, .seed = 16},
      {.inverse_temperature = 0.6F, .top_k = 40, .top_p = 0.9F, .min_p = 0.01F, .seed = 17},
      {.inverse_temperature = 1, .top_p = 1e-6F, .seed = 18},
      {.inverse_temperature = 1e4F, .seed = 19},
  };
  for (const SampleChoice& choice : choices) {
    EXPECT_LT(surprise(logits, choice, probabilities_by_definition(logits, choice)), 4)
        << "seed " << choice.seed;
  }
}

TEST(Sample, CutsAmongEqualTokensByTheirIds) {
  std::vector<float> logits(64, 1.0F);
  logits[40] = 2;
  std::map<std::int32_t, int> seen;
  Step top_k = step_of(logits, {.inverse_temperature = 1, .top_k = 5, .seed = 3});
  // Half of e + 63 lies in token 40 and the first 31 others.
  Step top_p = step_of(logits, {.inverse_temperature = 1, .top_p = 0.5F, .seed = 3});
  std::int32_t last_of_top_p = 0;
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    top_k.choices[0].draw = draw;
    top_p.choices[0].draw = draw;
    ++seen[top_k.run().ids[0]];
    const std::int32_t id = top_p.run().ids[0];
    if (id != 40) last_of_top_p = std::max(last_of_top_p, id);
  }
  std::vector<std::int32_t> ids;
  for (const auto& [id, times] : seen) ids.push_back(id);
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3, 40));
  EXPECT_EQ(last_of_top_p, 30);
}

TEST(Sample, TakesTheLowestIdAmongTheGreatest) {
  EXPECT_THAT(step_of({1, 3, -2, 3, 2}).run().ids, ElementsAre(1));
  EXPECT_THAT(step_of({-0.0F, 0.0F, -1}).run().ids, ElementsAre(0));
  EXPECT_THAT(step_of({-5, -3, -4}).run().ids, ElementsAre(1));
}

TEST(Sample, SaysThatLogitsAreNotFinite) {
  for (const SampleChoice& choice :
       {SampleChoice{}, SampleChoice{.inverse_temperature = 1, .top_p = 0.5F, .seed = 1},
        SampleChoice{.mask_row = 0}, SampleChoice{.bias_begin = 0, .bias_end = 1},
        SampleChoice{.repetition = 2, .counts_row = 0}}) {
    for (const std::vector<float>& logits :
         std::vector<std::vector<float>>{{nan, 1, 3, 2},
                                         {0, 1, 2, -nan},
                                         {0, infinity, 1, 2},
                                         {-infinity, infinity, 1, 2},
                                         {nan, nan, nan, nan},
                                         {-infinity, -infinity, -infinity, -infinity}}) {
      Step step = step_of(logits, choice);
      step.masks = {0b0100};  // leaves a number where there is one
      step.bias_ids = {1};
      step.biases = {-infinity};
      step.counts = {1, 2, 3, 4};
      EXPECT_THAT(step.run().ids, ElementsAre(logits_not_finite));
      EXPECT_THAT(step.counts, ElementsAre(1, 2, 3, 4)) << "nothing was drawn";
    }
  }
}

TEST(Sample, ARowThatIsNotFiniteLeavesTheOthersAlone) {
  constexpr std::size_t width = 37;
  Step step = step_of(random_logits(width, 3));
  step.choices = {{.inverse_temperature = 1, .seed = 4}, {}, {.inverse_temperature = 1, .seed = 9}};
  for (const std::uint32_t seed : {5U, 6U}) {
    const std::vector<float> more = random_logits(width, seed);
    step.logits.insert(step.logits.end(), more.begin(), more.end());
  }
  const std::vector<std::int32_t> before = step.run().ids;
  step.logits[width + 7] = nan;
  EXPECT_THAT(step.run().ids, ElementsAre(before[0], logits_not_finite, before[2]));
}

TEST(Sample, NeverChoosesWhatIsRuledOut) {
  EXPECT_THAT(step_of({-infinity, 1, -infinity, 2}).run().ids, ElementsAre(3));
  Step step =
      step_of({-infinity, 1, -infinity, -infinity}, {.inverse_temperature = 1e-3F, .seed = 1});
  for (std::uint64_t draw = 0; draw < 100; ++draw) {
    step.choices[0].draw = draw;
    ASSERT_EQ(step.run().ids[0], 1);
  }
}

TEST(Sample, SaysThatNoTokenIsLeft) {
  for (const float inverse_temperature : {0.0F, 1.0F}) {
    Step masked = step_of(
        {1, -infinity, 3},
        {.inverse_temperature = inverse_temperature, .mask_row = 0, .top_log_probabilities = 2});
    for (const std::uint32_t mask : {0U, 0b010U}) {
      masked.masks = {mask};
      const Answer answer = masked.run();
      EXPECT_EQ(answer.ids[0], no_token_left);
      EXPECT_EQ(answer.log_probabilities[0], -infinity);
    }
    Step biased = step_of(
        {1, 2}, {.inverse_temperature = inverse_temperature, .bias_begin = 0, .bias_end = 2});
    biased.bias_ids = {0, 1};
    biased.biases = {-infinity, -infinity};
    EXPECT_EQ(biased.run().ids[0], no_token_left);
  }
}

TEST(Sample, ChoosesWithinMaskAndBias) {
  Step step = step_of({5, 4, 3, 2, 1}, {.mask_row = 1, .bias_begin = 1, .bias_end = 3});
  step.masks = {0, 0b11110};
  step.bias_ids = {2, 1, 4};
  step.biases = {100, -infinity, 2.5F};
  EXPECT_THAT(step.run().ids, ElementsAre(4));
}

// repetition: a logit above zero is divided, one below multiplied, for tokens of prompt and answer;
// frequency and presence are taken from tokens of the answer.
TEST(Sample, PenalisesAsHuggingFaceAndOpenAiDefine) {
  const std::vector<float> logits = {2, -2, 2, -2, 1.5F};
  const std::vector<std::int32_t> counts = {1, 1, 2 * 3, 2 * 1 + 1, 0};
  // Which bias, added before the penalties, makes a token as large as token 4: (1.5 + 3 * 0.5 +
  // 0.25) * 2 for one that was generated three times.
  const std::vector<float> equal = {1.5F * 2, 1.5F * 2, 3.25F * 2, 2.25F * 2};
  for (std::int32_t id = 0; id < 4; ++id) {
    for (const float more : {-0.001F, 0.001F}) {
      Step step = step_of(logits, {.repetition = 2,
                                   .presence = 0.25F,
                                   .frequency = 0.5F,
                                   .counts_row = 0,
                                   .bias_begin = 0,
                                   .bias_end = 1});
      const auto at = static_cast<std::size_t>(id);
      step.counts = counts;
      step.bias_ids = {id};
      step.biases = {equal[at] - logits[at] + more};
      EXPECT_EQ(step.run().ids[0], more > 0 ? id : 4) << "token " << id;
    }
  }
  // A logit below zero is multiplied: -1 * 2 loses against -1.9.
  Step below = step_of({-1, -1.9F}, {.repetition = 2, .counts_row = 0});
  below.counts = {1, 0};
  EXPECT_EQ(below.run().ids[0], 1);
}

TEST(Sample, CountsWhatItChooses) {
  Step step = step_of({3, 2.9F, 1}, {.frequency = 0.2F, .counts_row = 0});
  step.counts = {0, 1, 0};
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(step.run().ids[0]);
  EXPECT_THAT(ids, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(step.counts, ElementsAre(4, 5, 0));
}

TEST(Sample, GivesTheModelsOwnLogProbabilities) {
  std::vector<float> logits = random_logits(5000, 4);
  logits[77] = -infinity;
  logits[80] = logits[81] = 9;
  double largest = 9;
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit} - largest);
  Step step = step_of(logits, {.inverse_temperature = 5,
                               .repetition = 1.5F,
                               .counts_row = 0,
                               .bias_begin = 0,
                               .bias_end = 1,
                               .top_log_probabilities = 5,
                               .ranked = true,
                               .seed = 5});
  step.counts.assign(logits.size(), 2);
  step.bias_ids = {81};
  step.biases = {-infinity};
  const Answer answer = step.run();
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](std::size_t id) { return std::pair(-logits[id], id); };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  const auto expected = [&](std::size_t id) {
    return double{logits[id]} - largest - std::log(total);
  };
  // An exponential within 2 units of the last place: 2^-22 of the sum, and one rounding of
  // about 10.
  constexpr double tolerance = 1.5e-6;
  const auto id = static_cast<std::size_t>(answer.ids[0]);
  EXPECT_NEAR(answer.log_probabilities[0], expected(id), tolerance);
  EXPECT_EQ(answer.ranks[0], std::ranges::find(order, id) - order.begin() + 1);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(answer.top_ids[i], static_cast<std::int32_t>(order[i]));
    EXPECT_NEAR(answer.top_log_probabilities[i], expected(order[i]), tolerance);
  }
  EXPECT_EQ(answer.top_ids[5], -7) << "what no row asked for stays as it was";
}

TEST(Sample, GivesTheLogProbabilitiesOfWhatItDrawsFrom) {
  std::vector<float> logits = random_logits(300, 4);
  logits[80] = logits[81] = 9;
  for (const SampleChoice& choice :
       {SampleChoice{.inverse_temperature = 1.5F}, SampleChoice{.inverse_temperature = 0},
        SampleChoice{.inverse_temperature = 0.5F, .top_k = 7},
        SampleChoice{.inverse_temperature = 0.7F, .top_k = 90, .top_p = 0.8F, .min_p = 0.001F}}) {
    Step step = step_of(logits, choice);
    step.choices[0].bias_end = 1;
    step.choices[0].top_log_probabilities = 8;
    step.choices[0].processed = true;
    step.choices[0].ranked = true;
    step.bias_ids = {80};
    step.biases = {-2};
    step.choices[0].seed = 3;
    const Answer answer = step.run();
    std::vector<float> biased = logits;
    biased[80] -= 2;
    SampleChoice defined = choice;
    if (choice.inverse_temperature == 0) defined.inverse_temperature = 1;
    const std::vector<double> expected = probabilities_by_definition(biased, defined);
    const auto check = [&](std::int32_t id, float log_probability) {
      const double probability = expected[static_cast<std::size_t>(id)];
      if (probability == 0)
        EXPECT_EQ(log_probability, -infinity) << id;
      else
        EXPECT_NEAR(log_probability, std::log(probability), 2e-6) << id;
    };
    check(answer.ids[0], answer.log_probabilities[0]);
    const double own = expected[static_cast<std::size_t>(answer.ids[0])];
    EXPECT_EQ(answer.ranks[0],
              std::ranges::count_if(expected, [&](double each) { return each > own; }) + 1);
    EXPECT_EQ(answer.top_ids[0], 81);
    for (std::size_t i = 0; i < 8; ++i) check(answer.top_ids[i], answer.top_log_probabilities[i]);
    EXPECT_EQ(answer.top_log_probabilities[7] == -infinity, choice.top_k == 7);
  }
}

// What a token that is named gets is what it gets when it is drawn.
TEST(Sample, GivesNamedTokensWhatDrawnOnesGet) {
  std::vector<float> logits = random_logits(700, 8);
  logits[80] = logits[81] = logits[300] = 9;
  logits[5] = -infinity;
  const std::vector<std::int32_t> named = {300, 5, 80, 699, 81, 0, 300};
  for (const bool processed : {false, true}) {
    const SampleChoice choice{.inverse_temperature = 1.5F,
                              .top_k = 600,
                              .top_log_probabilities = 0,
                              .processed = processed,
                              .ranked = true};
    Step step = step_of(logits, choice);
    step.named_ids.assign(named.begin(), named.end());
    step.choices[0].named_end = static_cast<std::int32_t>(named.size());
    const Answer answer = step.run();
    for (std::size_t k = 0; k < named.size(); ++k) {
      const auto id = static_cast<std::size_t>(named[k]);
      const std::int64_t before =
          std::ranges::count_if(logits, [&](float each) { return each > logits[id]; }) +
          std::count(logits.begin(), logits.begin() + named[k], logits[id]);
      const bool kept = !processed || answer.named_log_probabilities[k] > -infinity;
      if (kept) {
        EXPECT_EQ(answer.named_ranks[k], before + 1) << named[k];
      }
      if (answer.ids[0] == named[k]) {
        EXPECT_EQ(answer.named_log_probabilities[k], answer.log_probabilities[0]);
        EXPECT_EQ(answer.named_ranks[k], answer.ranks[0]);
      }
    }
    EXPECT_EQ(answer.named_log_probabilities[1], -infinity);
    EXPECT_EQ(answer.named_log_probabilities[0], answer.named_log_probabilities[2]);
  }
}

TEST(Sample, NamesAsManyTokensAsThereMayBe) {
  Step step = step_of(random_logits(500, 9), {.top_log_probabilities = 8, .ranked = true});
  for (std::int32_t id = 0; id < max_named_log_probabilities; ++id)
    step.named_ids.push_back(id * 3 % 500);
  step.choices[0].named_end = max_named_log_probabilities;
  const Answer answer = step.run();
  for (std::size_t i = 0; i < 8; ++i) {
    const auto at = std::ranges::find(step.named_ids, answer.top_ids[i]) - step.named_ids.begin();
    if (at == max_named_log_probabilities) continue;
    EXPECT_EQ(answer.named_ranks[static_cast<std::size_t>(at)], static_cast<int>(i) + 1);
    EXPECT_EQ(answer.named_log_probabilities[static_cast<std::size_t>(at)],
              answer.top_log_probabilities[i]);
  }
  step.choices[0].ranked = false;
  const Answer unranked = step.run();
  EXPECT_EQ(unranked.named_log_probabilities, answer.named_log_probabilities);
  EXPECT_EQ(unranked.named_ranks[0], -7) << "what no row asked for stays as it was";
}

TEST(Sample, RanksEqualLogitsByTheirIds) {
  const auto rank_of_last = [](bool ranked, std::int32_t top) {
    Step step = step_of({2, 5, 2, 2, -infinity, 2},
                        {.bias_end = 1, .top_log_probabilities = top, .ranked = ranked});
    step.bias_ids = {5};
    step.biases = {9};
    const Answer answer = step.run();
    EXPECT_EQ(answer.ids[0], 5);
    return answer.ranks[0];
  };
  EXPECT_EQ(rank_of_last(true, 0), 5) << "after the 5 and three that are equal";
  EXPECT_EQ(rank_of_last(false, 2), -7) << "what no row asked for stays as it was";
}

TEST(Sample, GivesEachRowTheSameAnswerWhateverRunsBeside) {
  constexpr std::size_t width = 1500;
  Step together;
  together.width = width;
  std::vector<Answer> alone;
  for (std::uint32_t row = 0; row < 12; ++row) {
    const std::vector<float> logits = random_logits(width, row);
    const SampleChoice choice{.inverse_temperature = row % 3 == 0 ? 0 : 1.0F,
                              .top_k = row % 2 == 0 ? 0 : 50,
                              .top_p = row % 4 == 0 ? 1 : 0.9F,
                              .top_log_probabilities = static_cast<std::int32_t>(row % 5) - 1,
                              .seed = 99,
                              .draw = row};
    alone.push_back(step_of(logits, choice).run());
    together.logits.insert(together.logits.end(), logits.begin(), logits.end());
    together.choices.push_back(choice);
  }
  ThreadPool pool({.threads = 3});
  const Answer answer = together.run(&pool);
  for (std::size_t row = 0; row < 12; ++row) {
    EXPECT_EQ(answer.ids[row], alone[row].ids[0]) << "row " << row;
    if (together.choices[row].top_log_probabilities >= 0) {
      EXPECT_EQ(answer.log_probabilities[row], alone[row].log_probabilities[0]) << "row " << row;
    }
  }
}

TEST(Sample, CountsPromptAndAnswer) {
  std::vector<std::int32_t> counts(6, 99);
  const std::vector<std::int32_t> tokens = {4, 4, 1, 1, 5, 5};
  cpu_table().count_tokens(
      {.width = 6, .counts = counts.data(), .tokens = tokens.data(), .prompt = 3, .generated = 3},
      {});
  EXPECT_THAT(counts, ElementsAre(0, 3, 0, 0, 1, 4));
}

// The known answers of Philox 4x32-10, for keys and counters of zeros and of ones.
TEST(SamplingArithmetic, DrawsPhiloxNumbers) {
  const auto words = [](std::uint64_t seed, std::uint64_t draw, std::uint64_t place) {
    const sampling::Words four = sampling::random_words(seed, draw, place);
    return std::vector<std::uint32_t>(four.of, four.of + 4);
  };
  EXPECT_THAT(words(0, 0, 0), ElementsAre(0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U));
  EXPECT_THAT(words(~0ULL, ~0ULL, ~0ULL),
              ElementsAre(0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU));
  EXPECT_EQ(sampling::random_bits(0, 0), 0xE169C58D6627E8D5U);
  EXPECT_NE(sampling::random_bits(0, 1), sampling::random_bits(1, 0));
}

// When token `id` of this share arrives.
std::uint64_t arrival_of(const sampling::Race& race, std::uint32_t id, float share) {
  return race.arrival(id, race.upper(id / 4).of[id % 4], share);
}

TEST(Race, TimesAreExponential) {
  constexpr std::uint32_t tokens = 40'000;
  const sampling::Race race{.seed = 5, .draw = 77};
  std::vector<double> times;
  for (std::uint32_t id = 0; id < tokens; ++id)
    times.push_back(double{sampling::time_of_arrival(arrival_of(race, id, 1))});
  std::ranges::sort(times);
  // Kolmogorov's distance, which lies below 1.63 / sqrt(n) in 99 of 100 cases.
  double distance = 0;
  for (std::uint32_t i = 0; i < tokens; ++i) {
    const double expected = 1 - std::exp(-times[i]);
    distance = std::max({distance, std::abs(expected - i / double{tokens}),
                         std::abs(expected - (i + 1) / double{tokens})});
  }
  EXPECT_LT(distance, 1.63 / std::sqrt(double{tokens}));
  // The first of so many comes after about 1 / n: numbers near 0 have as many digits as others.
  EXPECT_GT(times[0], 0);
  EXPECT_LT(times[0], 10.0 / tokens);
}

TEST(Race, ATokenOfHalfTheShareTakesTwiceTheTime) {
  const sampling::Race race{.seed = 1, .draw = 2};
  for (std::uint32_t id = 0; id < 100; ++id) {
    const float time = sampling::time_of_arrival(arrival_of(race, id, 1));
    EXPECT_EQ(sampling::time_of_arrival(arrival_of(race, id, 0.5F)), 2 * time);
    EXPECT_EQ(sampling::id_of_arrival(arrival_of(race, id, 0.5F)), id);
  }
}

TEST(Race, NeitherSeedNorDrawNorIdRepeatsATime) {
  std::set<float> times;
  for (std::uint32_t id = 0; id < 16; ++id) {
    for (std::uint64_t number = 1; number <= 16; ++number) {
      times.insert(sampling::time_of_arrival(arrival_of({.seed = number, .draw = 3}, id, 1)));
      times.insert(sampling::time_of_arrival(
          arrival_of({.seed = 99, .draw = number << 32 | number}, id, 1)));
    }
  }
  EXPECT_EQ(times.size(), 2U * 16 * 16);
}

// Tokens that need not be looked at are passed over; the winner is the one among all.
TEST(Race, PassesOverNobodyWhoCouldWin) {
  for (const std::size_t width : {1U, 3U, 32U, 33U, 1001U}) {
    for (const float spread : {0.0F, 1.0F, 6.0F}) {
      const std::vector<float> logits = random_logits(width, 8, spread);
      const float largest = *std::ranges::max_element(logits);
      Step step = step_of(logits, {.inverse_temperature = 1, .seed = 21});
      for (std::uint64_t draw = 0; draw < 200; ++draw) {
        step.choices[0].draw = draw;
        std::uint64_t first = ~std::uint64_t{0};
        for (std::uint32_t id = 0; id < width; ++id) {
          const float share = sampling::share_of(logits[id], largest, 1);
          if (share > 0) first = std::min(first, arrival_of({.seed = 21, .draw = draw}, id, share));
        }
        ASSERT_EQ(step.run().ids[0], static_cast<std::int32_t>(sampling::id_of_arrival(first)))
            << "width " << width << ", spread " << spread << ", draw " << draw;
      }
    }
  }
}

// What speculation lives on: two distributions at a distance d draw the same token with the same
// numbers in at least (1 - d) / (1 + d) of all cases.
TEST(Race, DrawsOfSimilarDistributionsAgree) {
  constexpr int draws = 4000;
  const std::vector<float> target = random_logits(300, 31, 2);
  for (const float noise : {0.1F, 0.4F, 1.0F}) {
    std::vector<float> draft = random_logits(300, 32, noise);
    for (std::size_t i = 0; i < draft.size(); ++i) draft[i] += target[i];
    const std::vector<double> p = probabilities_by_definition(target, {.inverse_temperature = 1});
    const std::vector<double> q = probabilities_by_definition(draft, {.inverse_temperature = 1});
    double distance = 0;
    for (std::size_t i = 0; i < p.size(); ++i) distance += std::abs(p[i] - q[i]) / 2;
    Step of_target = step_of(target, {.inverse_temperature = 1, .seed = 6});
    Step of_draft = step_of(draft, {.inverse_temperature = 1, .seed = 6});
    int agree = 0;
    for (int draw = 0; draw < draws; ++draw) {
      of_target.choices[0].draw = of_draft.choices[0].draw = static_cast<std::uint64_t>(draw);
      agree += of_target.run().ids == of_draft.run().ids ? 1 : 0;
    }
    const double bound = (1 - distance) / (1 + distance);
    EXPECT_GT(agree, draws * (bound - 0.02)) << "distance " << distance;
    EXPECT_LT(agree, draws * (1 - distance + 0.03)) << "no rule can agree more often";
  }
}

TEST(SamplingArithmetic, FollowsExponentialAndLogarithm) {
  double worst = 0;
  for (float x = 0; x > -29.7F; x -= 0.00131F) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(double{sampling::exp_of(x)} - exact) / exact);
  }
  EXPECT_LT(worst, 0x1p-22);  // 2 units of the last place
  EXPECT_EQ(sampling::exp_of(0), 1.0F);
  EXPECT_EQ(sampling::exp_of(-30), 0.0F);
  EXPECT_EQ(sampling::exp_of(-infinity), 0.0F);
  EXPECT_GE(sampling::weight_of(sampling::exp_of(-29.799F)), 1U);
  for (std::uint64_t total = 1; total < (1ULL << 62); total = total * 3 + 1) {
    const double exact = std::log(static_cast<double>(total)) - 43 * std::log(2.0);
    EXPECT_NEAR(sampling::log_of_weights(total), exact, 1e-14) << total;
  }
}

}  // namespace
}  // namespace motley::kernels
