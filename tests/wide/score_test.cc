// Models of production widths against Hugging Face and PEFT.

#include "runner/score.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "lora/files/load.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "score/golden_model.h"
#include "tensor/device/device.h"
#include "wide/decoded.h"
#include "wide/wide_golden.h"

namespace motley::wide_tests {
namespace {

namespace fs = std::filesystem;
using score_tests::at;

const tensor::DeviceChoice device_choice = tensor::parse_device(MOTLEY_WIDE_DEVICE).value();

// Writing takes seconds, so a process does it once for each model.
const fs::path& files_of(const WideGolden& golden) {
  static std::map<fs::path, std::unique_ptr<TemporaryFolder>> written;
  std::unique_ptr<TemporaryFolder>& folder = written[golden.folder];
  if (folder == nullptr) {
    folder = std::make_unique<TemporaryFolder>();
    ThreadPool threads;
    golden.write(folder->path(), threads);
  }
  return folder->path();
}

constexpr double allowed_ratio = 1.15;

struct Distance {
  double largest = 0;
  double sum = 0;
  std::int64_t count = 0;

  // The tokens that the result has.
  void add(const runner::ScoreLine& line, const runner::ScoreResult& result) {
    for (std::size_t t = 1; t < result.token_logprobs.size(); ++t) {
      const double apart = std::abs(double{result.token_logprobs[t]} - (*line.reference)[t]);
      // NaN is far from everything.
      largest = std::isnan(apart) ? INFINITY : std::max(largest, apart);
      sum += apart;
      ++count;
    }
  }
  void add(const Distance& other) {
    largest = std::max(largest, other.largest);
    sum += other.sum;
    count += other.count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

// By adapter; "base" has none.
using Distances = std::map<std::string, Distance>;

Distance all_of(const Distances& distances) {
  Distance all;
  for (const auto& [name, distance] : distances) all.add(distance);
  return all;
}

struct Adapters {
  std::unique_ptr<lora::Pool> pool;
  std::map<std::string, lora::Mix> mixes;
};

Adapters load_adapters(const WideGolden& golden, const model::Model& model, tensor::Device& device,
                       std::optional<DType> factors) {
  lora::Pool::Options options{.dtype = factors.value_or(model.activations()),
                              .experts = model.factor_layout(),
                              .directory = device.id().kind != tensor::DeviceKind::cpu};
  std::map<std::string, lora::Adapter> loaded;
  std::uint64_t pages = 0;
  for (const auto& [name, files] : golden.adapters) {
    loaded[name] =
        lora::load_adapter(files_of(golden) / "adapters" / name, {}, model.base_view()).value();
    pages += lora::Pool::pages_of(loaded[name], options);
  }
  options.bytes = pages * options.page_bytes;
  Adapters adapters{.pool = lora::Pool::create(device, options).value(),
                    .mixes = {{"base", lora::Mix()}}};
  for (const auto& [name, adapter] : loaded) {
    const std::array part{
        lora::Mix::Part{.adapter = adapters.pool->load(name, adapter).value(), .scale = 1}};
    adapters.mixes[name] = lora::Mix::make(part).value();
  }
  return adapters;
}

std::string label_of(const runner::ScoreLine& line) {
  return line.adapters.empty() ? "base" : line.adapters.front().name;
}

std::vector<runner::ScoreLine> read_lines(const WideGolden& golden, std::int64_t vocabulary) {
  std::vector<std::string> names;
  for (const auto& [name, files] : golden.adapters) names.push_back(name);
  return runner::read_score_lines(golden.folder / "lines.jsonl",
                                  {.vocabulary = vocabulary, .adapters = names})
      .value();
}

std::unique_ptr<runner::Runner> make_runner(const model::Model& model, tensor::Device& device,
                                            const std::vector<runner::ScoreLine>& lines,
                                            lora::Pool& pool) {
  std::int64_t longest = 0;
  std::int64_t pages = 0;
  for (const runner::ScoreLine& line : lines) {
    const auto tokens = static_cast<std::int64_t>(line.tokens.size());
    longest = std::max(longest, tokens);
    pages += runner::KvMemory::pages_for(tokens);
  }
  runner::Runner::Options options{.max_rows = 512,
                                  .max_sequences = 32,
                                  .max_tokens = longest,
                                  .pages = pages,
                                  .adapters = &pool,
                                  .adapter_rank = 48,
                                  .mix_rank = 48};
  if (model.keeps_states()) options.state_slots = options.max_sequences;
  return runner::Runner::create(model, device, options).value();
}

float logprob(std::span<const float> logits, std::int32_t token) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - highest);
  return static_cast<float>(double{logits[static_cast<std::size_t>(token)]} - highest -
                            std::log(sum));
}

// A step for each token is quick on a GPU only: elsewhere the first ones must do.
const std::size_t max_decoded =
    device_choice.kind == tensor::DeviceChoice::Kind::cuda ? std::size_t{1} << 20 : 64;

// Every token a step's row of its own, all lines side by side as long as they last.
std::vector<runner::ScoreResult> decode(runner::Runner& runner,
                                        const std::vector<runner::ScoreLine>& lines,
                                        const std::vector<lora::Mix>& mixes) {
  std::vector<runner::ScoreResult> results(lines.size());
  runner::ConsecutivePages all_pages(runner.kv());
  std::vector<std::vector<std::int32_t>> pages(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    results[i].token_logprobs.resize(std::min(lines[i].tokens.size(), max_decoded));
  }
  for (std::size_t t = 0;; ++t) {
    std::vector<runner::Chunk> chunks;
    std::vector<std::size_t> line_of;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (results[i].token_logprobs.size() < t + 2) continue;
      all_pages.grow(pages[i], static_cast<std::int64_t>(t) + 1);
      chunks.push_back({.pages = pages[i],
                        .length = static_cast<std::int64_t>(t),
                        .tokens = std::span(lines[i].tokens).subspan(t, 1),
                        .mix = mixes[i],
                        .state = runner::SequenceState::certain_rows(
                            static_cast<std::int32_t>(i), static_cast<std::int64_t>(t), 1)});
      line_of.push_back(i);
    }
    if (chunks.empty()) return results;
    std::size_t next = 0;
    auto sink = [&](const tensor::Tensor& logits,
                    std::span<const runner::LogitRow> rows) -> Result<void> {
      std::vector<float> row(static_cast<std::size_t>(logits.dim(1)));
      for (std::size_t r = 0; r < rows.size(); ++r) {
        MOTLEY_TRY_VOID(runner.stream().copy(row.data(),
                                             logits.select(static_cast<std::int64_t>(r)).bytes(),
                                             row.size() * sizeof(float)));
        MOTLEY_TRY_VOID(runner.stream().synchronize());
        const std::size_t line = line_of[next++];
        results[line].token_logprobs[t + 1] = logprob(row, lines[line].tokens[t + 1]);
      }
      return {};
    };
    runner.step(chunks, sink).value();
  }
}

struct Answers {
  Distances prompts;  // lines in chunks of up to 512 tokens, all in one mixed batch
  Distances decoded;  // token by token
  std::string backends;
};

Answers answers(const WideGolden& golden, const fs::path& files, model::LoadOptions options) {
  const auto device = tensor::open_device(device_choice).value();
  options.exact_inputs = !golden.rounded_inputs;
  const auto model = model::Model::load(files, *device, options).value();
  const Adapters adapters = load_adapters(golden, *model, *device, options.factors);
  const auto lines = read_lines(golden, model->config().vocabulary);
  std::vector<lora::Mix> mixes;
  for (const runner::ScoreLine& line : lines) mixes.push_back(adapters.mixes.at(label_of(line)));
  Answers found{.backends = model->describe_backends()};
  const auto runner = make_runner(*model, *device, lines, *adapters.pool);
  const auto prompts = runner::score(*runner, lines, mixes, {.top = 1}).value();
  const auto decoded = decode(*runner, lines, mixes);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    found.prompts[label_of(lines[i])].add(lines[i], prompts[i]);
    found.decoded[label_of(lines[i])].add(lines[i], decoded[i]);
  }
  return found;
}

