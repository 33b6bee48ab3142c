// Reads every golden: weights, adapters and cases are whole, and what the cases say is possible.
// The modules that compute the numbers compare with them; this test keeps the set itself honest.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "tensor/convert.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t any_size = 64'000'000;
constexpr std::uint64_t max_bytes = 24'000'000;

const fs::path& goldens() {
  static const fs::path folder = MOTLEY_GOLDENS;
  return folder;
}

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(goldens()).value()) {
    if (fs::is_directory(goldens() / name)) names.push_back(name);
  }
  return names;
}

json::Value read_json(const fs::path& path) {
  return json::parse(read_text(path, any_size).value(), path.string()).value();
}

const json::Value& at(const json::Value& object, std::string_view key) {
  const json::Value* const value = object.as_object(key).value()->find(key);
  MOTLEY_CHECK(value != nullptr, cat("a golden without ", key));
  return *value;
}

const std::string& text_at(const json::Value& object, std::string_view key) {
  return *at(object, key).as_string(key).value();
}

const json::Array& list_at(const json::Value& object, std::string_view key) {
  return *at(object, key).as_array(key).value();
}

std::vector<json::Value> json_lines(const fs::path& path) {
  const std::string text = read_text(path, any_size).value();
  std::vector<json::Value> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(json::parse(text.substr(begin, end - begin), path.string()).value());
    begin = end + 1;
  }
  return lines;
}

// The lines of a case of a model's folder.
std::vector<json::Value> lines_of(const fs::path& folder, const json::Value& golden_case) {
  return json_lines(folder / text_at(golden_case, "file"));
}

// What a case's lines say, one after the other.
struct Said {
  std::vector<std::int64_t> token_ids;
  std::vector<double> logprobs;
};

// The case "model/case", or null where there is none.
std::optional<Said> said(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const fs::path folder = goldens() / name.substr(0, slash);
  if (!fs::exists(folder / "golden.json")) return std::nullopt;
  const json::Value golden = read_json(folder / "golden.json");
  for (const json::Value& each : list_at(golden, "cases")) {
    if (text_at(each, "name") != name.substr(slash + 1)) continue;
    Said result;
    for (const json::Value& line : lines_of(folder, each)) {
      for (const json::Value& id : list_at(line, "token_ids"))
        result.token_ids.push_back(id.as_integer("token_ids").value());
      for (const json::Value& logprob : list_at(line, "token_logprobs")) {
        if (!logprob.is_null())
          result.logprobs.push_back(logprob.as_number("token_logprobs").value());
      }
    }
    return result;
  }
  return std::nullopt;
}

// Widens every tensor and requires that its numbers are finite.
void expect_finite(const tensor::Checkpoint& checkpoint, const std::string& where) {
  std::vector<float> numbers;
  for (const auto& item : checkpoint.items()) {
    const tensor::ConstTensor tensor = item.tensor();
    if (!tensor::can_widen(tensor.dtype())) continue;
    numbers.resize(static_cast<std::size_t>(tensor.elements()));
    tensor::widen(tensor.dtype(), tensor.bytes(), 0, numbers);
    EXPECT_TRUE(std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); }))
        << where << ", " << item.name();
  }
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  Golden() : folder_(goldens() / GetParam()), golden_(read_json(folder_ / "golden.json")) {}

  // Multimodal releases have the text model's configuration inside theirs.
  std::int64_t vocabulary() const {
    const json::Value config = read_json(folder_ / "config.json");
    const json::Value* const text = config.if_object()->find("text_config");
    return *at(text == nullptr ? config : *text, "vocab_size").if_integer();
  }

  std::vector<json::Value> lines_of(const json::Value& golden_case) const {
    return motley::lines_of(folder_, golden_case);
  }

  fs::path folder_;
  json::Value golden_;
};

TEST_P(Golden, WeightsAreWholeAndFinite) {
  EXPECT_EQ(text_at(golden_, "model"), GetParam());
  const auto checkpoint = tensor::Checkpoint::open(folder_, "model");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_GT(checkpoint->items().size(), 10U);
  expect_finite(*checkpoint, GetParam());
}

TEST_P(Golden, EveryAdapterOfACaseOpens) {
  std::set<std::string> used;
  for (const json::Value& each : list_at(golden_, "cases")) {
    const json::Object& fields = *each.if_object();
    if (const json::Value* mix = fields.find("adapters"); mix != nullptr && !mix->is_null()) {
      for (const json::Value& part : *mix->if_array()) used.insert(text_at(part, "name"));
    } else if (const json::Value* adapter = fields.find("adapter"); !adapter->is_null()) {
      used.insert(*adapter->if_string());
    }
  }
  for (const std::string& name : used) {
    const fs::path folder = folder_ / "adapters" / name;
    EXPECT_TRUE(read_json(folder / "adapter_config.json").if_object()) << name;
    const auto checkpoint = tensor::Checkpoint::open(folder, "adapter_model");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    EXPECT_FALSE(checkpoint->items().empty()) << name;
    expect_finite(*checkpoint, name);
  }
}

