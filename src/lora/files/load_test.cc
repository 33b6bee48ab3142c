#include "lora/files/load.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "lora/test_base.h"

namespace motley::lora {
namespace {

using test::AdapterFiles;
using test::FakeBase;

std::vector<float> ones(std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count), 1.0F);
}

// Most adapters here adapt one of two layers, or a part of it; missing_test covers the rule.
Result<Adapter> load(const AdapterFiles& files, std::string_view members, const BaseView& base) {
  const TemporaryFolder folder;
  files.write(folder.path(), cat(R"({"r": 2, "lora_alpha": 1)", members, "}"));
  return load_adapter(folder.path(), {.partial = true}, base);
}

void expect_error(const Result<Adapter>& loaded, ErrorCode code, std::string_view word) {
  ASSERT_FALSE(loaded.ok()) << word;
  EXPECT_EQ(loaded.error().code(), code) << loaded.error().message();
  EXPECT_NE(loaded.error().message().find(word), std::string::npos) << loaded.error().message();
}

const std::string q = "model.layers.0.self_attn.q_proj.";
const std::string experts = "model.layers.0.mlp.experts.";

void add_q(AdapterFiles& files) {
  files.add(q + "lora_A.weight", {2, 24}, ones(48));
  files.add(q + "lora_B.weight", {32, 2}, ones(64));
}

