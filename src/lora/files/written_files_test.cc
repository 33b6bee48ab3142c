// Files as PEFT (0.17 to 0.21) and mergekit write them: tables twice, copies of the base's tensors,
// training tensors, and refused files with the advice.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/temporary_folder.h"
#include "lora/files/load.h"
#include "lora/test_base.h"

namespace motley::lora {
namespace {

using test::AdapterFiles;
using test::FakeBase;

std::vector<float> all(std::int64_t count, float value) {
  return std::vector<float>(static_cast<std::size_t>(count), value);
}

constexpr test::ModelShape shape = {.layers = 1};
const std::string q = "model.layers.0.self_attn.q_proj.";

void add_q(AdapterFiles& files) {
  files.add(q + "lora_A.weight", {2, 24}, all(48, 1));
  files.add(q + "lora_B.weight", {32, 2}, all(64, 1));
}

struct Loaded {
  Result<Adapter> adapter;
  std::string log;
};

Loaded load(const AdapterFiles& files, std::string_view members, const BaseView& base) {
  const TemporaryFolder folder;
  files.write(folder.path(), cat(R"({"r": 2, "lora_alpha": 1)", members, "}"));
  std::string lines;
  log::configure({.sink = [&](std::string_view line) { lines += line; }});
  auto adapter = load_adapter(folder.path(), {}, base);
  log::configure({});
  return {std::move(adapter), std::move(lines)};
}

void expect_refused(const Loaded& loaded, ErrorCode code, std::string_view what,
                    std::string_view fix) {
  ASSERT_FALSE(loaded.adapter.ok()) << what;
  const Error& error = loaded.adapter.error();
  EXPECT_EQ(error.code(), code) << error.message();
  EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
  EXPECT_NE(error.fix().find(fix), std::string::npos) << error.message();
}

constexpr std::string_view saves_tables =
    R"(, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"])";

// PEFT's save_pretrained(save_embedding_layers=True).
AdapterFiles tables(std::int64_t rows, float twin) {
  AdapterFiles files;
  add_q(files);
  for (const std::string module : {"model.embed_tokens.", "lm_head."}) {
    files.add(module + "modules_to_save.weight", {rows, 24}, all(rows * 24, twin));
    files.add(module + "original_module.weight", {30, 24}, all(720, 0.5F));
    files.add(module + "weight", {rows, 24}, all(rows * 24, 2));
  }
  return files;
}

TEST(WrittenFiles, SavedTablesComeWithTheirTwinsAndTheBasesOwn) {
  const FakeBase base = test::make_base(shape);
  const Loaded twins = load(tables(30, 2), saves_tables, base);
  ASSERT_TRUE(twins.adapter.ok()) << twins.adapter.error().message();
  for (const Projection table : {Projection::embed, Projection::lm_head}) {
    const SiteDelta* delta = twins.adapter->find({-1, table});
    ASSERT_NE(delta, nullptr);
    EXPECT_EQ(twins.adapter->matrices[static_cast<std::size_t>(delta->replaced)].numbers(),
              all(720, 2));
  }
  AdapterFiles alone;
  add_q(alone);
  alone.add("model.embed_tokens.weight", {30, 24}, all(720, 2));
  alone.add("lm_head.weight", {30, 24}, all(720, 2));
  EXPECT_EQ(load(alone, saves_tables, base).adapter.value().version, twins.adapter->version);

  expect_refused(load(tables(30, 3), saves_tables, base), ErrorCode::bad_file,
                 "differs from tensor 'base_model.model.lm_head.modules_to_save.weight'",
                 "save it again");
  expect_refused(load(tables(34, 2), saves_tables, base), ErrorCode::unsupported,
                 "has 34 rows, and the base has 30: another vocabulary is not supported", "");
}

FakeBase base_with_vectors() {
  FakeBase base = test::make_base(shape);
  base.set_file_tensor("model.norm.weight", {24}, all(24, 1.5F));
  base.set_file_tensor("model.layers.0.input_layernorm.weight", {24}, all(24, 0.75F));
  base.set_file_tensor("model.layers.0.self_attn.q_proj.bias", {32}, all(32, 0.25F));
  base.set_file_tensor("model.layers.0.mlp.gate.weight", {4, 24}, all(96, 0.125F));
  base.set_file_tensor("model.layers.0.mlp.experts.down_proj_bias", {4, 24}, all(96, 0.5F));
  return base;
}

// mergekit-extract-lora writes every tensor for which it has no factors; PEFT up to 0.20 writes the
// biases of gpt-oss' experts if bias is "all".
TEST(WrittenFiles, CopiesOfTheBaseReplaceNothing) {
  const FakeBase base = base_with_vectors();
  AdapterFiles files;
  add_q(files);
  files.add("model.norm.weight", {24}, all(24, 1.5F));
  files.add("model.layers.0.input_layernorm.weight", {24}, all(24, 0.75F));
  files.add("model.layers.0.self_attn.q_proj.base_layer.bias", {32}, all(32, 0.25F));
  files.add("model.layers.0.mlp.gate.weight", {4, 24}, all(96, 0.125F));
  files.add("model.layers.0.mlp.experts.down_proj_bias", {4, 24}, all(96, 0.5F));
  const Loaded loaded = load(files, R"(, "target_modules": ["q_proj"])", base);
  ASSERT_TRUE(loaded.adapter.ok()) << loaded.adapter.error().message();
  EXPECT_EQ(loaded.adapter->sites.size(), 1U);
  EXPECT_TRUE(exclusive_reason(*loaded.adapter).empty());
  EXPECT_NE(loaded.log.find("adapter.copies_of_base"), std::string::npos) << loaded.log;
  EXPECT_NE(loaded.log.find("tensors=5"), std::string::npos) << loaded.log;
  AdapterFiles alone;
  add_q(alone);
  EXPECT_EQ(load(alone, "", base).adapter.value().version, loaded.adapter->version);
}