TEST_P(Golden, NothingIsUnlisted) {
  std::set<std::string> adapters;
  std::set<std::string> files;
  for (const json::Value& each : list_at(golden_, "cases")) {
    files.insert(text_at(each, "file"));
    const json::Value* const adapter = each.if_object()->find("adapter");
    if (adapter != nullptr && !adapter->is_null()) adapters.insert(*adapter->if_string());
  }
  for (const json::Value& each : list_at(golden_, "refused"))
    adapters.insert(text_at(each, "adapter"));
  EXPECT_THAT(list_folder(folder_ / "adapters").value(), testing::ElementsAreArray(adapters));
  std::vector<std::string> found;
  for (const std::string& name : list_folder(folder_ / "cases").value())
    found.push_back(cat("cases/", name));
  EXPECT_THAT(found, testing::ElementsAreArray(files));
}

TEST_P(Golden, CasesHaveTheOutputFormOfScore) {
  const std::int64_t max_id = vocabulary() - 1;
  for (const json::Value& golden_case : list_at(golden_, "cases")) {
    const std::string& name = text_at(golden_case, "name");
    const std::vector<json::Value> lines = lines_of(golden_case);
    EXPECT_GE(lines.size(), 2U) << name;
    for (const json::Value& line : lines) {
      const std::size_t tokens = list_at(line, "token_ids").size();
      const json::Array& logprobs = list_at(line, "token_logprobs");
      ASSERT_EQ(logprobs.size(), tokens) << name;
      EXPECT_TRUE(logprobs.front().is_null()) << name;
      for (std::size_t i = 1; i < tokens; ++i)
        EXPECT_LT(logprobs[i].as_number(name).value(), 0.0) << name;
      const json::Array& top_ids = list_at(line, "top_ids");
      const json::Array& top_logprobs = list_at(line, "top_logprobs");
      ASSERT_EQ(top_ids.size(), tokens) << name;
      ASSERT_EQ(top_logprobs.size(), tokens) << name;
      for (std::size_t i = 0; i < tokens; ++i) {
        const json::Array& row = *top_logprobs[i].if_array();
        ASSERT_EQ(row.size(), top_ids[i].if_array()->size()) << name;
        double mass = 0;
        for (std::size_t k = 0; k < row.size(); ++k) {
          const std::int64_t id = *(*top_ids[i].if_array())[k].if_integer();
          EXPECT_TRUE(0 <= id && id <= max_id) << name << ": " << id;
          const double logprob = row[k].as_number(name).value();
          mass += std::exp(logprob);
          if (k > 0) {
            EXPECT_LE(logprob, row[k - 1].as_number(name).value()) << name;
          }
        }
        EXPECT_LT(mass, 1.0 + 1e-5) << name;
      }
    }
  }
}

TEST_P(Golden, NoCaseHangsOnATie) {
  for (const json::Value& golden_case : list_at(golden_, "cases")) {
    for (const char* gap : {"router_gap", "group_gap"}) {
      const json::Value& value = at(golden_case, gap);
      if (value.is_null()) continue;
      EXPECT_GE(value.as_number(gap).value(), 1e-4) << text_at(golden_case, "name");
    }
  }
}

TEST_P(Golden, GreedyContinuationsAreWhole) {
  for (const json::Value& golden_case : list_at(golden_, "cases")) {
    const json::Value& greedy = at(golden_case, "greedy");
    EXPECT_EQ(list_at(greedy, "token_ids").size(), 16U) << text_at(golden_case, "name");
    EXPECT_EQ(list_at(greedy, "logprobs").size(), 16U) << text_at(golden_case, "name");
    EXPECT_FALSE(list_at(greedy, "prompt").empty()) << text_at(golden_case, "name");
  }
}