TEST(LoadAdapter, DoraGainIsMagnitudeOverNorm) {
  std::mt19937 random(1);
  FakeBase base = test::make_base({});
  const auto weight = test::random_numbers(random, 32 * 24);
  const auto a = test::random_numbers(random, 2 * 24);
  const auto b = test::random_numbers(random, 32 * 2);
  const auto magnitude = test::random_numbers(random, 32);
  base.set({0, Projection::q}, weight);
  AdapterFiles files;
  files.add(q + "lora_A.weight", {2, 24}, a);
  files.add(q + "lora_B.weight", {32, 2}, b);
  files.add(q + "lora_magnitude_vector", {32}, magnitude);
  const auto adapter = load(files, R"(, "use_dora": true)", base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  const SiteDelta& delta = adapter->sites.at(0);
  const Matrix& gain = adapter->matrices[static_cast<std::size_t>(delta.gain)];
  for (std::size_t row = 0; row < 32; ++row) {
    double sum = 0;
    for (std::size_t k = 0; k < 24; ++k) {
      double value = double{weight[row * 24 + k]};
      for (std::size_t r = 0; r < 2; ++r)
        value += 0.5 * double{b[row * 2 + r]} * double{a[r * 24 + k]};
      sum += value * value;
    }
    EXPECT_NEAR(gain.values[row], double{magnitude[row]} / std::sqrt(sum), 1e-6);
  }
  EXPECT_FALSE(exclusive_reason(*adapter).empty());
}

TEST(LoadAdapter, DoraOfARowWithoutLengthIsRefused) {
  AdapterFiles files;
  files.add(q + "lora_A.weight", {2, 24}, std::vector<float>(48));
  files.add(q + "lora_B.weight", {32, 2}, ones(64));
  files.add(q + "lora_magnitude_vector", {32}, ones(32));
  expect_error(load(files, R"(, "use_dora": true)", test::make_base({})), ErrorCode::bad_file,
               "lora_magnitude_vector");
}

TEST(LoadAdapter, ConfigurationAndTensorsMustAgree) {
  const FakeBase base = test::make_base({});
  AdapterFiles plain;
  add_q(plain);
  EXPECT_TRUE(load(plain, "", base).ok());
  expect_error(load(plain, R"(, "use_dora": true)", base), ErrorCode::bad_file,
               "lora_magnitude_vector");
  expect_error(load(plain, R"(, "lora_bias": true)", base), ErrorCode::bad_file, "lora_B.bias");

  AdapterFiles dora = plain;
  dora.add(q + "lora_magnitude_vector", {32}, ones(32));
  expect_error(load(dora, "", base), ErrorCode::bad_file, "use_dora");
  AdapterFiles biased = plain;
  biased.add(q + "lora_B.bias", {32}, ones(32));
  expect_error(load(biased, "", base), ErrorCode::bad_file, "lora_bias");
  EXPECT_TRUE(load(biased, R"(, "lora_bias": true)", base).ok());

  AdapterFiles replaced = plain;
  replaced.add(q + "base_layer.bias", {32}, ones(32));
  expect_error(load(replaced, "", base), ErrorCode::bad_file, "bias");
  const auto adapter = load(replaced, R"(, "bias": "lora_only")", base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  EXPECT_GE(adapter->sites.at(0).replaced_bias, 0);
  AdapterFiles narrow = plain;
  narrow.add(q + "bias", {31}, ones(31));
  expect_error(load(narrow, R"(, "bias": "all")", base), ErrorCode::bad_file, "q_proj.bias");
}

TEST(LoadAdapter, RefusesABiasThatLatentAttentionWouldIgnore) {
  FakeBase base = test::make_base({});
  base.add({{0, Projection::kv_b}, 20, 84});
  const std::string kv_b = "model.layers.0.self_attn.kv_b_proj.";
  AdapterFiles files;
  files.add(kv_b + "lora_A.weight", {2, 20}, ones(40));
  files.add(kv_b + "lora_B.weight", {84, 2}, ones(168));
  EXPECT_TRUE(load(files, "", base).ok());
  files.add(kv_b + "bias", {84}, ones(84));
  expect_error(load(files, R"(, "bias": "all")", base), ErrorCode::unsupported, "kv_b_proj.bias");
}

TEST(LoadAdapter, TwoSpellingsOfOneTensorAreRefused) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  add_q(files);
  files.add("model.layers.0.attn.q_proj.lora_A.weight", {2, 24}, ones(48));
  expect_error(load(files, "", base), ErrorCode::bad_file, "self_attn.q_proj.lora_A");

  AdapterFiles twice;
  twice.add(experts + "0.gate_proj.lora_A.weight", {2, 24}, ones(48));
  twice.add(experts + "0.gate_proj.lora_B.weight", {20, 2}, ones(40));
  twice.add(experts + "gate_up_projs.0.lora_A.weight", {2, 24}, ones(48));
  twice.add(experts + "gate_up_projs.0.lora_B.weight", {40, 2}, ones(80));
  expect_error(load(twice, "", base), ErrorCode::bad_file, "once more");

  AdapterFiles both;
  both.add(experts + "w1.lora_A.weight", {1, 2, 24}, ones(48));
  both.add(experts + "0.w1.lora_A.weight", {2, 24}, ones(48));
  both.add(experts + "0.w1.lora_B.weight", {20, 2}, ones(40));
  expect_error(load(both, "", base), ErrorCode::bad_file, "once more");
}

TEST(LoadAdapter, PartsOfExpertsAreIndependent) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  files.add(experts + "1.gate_proj.lora_A.weight", {2, 24}, ones(48));
  files.add(experts + "1.gate_proj.lora_B.weight", {20, 2}, ones(40));
  files.add(experts + "2.up_proj.lora_A.weight", {5, 24}, ones(120));
  files.add(experts + "2.up_proj.lora_B.weight", {20, 5}, ones(100));
  const auto adapter = load(files, R"(, "rank_pattern": {"up_proj": 5})", base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  ASSERT_EQ(adapter->sites.size(), 2U);
  EXPECT_EQ(adapter->find({0, Projection::expert_gate})->factors[1].rank, 2);
  EXPECT_FALSE(adapter->find({0, Projection::expert_gate})->factors[2].present());
  EXPECT_EQ(adapter->find({0, Projection::expert_up})->factors[2].rank, 5);
  EXPECT_EQ(adapter->find({0, Projection::expert_down}), nullptr);
  EXPECT_EQ(adapter->largest_rank, 5);
}

TEST(LoadAdapter, EmptyTensorsAreUntrainedProjections) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  add_q(files);
  files.add(experts + "w1.lora_A.weight", {1, 0, 24}, {});
  files.add(experts + "w1.lora_B.weight", {4, 20, 0}, {});
  const auto adapter = load(files, "", base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  EXPECT_EQ(adapter->sites.size(), 1U);
}

TEST(LoadAdapter, TiedTwinFollowsAReplacedBaseTensor) {
  FakeBase base = test::make_base({});
  base.tied = true;
  base.set({-1, Projection::embed}, std::vector<float>(30 * 24, 0.5F));
  base.set({-1, Projection::lm_head}, std::vector<float>(30 * 24, 0.5F));
  AdapterFiles files;
  files.add("model.embed_tokens.base_layer.weight", {30, 24}, ones(720));
  files.add("model.embed_tokens.lora_embedding_A", {2, 30}, ones(60));
  files.add("model.embed_tokens.lora_embedding_B", {24, 2}, ones(48));
  const auto adapter = load(files, "", base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  const SiteDelta* embed = adapter->find({-1, Projection::embed});
  const SiteDelta* head = adapter->find({-1, Projection::lm_head});
  ASSERT_TRUE(embed != nullptr && head != nullptr);
  EXPECT_GE(embed->replaced, 0);
  EXPECT_EQ(embed->replaced, head->replaced);
  EXPECT_FALSE(head->factors[0].present());

  // A separate module leaves the tied one unchanged.
  AdapterFiles saved;
  saved.add("model.embed_tokens.weight", {30, 24}, ones(720));
  const auto own = load(saved, R"(, "modules_to_save": ["embed_tokens"])", base);
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_EQ(own->find({-1, Projection::lm_head}), nullptr);

  // A copy of the base's tensor replaces nothing.
  AdapterFiles copy;
  copy.add("lm_head.base_layer.weight", {30, 24}, std::vector<float>(720, 0.5F));
  copy.add("lm_head.lora_A.weight", {2, 24}, ones(48));
  copy.add("lm_head.lora_B.weight", {30, 2}, ones(60));
  const auto same = load(copy, "", base);
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_EQ(same->sites.size(), 1U);
  EXPECT_EQ(same->sites[0].replaced, -1);
  EXPECT_TRUE(exclusive_reason(*same).empty());
}

TEST(LoadAdapter, ASinglePackedParameterIsFoundByNameOrShape) {
  const FakeBase base = test::make_base({});
  const std::string module = "model.layers.0.mlp.experts.";
  AdapterFiles down;
  down.add(module + "lora_A.weight", {8, 20}, ones(160));
  down.add(module + "lora_B.weight", {24, 8}, ones(192));
  EXPECT_NE(load(down, "", base).value().find({0, Projection::expert_down}), nullptr);
  expect_error(load(down, R"(, "target_parameters": ["experts.gate_up_proj"])", base),
               ErrorCode::bad_file, "gate_up_proj has 24 inputs");
  AdapterFiles up;
  up.add(module + "lora_A.weight", {8, 24}, ones(192));
  up.add(module + "lora_B.weight", {40, 8}, ones(320));
  EXPECT_NE(load(up, "", base).value().find({0, Projection::expert_gate}), nullptr);

  AdapterFiles uneven;
  uneven.add(module + "lora_A.weight", {7, 24}, ones(168));
  uneven.add(module + "lora_B.weight", {40, 7}, ones(280));
  expect_error(load(uneven, "", base), ErrorCode::bad_file, "do not divide");
}

TEST(LoadAdapter, NamesTheNumberThatIsNotFinite) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  auto numbers = ones(48);
  numbers[7] = std::numeric_limits<float>::infinity();
  files.add(q + "lora_A.weight", {2, 24}, numbers);
  files.add(q + "lora_B.weight", {32, 2}, ones(64));
  expect_error(load(files, "", base), ErrorCode::bad_file, "element 7 is infinite");
}

TEST(LoadAdapter, VersionFollowsContentAndScale) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  add_q(files);
  const ContentVersion version = load(files, "", base).value().version;
  EXPECT_EQ(load(files, R"(, "peft_version": "0.21.0")", base).value().version, version);
  EXPECT_NE(load(files, R"(, "use_rslora": true)", base).value().version, version);
  AdapterFiles other;
  auto numbers = ones(48);
  numbers[47] = 1.0000001F;
  other.add(q + "lora_A.weight", {2, 24}, numbers);
  other.add(q + "lora_B.weight", {32, 2}, ones(64));
  EXPECT_NE(load(other, "", base).value().version, version);
  EXPECT_EQ(to_string(version).size(), 32U);
}