Answers answers(const WideGolden& golden, const model::LoadOptions& options) {
  return answers(golden, files_of(golden), options);
}

// What Hugging Face's own run in bf16 differs from its float32, in the mean.
double reference_error(const WideGolden& golden, const std::string& label) {
  return at(at(golden.golden, "bf16_mean_error"), label).as_number("error").value();
}

// For the record of a session on a GPU: a line by adapter, and one of all tokens.
void print(const WideGolden& golden, const std::string& what, Distances distances) {
  distances["all"] = all_of(distances);
  for (const auto& [label, distance] : distances)
    std::printf("wide %s %s %s %s mean %.6f largest %.6f huggingface_bf16 %.6f\n",
                MOTLEY_WIDE_DEVICE, golden.folder.filename().c_str(), what.c_str(), label.c_str(),
                distance.mean(), distance.largest, reference_error(golden, label));
}

void print(const WideGolden& golden, const std::string& what, const Answers& answers) {
  std::printf("wide %s %s %s experts: %s\n", MOTLEY_WIDE_DEVICE, golden.folder.filename().c_str(),
              what.c_str(), answers.backends.c_str());
  print(golden, what + " prompts", answers.prompts);
  print(golden, what + " decoded", answers.decoded);
}

class WideScore : public testing::TestWithParam<std::string> {};