// Row i - 1 of top_* and entry i of token_logprobs are of one distribution.
TEST_P(Golden, TokensAndTopAgree) {
  std::size_t among_the_top = 0;
  for (const json::Value& golden_case : list_at(golden_, "cases")) {
    const std::string& name = text_at(golden_case, "name");
    for (const json::Value& line : lines_of(golden_case)) {
      const json::Array& ids = list_at(line, "token_ids");
      const json::Array& logprobs = list_at(line, "token_logprobs");
      for (std::size_t i = 1; i < ids.size(); ++i) {
        const json::Array& top_ids = *list_at(line, "top_ids")[i - 1].if_array();
        const json::Array& top_logprobs = *list_at(line, "top_logprobs")[i - 1].if_array();
        const double logprob = logprobs[i].as_number(name).value();
        bool found = false;
        for (std::size_t k = 0; k < top_ids.size(); ++k) {
          if (*top_ids[k].if_integer() != *ids[i].if_integer()) continue;
          found = true;
          EXPECT_EQ(logprob, top_logprobs[k].as_number(name).value()) << name << ", token " << i;
        }
        among_the_top += found ? 1 : 0;
        if (!found) {
          EXPECT_LT(logprob, top_logprobs.back().as_number(name).value())
              << name << ", token " << i;
        }
      }
    }
  }
  EXPECT_GT(among_the_top, 0U);
}

// Every base, adapter and mix of a case has lines for bf16, unless another spelling of it has, or
// it is loaded with options, which these lines do not carry.
TEST_P(Golden, DecidedLinesSpeakForEveryCase) {
  std::set<std::string> labels;
  const auto label_of = [](const json::Value& object) {
    const json::Object& fields = *object.if_object();
    const json::Value* const mix = fields.find("adapters");
    return json::write(mix != nullptr ? *mix : at(object, "adapter"));
  };
  for (const json::Value& line : json_lines(folder_ / "decided.jsonl")) {
    labels.insert(label_of(line));
    const std::size_t tokens = list_at(line, "token_ids").size();
    EXPECT_EQ(tokens, 16U);
    EXPECT_EQ(list_at(line, "token_logprobs").size(), tokens);
  }
  for (const json::Value& golden_case : list_at(golden_, "cases")) {
    const json::Value& same_as = at(golden_case, "same_as");
    if (!at(golden_case, "load").if_object()->members().empty()) continue;
    if (same_as.is_null() || text_at(golden_case, "name") == "base") {
      EXPECT_TRUE(labels.contains(label_of(golden_case))) << text_at(golden_case, "name");
    }
  }
}

// Prompts for models with a state: a loss of it at the border of a chunk would show.
TEST_P(Golden, LongLinesReachBeyondAChunk) {
  const json::Value* const long_lines = golden_.if_object()->find("long");
  if (long_lines == nullptr) return;
  for (const char* part : {"state", "window"})
    EXPECT_GT(at(at(*long_lines, "moves"), part).as_number(part).value(), 0.05) << part;
  std::set<std::string> labels;
  std::set<std::size_t> lengths;
  for (const json::Value& line : json_lines(folder_ / text_at(*long_lines, "file"))) {
    const json::Value& adapter = at(line, "adapter");
    labels.insert(json::write(adapter));
    const std::size_t tokens = list_at(line, "token_ids").size();
    EXPECT_EQ(list_at(line, "token_logprobs").size(), tokens);
    if (adapter.is_null()) lengths.insert(tokens);
  }
  EXPECT_TRUE(labels.contains("null"));
  EXPECT_THAT(lengths, testing::ElementsAre(1, 15, 16, 17, 48, 63, 64, 65, 130, 300));
}

TEST_P(Golden, RefusalsHaveACodeAndWords) {
  for (const json::Value& each : list_at(golden_, "refused")) {
    EXPECT_THAT(text_at(each, "code"), testing::AnyOf("unsupported", "bad_file"));
    EXPECT_FALSE(list_at(each, "words").empty()) << text_at(each, "adapter");
    EXPECT_TRUE(fs::is_directory(folder_ / "adapters" / text_at(each, "adapter")));
  }
}

// With equal ranks, code that takes one for the other would give the same numbers.
TEST_P(Golden, RanksOfLatentAttentionDiffer) {
  const json::Value config = read_json(folder_ / "config.json");
  const json::Value* const q_rank = config.if_object()->find("q_lora_rank");
  const json::Value* const kv_rank = config.if_object()->find("kv_lora_rank");
  if (q_rank == nullptr || q_rank->is_null() || kv_rank == nullptr) return;
  EXPECT_NE(*q_rank->if_integer(), *kv_rank->if_integer());
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(models()),
                         [](const auto& model) { return model.param; });

TEST(Goldens, CoverEveryFamily) {
  std::set<std::string> families;
  for (const std::string& name : models())
    families.insert(text_at(read_json(goldens() / name / "golden.json"), "family"));
  EXPECT_THAT(families,
              testing::ElementsAre("deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite",
                                   "gpt_oss", "kimi_k25", "llama", "mixtral", "olmoe", "qwen2_moe",
                                   "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text",
                                   "qwen3_moe", "qwen3_next", "qwen3_vl_moe"));
}