TEST(LoadOptions, ParseTheirOwnWords) {
  EXPECT_EQ(parse_b_columns("rank-major").value(), BColumns::rank_major);
  EXPECT_EQ(parse_b_columns("expert-major").value(), BColumns::expert_major);
  EXPECT_EQ(parse_orientation("standard").value(), Orientation::standard);
  EXPECT_EQ(parse_orientation("swapped").value(), Orientation::swapped);
  EXPECT_EQ(parse_orientation("odd").error().code(), ErrorCode::invalid_argument);
  EXPECT_FALSE(parse_b_columns("").ok());
}

// A file with that header, and a hole in place of its tensors.
void write_hole(const std::filesystem::path& folder, const std::string& name,
                const std::string& shape, std::uintmax_t bytes) {
  const std::string header =
      cat("{\"base_model.model.", name, "\":{\"dtype\":\"F32\",\"shape\":", shape,
          ",\"data_offsets\":[0,", bytes, "]}}");
  std::string beginning;
  for (int i = 0; i < 8; ++i) beginning += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  const std::filesystem::path file = folder / "adapter_model.safetensors";
  std::ofstream(file, std::ios::binary) << beginning << header;
  std::filesystem::resize_file(file, beginning.size() + header.size() + bytes);
}

// A tebibyte: a copy of the file would fail for lack of memory.
TEST(LoadAdapter, AFileIsRefusedByItsHeaderBeforeItIsCopied) {
  const FakeBase base = test::make_base({});
  const TemporaryFolder folder;
  folder.file("adapter_config.json", R"({"r": 2, "lora_alpha": 1})");
  constexpr std::uintmax_t bytes = std::uintmax_t{1} << 40;
  write_hole(folder.path(), "what.is.this", "[274877906944]", bytes);
  expect_error(load_adapter(folder.path(), {}, base), ErrorCode::bad_file, "what.is.this");
  write_hole(folder.path(), q + "lora_A.weight", "[2,137438953472]", bytes);
  expect_error(load_adapter(folder.path(), {}, base), ErrorCode::bad_file,
               "is larger than any part of an adapter of this base");
  write_hole(folder.path(), "model.layers.7.self_attn.q_proj.lora_A.weight", "[2,137438953472]",
             bytes);
  expect_error(load_adapter(folder.path(), {}, base), ErrorCode::bad_file, "layers.7 is beyond");
}