TEST(WrittenFiles, CopiesAreFoundUnderTheBlocksOtherName) {
  FakeBase base = test::make_base(shape);
  base.names.moe = "block_sparse_moe";
  base.set_file_tensor("model.layers.0.block_sparse_moe.gate.weight", {4, 24}, all(96, 0.125F));
  for (const std::string block : {"mlp", "block_sparse_moe"}) {
    AdapterFiles files;
    add_q(files);
    files.add(cat("model.layers.0.", block, ".gate.weight"), {4, 24}, all(96, 0.125F));
    EXPECT_TRUE(load(files, "", base).adapter.ok()) << block;
  }
}

TEST(WrittenFiles, WholeTensorsThatDifferAreRefusedByTheirModule) {
  const FakeBase base = base_with_vectors();
  const auto refuse = [&](const std::string& name, const std::vector<std::int64_t>& dims,
                          std::int64_t count, std::string_view members, std::string_view module) {
    AdapterFiles files;
    add_q(files);
    files.add(name, dims, all(count, 9));
    expect_refused(
        load(files, members, base), ErrorCode::unsupported,
        cat("the module '", module, "' is replaced: only the embedding and the head can be"),
        "give it factors");
  };
  refuse("model.norm.weight", {24}, 24, "", "model.norm");
  refuse("model.layers.0.mlp.gate.weight", {4, 24}, 96, "", "model.layers.0.mlp.gate");
  // modules_to_save=["router"] on gpt-oss: the bias comes first.
  refuse("model.layers.0.mlp.router.bias", {4}, 4, R"(, "modules_to_save": ["router"])",
         "model.layers.0.mlp.router");
  refuse("model.layers.0.mlp.router.weight", {4, 24}, 96, R"(, "modules_to_save": ["router"])",
         "model.layers.0.mlp.router");
}

TEST(WrittenFiles, TensorsOfTrainingAreIgnored) {
  const FakeBase base = test::make_base(shape);
  AdapterFiles plain;
  add_q(plain);
  const ContentVersion version = load(plain, "", base).adapter.value().version;
  AdapterFiles velora = plain;
  velora.add(q + "lora_velora_embed", {6}, all(6, 1));
  AdapterFiles monteclora = plain;
  monteclora.add(q + "lora_monteclora_sampler.std_prior", {2}, all(2, 1));
  monteclora.add(q + "lora_monteclora_sampler.expert_weights", {4}, all(4, 0.25F));
  monteclora.add(q + "lora_monteclora_sampler.gaussian_var_prior", {2, 2}, all(4, 1));
  for (const auto& [files, word] :
       {std::pair(&velora, "VeLoRA"), std::pair(&monteclora, "MonteCLoRA")}) {
    const Loaded loaded = load(*files, "", base);
    ASSERT_TRUE(loaded.adapter.ok()) << loaded.adapter.error().message();
    EXPECT_EQ(loaded.adapter->version, version);
    EXPECT_NE(loaded.log.find("adapter.tensors_ignored"), std::string::npos) << loaded.log;
    EXPECT_NE(loaded.log.find(word), std::string::npos) << loaded.log;
  }
  AdapterFiles other = plain;
  other.add(q + "lora_diag", {2}, all(2, 1));
  expect_refused(load(other, "", base), ErrorCode::bad_file, "lora_diag", "");
}

// PEFT 0.18 ties no module that is not targeted.
TEST(WrittenFiles, ATiedEmbeddingAloneNamesTheHeadToTarget) {
  FakeBase base = test::make_base(shape);
  base.tied = true;
  AdapterFiles files;
  files.add("model.embed_tokens.lora_embedding_A", {2, 30}, all(60, 1));
  files.add("model.embed_tokens.lora_embedding_B", {24, 2}, all(48, 1));
  expect_refused(
      load(files, R"(, "target_modules": ["embed_tokens"], "ensure_weight_tying": true)", base),
      ErrorCode::unsupported, "ensure_weight_tying with factors of the embedding alone",
      "target lm_head too");
}

TEST(WrittenFiles, LostBiasesAreWarnedOf) {
  const FakeBase biased = base_with_vectors();
  const std::string members = R"(, "target_modules": ["q_proj"], "bias": "lora_only")";
  AdapterFiles files;
  add_q(files);
  const Loaded lost = load(files, members, biased);
  EXPECT_TRUE(lost.adapter.ok());
  EXPECT_NE(lost.log.find("warning adapter.biases_lost"), std::string::npos) << lost.log;
  // Where nothing is lost, nothing is reported.
  EXPECT_EQ(load(files, members, test::make_base(shape)).log.find("biases_lost"),
            std::string::npos);
  EXPECT_EQ(load(files, "", biased).log.find("biases_lost"), std::string::npos);
  files.add(q + "base_layer.bias", {32}, all(32, 0.5F));
  const Loaded kept = load(files, members, biased);
  EXPECT_GE(kept.adapter.value().sites.at(0).replaced_bias, 0);
  EXPECT_EQ(kept.log.find("biases_lost"), std::string::npos) << kept.log;
}

}  // namespace
}  // namespace motley::lora