// The configuration that says how weights are stored, wherever a checkpoint keeps it; null where
// there is none.
std::optional<json::Value> quantization_of(const fs::path& folder) {
  const json::Value config = read_json(folder / "config.json");
  const json::Value* const text = config.if_object()->find("text_config");
  for (const json::Value* const part : {&config, text}) {
    if (part == nullptr) continue;
    if (const json::Value* const found = part->if_object()->find("quantization_config"))
      return *found;
  }
  for (const char* file : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    if (fs::exists(folder / file)) return read_json(folder / file);
  }
  return std::nullopt;
}

TEST(Goldens, CoverTheQuantisedFormats) {
  std::set<std::string> methods;
  std::set<std::string> layouts;
  for (const std::string& name : models()) {
    const json::Value golden = read_json(goldens() / name / "golden.json");
    const json::Value* const method = golden.if_object()->find("quantised");
    const std::optional<json::Value> quantization = quantization_of(goldens() / name);
    ASSERT_EQ(method != nullptr, quantization.has_value()) << name;
    if (method == nullptr) continue;
    // Older files need not name their method.
    const json::Object& settings = *quantization->if_object();
    if (const json::Value* const own = settings.find("quant_method")) {
      EXPECT_EQ(*method->if_string(), *own->if_string()) << name;
    }
    methods.insert(*method->if_string());
    if (*method->if_string() == "compressed-tensors")
      layouts.insert(text_at(*quantization, "format"));
  }
  EXPECT_THAT(methods, testing::ElementsAre("awq", "compressed-tensors", "fp8", "gptq", "modelopt",
                                            "mxfp4"));
  EXPECT_THAT(layouts,
              testing::ElementsAre("float-quantized", "int-quantized", "mxfp4-pack-quantized",
                                   "mxfp8-quantized", "nvfp4-pack-quantized", "pack-quantized"));
}

// Lines with quantised activations: the base and two adapters, with a tolerance that sees whether
// activations were quantised at all.
TEST(Goldens, RoundedInputsMoveMoreThanTheirTolerance) {
  int count = 0;
  for (const std::string& name : models()) {
    const json::Value golden = read_json(goldens() / name / "golden.json");
    const json::Value* const rounded = golden.if_object()->find("rounded_inputs");
    if (rounded == nullptr) continue;
    ++count;
    const double tolerance = at(*rounded, "tolerance").as_number("tolerance").value();
    const json::Value& moves = at(*rounded, "moves");
    EXPECT_GT(at(moves, "exact_inputs").as_number(name).value(), 2 * tolerance) << name;
    EXPECT_LT(at(moves, "float32").as_number(name).value(), tolerance / 4) << name;
    std::set<std::string> adapters;
    for (const json::Value& line : json_lines(goldens() / name / text_at(*rounded, "file"))) {
      adapters.insert(json::write(at(line, "adapter")));
      EXPECT_EQ(list_at(line, "token_ids").size(), list_at(line, "token_logprobs").size()) << name;
    }
    EXPECT_EQ(adapters.size(), 3U) << name;
    EXPECT_TRUE(adapters.contains("null")) << name;
  }
  EXPECT_GE(count, 10);
}

TEST(Goldens, RewrittenConventionsSayTheSame) {
  int comparisons = 0;
  for (const std::string& model : models()) {
    const json::Value golden = read_json(goldens() / model / "golden.json");
    const double tolerance = at(golden, "tolerance").as_number("tolerance").value();
    for (const json::Value& each : list_at(golden, "cases")) {
      const json::Value& same_as = at(each, "same_as");
      if (same_as.is_null()) continue;
      const std::string name = cat(model, "/", text_at(each, "name"));
      const std::string& other_name = *same_as.if_string();
      const auto one = said(name);
      const auto other = said(other_name);
      ASSERT_TRUE(one) << name;
      ASSERT_TRUE(other) << name << " is the same as " << other_name << ", which is not there";
      EXPECT_EQ(one->token_ids, other->token_ids) << name << ", " << other_name;
      EXPECT_THAT(one->logprobs,
                  testing::Pointwise(testing::DoubleNear(tolerance), other->logprobs))
          << name << ", " << other_name;
      ++comparisons;
    }
  }
  EXPECT_GE(comparisons, 20);
}

TEST(Goldens, StaySmall) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(goldens())) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LE(bytes, max_bytes);
}

}  // namespace
}  // namespace motley