// A link that is exchanged between the check of a client's path and the load tells nothing of the
// file that it leads to.
TEST(LoadAdapter, FilesOutsideTheFolderOfClientsAreNotRead) {
  const FakeBase base = test::make_base({});
  AdapterFiles files;
  add_q(files);
  const TemporaryFolder folder;
  const TemporaryFolder outside;
  const std::filesystem::path root = std::filesystem::canonical(folder.path());
  std::filesystem::create_directory(root / "real");
  files.write(root / "real", R"({"r": 2, "lora_alpha": 1})");
  LoadOptions options{.partial = true};
  options.beneath = root;
  EXPECT_TRUE(load_adapter(root / "real", options, base).ok());
  std::filesystem::create_directory_symlink("real", root / "inside");
  EXPECT_TRUE(load_adapter(root / "inside", options, base).ok());

  outside.file("adapter_config.json", R"({"r": 2, "lora_alpha": 1})");
  outside.file("adapter_model.safetensors", "a secret of another file");
  std::filesystem::create_directory_symlink(outside.path(), root / "swapped");
  const auto swapped = load_adapter(root / "swapped", options, base);
  expect_error(swapped, ErrorCode::bad_file, "lies outside");
  std::filesystem::remove(root / "real/adapter_model.safetensors");
  std::filesystem::create_symlink(outside.path() / "adapter_model.safetensors",
                                  root / "real/adapter_model.safetensors");
  const auto link = load_adapter(root / "real", options, base);
  expect_error(link, ErrorCode::bad_file, "lies outside");
  EXPECT_EQ(link.error().message().find("header"), std::string::npos) << link.error().message();
}

TEST(CheckFiles, RefusesWhatNoBaseCouldTake) {
  const TemporaryFolder folder;
  const auto refused = [&](std::string_view word) {
    const Result<void> checked = check_files(folder.path());
    ASSERT_FALSE(checked.ok()) << word;
    EXPECT_NE(checked.error().message().find(word), std::string::npos) << checked.error().message();
  };
  refused("no adapter_config.json");
  folder.file("adapter_config.json", R"({"r": 2, "lora_alpha": 1})");
  refused("no adapter_model.safetensors");
  AdapterFiles files;
  add_q(files);
  files.write(folder.path(), R"({"r": 2, "lora_alpha": 1})");
  EXPECT_TRUE(check_files(folder.path()).ok());
}

}  // namespace
}  // namespace motley::lora