TEST_P(WideScore, EqualsTheReferenceInFloat32) {
  const WideGolden golden(GetParam());
  const Answers found = answers(golden, {.exact = true});
  print(golden, "f32", found);
  for (const Distances* each : {&found.prompts, &found.decoded}) {
    const Distance all = all_of(*each);
    EXPECT_LE(golden.rounded_inputs ? all.mean() : all.largest, golden.tolerance);
  }
}

// Random routers decide by little in some rows, and other experts change everything: Hugging Face's
// error holds as many such rows.
TEST_P(WideScore, IsAsCloseInBf16AsHuggingFace) {
  const WideGolden golden(GetParam());
  const Answers found = answers(golden, {.exact = false});
  print(golden, "bf16", found);
  EXPECT_THAT(found.backends, testing::HasSubstr("_grouped"));
  const double allowed = allowed_ratio * reference_error(golden, "all");
  EXPECT_LE(all_of(found.prompts).mean(), allowed);
  EXPECT_LE(all_of(found.decoded).mean(), allowed);
}

class WideDecoded : public testing::TestWithParam<std::string> {};

// Than a plain checkpoint of the numbers they stand for, which products in bf16 round to bf16.
TEST_P(WideDecoded, CodesCostNoMoreInBf16) {
  const WideGolden golden(GetParam());
  const Answers codes = answers(golden, {.exact = false});
  print(golden, "codes", codes);
  const TemporaryFolder folder;
  write_decoded(golden, files_of(golden), folder.path());
  const Answers decoded = answers(golden, folder.path(), {.exact = false});
  print(golden, "decoded_weights", decoded);
  const double reference = reference_error(golden, "all");
  EXPECT_LE(all_of(decoded.prompts).mean(), allowed_ratio * reference);
  EXPECT_LE(all_of(decoded.decoded).mean(), allowed_ratio * reference);
  EXPECT_LE(all_of(codes.prompts).mean(), allowed_ratio * all_of(decoded.prompts).mean());
  EXPECT_LE(all_of(codes.decoded).mean(), allowed_ratio * all_of(decoded.decoded).mean());
}

// Factors of 8 bits cost a few times what all of bf16 costs. Without its factors an adapter's lines
// would be as far away as the base's answers are.
TEST_P(WideScore, StaysCloseWithFp8Pages) {
  const WideGolden golden(GetParam());
  const Answers found = answers(golden, {.exact = false, .factors = DType::f8_e4m3});
  print(golden, "fp8_pages", found);
  for (const Distances* each : {&found.prompts, &found.decoded}) {
    for (const auto& [label, distance] : *each) {
      if (label == "base") continue;
      const double moved = at(at(golden.golden, "moves"), label).as_number("moves").value();
      EXPECT_LE(distance.mean(), moved / 4) << label;
    }
  }
}

class WideCache : public testing::TestWithParam<std::string> {};

// Codes of keys and values have 4 bits where bf16 has 8. That costs 2 to 3 times all of Hugging
// Face's rounding to bf16; keys or values with a wrong exponent cost 20 times as much.
TEST_P(WideCache, StaysCloseWithFp8Cache) {
  const WideGolden golden(GetParam());
  const Answers found = answers(golden, {.exact = false, .kv_codes = true});
  print(golden, "fp8_cache", found);
  const double allowed = 4 * reference_error(golden, "all");
  EXPECT_LE(all_of(found.prompts).mean(), allowed);
  EXPECT_LE(all_of(found.decoded).mean(), allowed);
}

// Of those that the build names between commas, else of all.
std::vector<std::string> models(bool (*which)(const WideGolden& golden)) {
  const std::string listed = MOTLEY_WIDE_MODELS;
  std::vector<std::string> names = wide_models();
  std::erase_if(names, [&](const std::string& name) {
    const bool named =
        listed.empty() || cat(",", listed, ",").find(cat(",", name, ",")) != std::string::npos;
    return !named || !which(WideGolden(name));
  });
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& model) { return model.param; }

INSTANTIATE_TEST_SUITE_P(Models, WideScore,
                         testing::ValuesIn(models([](const WideGolden&) { return true; })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Models, WideDecoded,
                         testing::ValuesIn(models([](const WideGolden& golden) {
                           return !golden.decoded.empty();
                         })),
                         name_of);
// Keys and values don't depend on a format of weights.
INSTANTIATE_TEST_SUITE_P(Models, WideCache, testing::ValuesIn(models([](const WideGolden& golden) {
                           return golden.decoded.empty() && !golden.rounded_inputs;
                         })),
                         name_of);

}  // namespace
}  // namespace motley::wide_tests
