#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "cli/cli.h"
#include "cli/run_motley.h"
#include "dist/thread_ranks.h"
#include "model/model.h"
#include "tensor/device/cpu_device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Inspect : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  // Two layers with one matrix each, and a norm.
  void put_weights(std::string_view stem) const {
    const std::array<float, 6> numbers = {1, 2, 3, 4, 5, 6};
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    const std::vector<tensor::NamedTensor> tensors = {{"layers.0.w", {bytes, DType::f32, {2, 3}}},
                                                      {"layers.1.w", {bytes, DType::f32, {2, 3}}},
                                                      {"norm", {bytes, DType::f32, {6}}}};
    ASSERT_TRUE(tensor::write_checkpoint(folder_, stem, tensors, 1000).ok());
  }

  TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_F(Inspect, GathersTensorsThatDifferInLayerOnly) {
  put("config.json", R"({"model_type":"qwen3_moe"})");
  put_weights("model");
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.errors,
            cat("motley: would be refused (", folder_.string(), "): the report says why\n"));
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("model_type: qwen3_moe"), HasSubstr("3 tensors, 72 B"),
                    HasSubstr("would be refused: no hidden_size"),
                    HasSubstr("layers.*.w F32 [2, 3] x 2\n"), HasSubstr("norm F32 [6]\n")));
}

TEST_F(Inspect, KnowsAnAdapter) {
  put("adapter_config.json", R"({"peft_type":"LORA","r":8,"lora_alpha":16.5})");
  put_weights("adapter_model");
  const Outcome outcome = motley({"inspect", folder_.string(), "--tensors"});
  // Its names are no adapter's.
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, AllOf(StartsWith("adapter "), HasSubstr("rank: 8\n"),
                                    HasSubstr("alpha: 16.5\n"), HasSubstr("layers.1.w F32")));
}

TEST_F(Inspect, PrintsJson) {
  put_weights("model");
  const Outcome outcome = motley({"inspect", "--json", (folder_ / "model.safetensors").string()});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto report = json::parse(outcome.output, "report");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(*report->if_object()->find("kind")->if_string(), "file");
  EXPECT_EQ(report->if_object()->find("tensors")->if_array()->size(), 3U);
}

TEST_F(Inspect, PatternsKeepEmptyParts) {
  put("config.json", "{}");
  const float number = 1;
  const tensor::ConstTensor tensor(reinterpret_cast<const std::byte*>(&number), DType::f32, {1});
  const std::vector<tensor::NamedTensor> tensors = {
      {"a..b", tensor}, {"a.b", tensor}, {".7", tensor}, {"c.", tensor}};
  ASSERT_TRUE(tensor::write_checkpoint(folder_, "model", tensors, 1000).ok());
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("  a..b F32 [1]\n"), HasSubstr("  a.b F32 [1]\n"),
                                    HasSubstr("  .* F32 [1]\n"), HasSubstr("  c. F32 [1]\n")));
}

TEST_F(Inspect, RefusesWhatIsNeitherFileNorFolder) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "pipe", fs::path("/dev/null")}) {
    const Outcome outcome = motley({"inspect", path.string()});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.errors, cat("motley: neither a file nor a folder (", path.string(),
                                  "): name a model, an adapter or a safetensors file\n"));
  }
}

TEST_F(Inspect, RefusesAFolderWithoutItsConfig) {
  put_weights("model");
  Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("no config.json"));
  put_weights("adapter_model");
  put("config.json", "{}");
  outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("no adapter_config.json"));
}

TEST_F(Inspect, RefusesAConfigThatIsNoObject) {
  put_weights("model");
  for (const char* text : {"[]", "null", "\"text\"", "5"}) {
    put("config.json", text);
    const Outcome outcome = motley({"inspect", folder_.string()});
    EXPECT_EQ(outcome.status, 1) << text;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("expected an object"), HasSubstr("config.json")));
  }
}

// The folder is wrong, not the call.
TEST_F(Inspect, ADamagedFolderIsNoWrongCall) {
  put_weights("model");
  ASSERT_EQ(::mkfifo((folder_ / "config.json").c_str(), 0600), 0);
  Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("this is not a regular file"),
                                    HasSubstr("config.json"), HasSubstr("the folder is damaged")));
  fs::remove(folder_ / "config.json");
  fs::create_directory(folder_ / "config.json");
  outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("this is a folder"));
}

TEST_F(Inspect, NamesWhatIsWrong) {
  put("config.json", "{");
  put_weights("model");
  EXPECT_THAT(motley({"inspect", folder_.string()}).errors, HasSubstr("config.json"));
  fs::remove(folder_ / "config.json");
  put("model.safetensors", "not a tensor file");
  EXPECT_THAT(motley({"inspect", folder_.string()}).errors, HasSubstr("model.safetensors"));
}

TEST_F(Inspect, RefusesAPickledAdapter) {
  put("adapter_config.json", "{}");
  put("adapter_model.bin", "PK");
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("pickle, 'adapter_model.bin'"));
}

const std::string goldens = MOTLEY_GOLDENS;

std::string golden_adapter(std::string_view name) {
  return cat(goldens, "/qwen3_moe/adapters/", name);
}

// The text about one of the adapters of qwen3_moe, checked against its base.
std::string on_its_base(std::string_view adapter) {
  const Outcome outcome =
      motley({"inspect", golden_adapter(adapter), "--model", goldens + "/qwen3_moe"});
  const bool refused = outcome.output.find("would be refused") != std::string::npos;
  EXPECT_EQ(outcome.status, refused ? 1 : 0) << adapter << ": " << outcome.errors;
  return outcome.output;
}

TEST(InspectModel, TellsSizesAndFormats) {
  const Outcome outcome = motley({"inspect", goldens + "/qwen3_moe"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("family: qwen3_moe\n"), HasSubstr("layers: 3\n"),
                    HasSubstr("hidden: 72\n"), HasSubstr("vocabulary: 131\n"),
                    HasSubstr("attention: grouped-query, 4 heads on 2, head dimension 20\n"),
                    HasSubstr("experts: 5 x top 3, intermediate 48, in 2 of 3 layers\n"),
                    HasSubstr("shared experts: none\n"), HasSubstr("experts f32; "),
                    HasSubstr("parameters: 188688\n"), HasSubstr("weight bytes: 737.1 KiB\n")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("refused")));
}

// A tiny model has a snapshot for each of the pages that its longest sequences can have.
TEST(InspectModel, TellsWhereSnapshotsOfStatesFit) {
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_5_moe"}).output,
              ContainsRegex("fits: 256 sequences, [0-9]+ snapshots .[0-9]+ more on the host. and "
                            "[0-9]+ cached tokens on one H100; "));
  EXPECT_THAT(
      motley({"inspect", goldens + "/qwen3_5_moe", "--json"}).output,
      ContainsRegex(R"("H200":."sequences":256,"snapshots":[0-9]+,"host_snapshots":[0-9]+,)"));
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe"}).output,
              ContainsRegex("fits: 256 sequences and [0-9]+ cached tokens on one H100; "));
}

TEST(InspectModel, TellsHowMuchPushedAdaptersMayTake) {
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe"}).output,
              ContainsRegex("push memory bytes: [0-9.]+ [KMGT]iB"));
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe", "--json"}).output,
              ContainsRegex(R"("push_memory_bytes":[0-9]+)"));
}

TEST(InspectModel, TellsLatentAttentionAndSharedExperts) {
  const Outcome outcome = motley({"inspect", goldens + "/deepseek_v3"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("attention: latent, 3 heads, query rank 28, "
                              "key and value rank 20 + 8 rotated\n"),
                    HasSubstr("experts: 12 x top 3, intermediate 48, in 2 of 3 layers\n"),
                    HasSubstr("shared experts: intermediate 96\n"),
                    HasSubstr("attention bf16; dense layers bf16; ")));
}

TEST(InspectModel, ShowsWindowsAndSinks) {
  const Outcome outcome = motley({"inspect", goldens + "/gpt_oss"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("windows in 1 layer, with sinks\n"));
}

TEST(InspectModel, NamesTheBackendOfEveryLayerWithExperts) {
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe"}).output,
              ContainsRegex("experts backend: [a-z_]+ in layers 0, 2"));
  EXPECT_THAT(motley({"inspect", goldens + "/deepseek_v3"}).output,
              ContainsRegex("experts backend: [a-z_]+ in layers 1-2"));
  EXPECT_THAT(motley({"inspect", goldens + "/llama"}).output,
              AllOf(HasSubstr("experts: none\n"), Not(HasSubstr("experts backend"))));
}

// The container is valid, but its config requires other shapes than the tensors have.
TEST_F(Inspect, SaysWhyASoundModelWouldBeRefused) {
  const fs::path golden = goldens + "/qwen3_moe";
  fs::copy_file(golden / "model.safetensors", folder_ / "model.safetensors");
  std::ifstream file(golden / "config.json");
  std::string config{std::istreambuf_iterator<char>(file), {}};
  const std::string hidden = "\"hidden_size\": 72";
  ASSERT_NE(config.find(hidden), std::string::npos);
  config.replace(config.find(hidden), hidden.size(), "\"hidden_size\": 76");
  put("config.json", config);
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("hidden: 76\n"), HasSubstr("  would be refused: "),
                    HasSubstr("model.embed_tokens.weight"), Not(HasSubstr("parameters"))));
}

TEST(InspectModel, TellsWhatEachRankWouldHold) {
  const Outcome outcome = motley({"inspect", goldens + "/deepseek_v3", "--tp", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("rank 0: heads 0-1 of 3, "), HasSubstr("rank 1: heads 2 of 3, "),
                    Not(HasSubstr("rank 2: ")), Not(HasSubstr("refused"))));
}

// The rank_N of a report.
json::Value ranks_of(const std::vector<std::string>& options) {
  std::vector<std::string> call{"inspect", goldens + "/deepseek_v3", "--json"};
  call.insert(call.end(), options.begin(), options.end());
  const json::Value report = json::parse(motley(call).output, "report").value();
  return *report.if_object()->find("facts");
}
std::int64_t bytes_of(const json::Value& facts, int rank) {
  const json::Value* const fields = facts.if_object()->find(cat("rank_", rank));
  return *fields->if_object()->find("weight_bytes")->if_integer();
}

// A model as that rank of four loads it.
std::unique_ptr<model::Model> on_rank(int rank, int groups, tensor::Device& device) {
  dist::ThreadRanks group({.ranks = 4});
  return model::Model::load(goldens + "/deepseek_v3", device,
                            {.ranks = &group.rank(rank), .expert_groups = groups})
      .value();
}
std::int64_t expert_bytes(const model::Model& model) {
  std::uint64_t bytes = 0;
  model::for_each_moe(model.layers(), [&](const model::MoeBlock& block, std::size_t) {
    for (const auto* const all : {&block.experts->gate, &block.experts->up, &block.experts->down})
      for (const quant::Weight& weight : *all) bytes += weight.stored_bytes();
  });
  return static_cast<std::int64_t>(bytes);
}

TEST(InspectModel, TellsWhatRanksHoldOfDealtExperts) {
  const json::Value cut = ranks_of({"--tp", "4"});
  const json::Value dealt = ranks_of({"--tp", "4", "--ep", "2"});
  const json::Value whole = ranks_of({"--ep", "4"});
  tensor::CpuDevice device({.threads = 1});
  for (int rank = 0; rank < 4; ++rank) {
    const auto one_group = on_rank(rank, 1, device);
    const auto two_groups = on_rank(rank, 2, device);
    const auto four_groups = on_rank(rank, 4, device);
    const json::Value* const fields = dealt.if_object()->find(cat("rank_", rank));
    EXPECT_EQ(*fields->if_object()->find("holds")->if_string(),
              model::describe(two_groups->shard(), two_groups->config()));
    // Ranks hold the same of all but experts.
    EXPECT_EQ(bytes_of(dealt, rank) - bytes_of(cut, rank),
              expert_bytes(*two_groups) - expert_bytes(*one_group));
    EXPECT_EQ(bytes_of(whole, rank) - bytes_of(cut, rank),
              expert_bytes(*four_groups) - expert_bytes(*one_group));
  }
  EXPECT_THAT(motley({"inspect", goldens + "/deepseek_v3", "--ep", "4"}).output,
              AllOf(HasSubstr("rank 3: no heads, "), HasSubstr(", experts 9-11 of 12, "),
                    Not(HasSubstr(", expert columns "))));
}

TEST(InspectModel, SaysWhyExpertsCantBeDealt) {
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe", "--tp", "6", "--ep", "6"}).output,
              HasSubstr("would be refused: 6 groups of ranks are more than the model's 5 experts "
                        "(--ep): use at most 5\n"));
  EXPECT_THAT(motley({"inspect", goldens + "/llama", "--ep", "2"}).output,
              HasSubstr("would be refused: the model has no experts to deal over 2 groups of "
                        "ranks (--ep): leave it out; --tp 2 cuts"));
}

TEST(InspectModel, CutsRowsInActivationOrderAndBesideBlocks) {
  for (const char* const name :
       {"/mixtral_gptq_desc_act", "/mixtral_w4a16_actorder", "/glm4_moe_mxfp4"})
    EXPECT_THAT(motley({"inspect", goldens + name, "--tp", "3"}).output,
                AllOf(HasSubstr("rank 2: heads "), Not(HasSubstr("refused"))));
}

TEST(InspectModel, CutsRowsOfQuantisedActivations) {
  for (const char* const name : {"/qwen3_moe_w8a8", "/deepseek_v3_fp8"})
    EXPECT_THAT(motley({"inspect", goldens + name, "--tp", "2"}).output,
                AllOf(HasSubstr("rank 1: heads "), Not(HasSubstr("refused"))));
}

// Ranks exchange what all experts' inputs need: a rank looks at the others', too.
TEST_F(Inspect, ARankRefusesExpertsOfOthersThatAreNotQuantisedAsItsOwn) {
  fs::copy(goldens + "/qwen3_moe_w8a8", folder_, fs::copy_options::recursive);
  std::string config = read_text((folder_ / "config.json").string(), 1'000'000).value();
  const std::string_view before = R"("ignore": [)";
  const std::size_t at = config.find(before);
  ASSERT_NE(at, std::string::npos);
  config.insert(at + before.size(), R"("re:.*mlp.experts.4\\..*",)");
  put("config.json", config);
  tensor::CpuDevice device({.threads = 1});
  dist::ThreadRanks group({.ranks = 2});
  const auto loaded =
      model::Model::load(folder_.string(), device, {.ranks = &group.rank(0), .expert_groups = 2});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message(),
              HasSubstr("its inputs are not rounded as those of another rank's experts "
                        "(model.layers.1.mlp.experts.4.down_proj): quantise the experts of a layer "
                        "alike"));
}

TEST(InspectAdapter, IsNotCutOverRanks) {
  const Outcome outcome = motley({"inspect", golden_adapter("experts"), "--tp", "2"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("only a model is cut over ranks (--tp)"));
  EXPECT_THAT(motley({"inspect", golden_adapter("experts"), "--ep", "2"}).errors,
              HasSubstr("only a model is cut over ranks (--ep)"));
}

TEST(InspectModel, TellsOfScalesOfKeysAndValues) {
  const Outcome outcome = motley({"inspect", goldens + "/qwen3_moe_modelopt_fp8"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, ContainsRegex("kv scales: [0-9]+ layers, for --kv-dtype fp8\n"));
  EXPECT_THAT(motley({"inspect", goldens + "/qwen3_moe"}).output, Not(HasSubstr("kv scales")));
}

// 3 layers with 2 KV heads of 20 numbers; 3 layers of 20 latent numbers and 8 in bf16. An exponent
// stands beside each head's codes.
TEST(InspectModel, CountsKeysAndValuesInFp8) {
  const auto fp8 = [](const std::string& model) {
    return motley({"inspect", goldens + "/" + model, "--kv-dtype", "fp8"}).output;
  };
  EXPECT_THAT(fp8("qwen3_moe"), HasSubstr("cache bytes a token: 252"));
  EXPECT_THAT(fp8("deepseek_v3"), HasSubstr("cache bytes a token: 111"));
}

TEST(InspectModel, JsonHasTheSameFacts) {
  const Outcome outcome = motley({"inspect", "--json", goldens + "/qwen3_moe"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto report = json::parse(outcome.output, "report");
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->if_object()->find("would_be_refused")->is_null());
  const json::Object& facts = *report->if_object()->find("facts")->if_object();
  EXPECT_EQ(*facts.find("parameters")->if_integer(), 188688);
  EXPECT_EQ(*facts.find("experts")->if_object()->find("top_k")->if_integer(), 3);
  EXPECT_EQ(*facts.find("weights")->if_object()->find("experts")->if_string(), "f32");
  const json::Array& backends = *facts.find("experts_backend")->if_array();
  ASSERT_EQ(backends.size(), 1U);
  EXPECT_EQ(backends[0].if_object()->find("layers")->if_array()->size(), 2U);
}

TEST_F(Inspect, TellsTheFormsOfAnswers) {
  fs::copy(MOTLEY_DEMO_MODEL, folder_);
  EXPECT_THAT(motley({"inspect", folder_.string()}).output,
              AllOf(HasSubstr("tool form: none: its template shows no tools\n"),
                    HasSubstr("reasoning form: none\n")));
  const std::string messages = "{% for m in messages %}{{ m.content }}";
  put("chat_template.jinja", cat("{{ tools | tojson }}", messages, "{% endfor %}"));
  EXPECT_THAT(motley({"inspect", folder_.string()}).output,
              HasSubstr("tool form: not known: calls of tools stay text"));
  put("chat_template.jinja",
      cat(messages,
          "{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
          "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
          "{% if add_generation_prompt %}[THINK]{% endif %}"));
  EXPECT_THAT(motley({"inspect", folder_.string()}).output,
              AllOf(HasSubstr("tool form: mistral_v11\n"), HasSubstr("reasoning form: mistral\n")));
}

TEST(InspectAdapter, TellsItsConventionWithoutABase) {
  struct Case {
    std::string_view adapter;
    std::string_view convention;
  };
  for (const auto& [adapter, convention] : {Case{"experts", "packed"},
                                            {"experts_per_expert", "per-expert"},
                                            {"shared_outer_tinker", "shared-outer"},
                                            {"dora", "none"}}) {
    const Outcome outcome = motley({"inspect", golden_adapter(adapter)});
    EXPECT_EQ(outcome.status, 0) << adapter << ": " << outcome.errors;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("rank: 3\n"), HasSubstr("alpha: 2\n"),
                                      HasSubstr(cat("convention: ", convention, "\n")),
                                      HasSubstr("base: not asked; --model")))
        << adapter;
  }
}

TEST(InspectAdapter, TellsWhatItDoesToItsBase) {
  EXPECT_THAT(on_its_base("experts"),
              AllOf(HasSubstr("convention: packed\n"), HasSubstr("orientation: standard\n"),
                    HasSubstr("b columns: rank-major\n"), HasSubstr("ranks: 3\n"),
                    HasSubstr("adapts: experts gate up down in 2 layers\n"),
                    ContainsRegex("content version: [0-9a-f]+\n"), HasSubstr("pages: 1\n"),
                    HasSubstr("device bytes: 256.0 KiB\n")));
  EXPECT_THAT(on_its_base("experts_swapped"), HasSubstr("orientation: swapped\n"));
  EXPECT_THAT(on_its_base("shared_outer_tinker"),
              AllOf(HasSubstr("convention: shared-outer\n"), Not(HasSubstr("orientation"))));
  EXPECT_THAT(on_its_base("ragged_per_expert"),
              AllOf(HasSubstr("convention: per-expert\n"), HasSubstr("ranks: 1 to 6\n")));
  EXPECT_THAT(on_its_base("dora"),
              AllOf(HasSubstr("dora: yes\n"), HasSubstr("adapts: attention q k v o in 3 layers\n"),
                    HasSubstr("alone because: it scales the base's outputs (DoRA)\n")));
  EXPECT_THAT(on_its_base("embeddings_replaced"), HasSubstr("replaces: embed_tokens.weight\n"));
}

TEST(InspectAdapter, SaysWhyItWouldBeRefused) {
  EXPECT_THAT(on_its_base("refused_nan"),
              AllOf(HasSubstr("rank: 2\n"), HasSubstr("  would be refused: element 3 is NaN")));
  EXPECT_THAT(
      motley({"inspect", golden_adapter("refused_init_pissa")}).output,
      AllOf(HasSubstr("  r: 2\n"), HasSubstr("  would be refused: factors made by 'pissa'")));
}

TEST(InspectAdapter, JsonHasTheSameFacts) {
  const Outcome outcome = motley(
      {"inspect", "--json", golden_adapter("all_linear"), "--model", goldens + "/qwen3_moe"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto report = json::parse(outcome.output, "report");
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->if_object()->find("would_be_refused")->is_null());
  const json::Object& facts = *report->if_object()->find("facts")->if_object();
  EXPECT_EQ(*facts.find("ranks")->if_object()->find("largest")->if_integer(), 6);
  EXPECT_EQ(facts.find("adapts")->if_array()->size(), 3U);
  EXPECT_EQ(facts.find("content_version")->if_string()->size(), 32U);

  const Outcome refused = motley({"inspect", "--json", golden_adapter("refused_init_pissa")});
  ASSERT_EQ(refused.status, 1);
  const auto its_report = json::parse(refused.output, "report");
  ASSERT_TRUE(its_report.ok());
  EXPECT_THAT(*its_report->if_object()->find("would_be_refused")->if_string(),
              HasSubstr("'pissa'"));
}

// A base that does not load makes the call fail; it is no finding about the adapter.
TEST(InspectAdapter, NeedsABaseThatLoads) {
  const Outcome outcome =
      motley({"inspect", golden_adapter("experts"), "--model", goldens + "/no_such_model"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.errors, HasSubstr("--model"));
}

TEST(InspectAdapter, SaysThatItWasTrainedOnAnotherBase) {
  const auto on = [](const std::string& base) {
    return motley({"inspect", golden_adapter("attention"), "--model", goldens + base}).output;
  };
  EXPECT_THAT(on("/llama"), HasSubstr("  trained on: qwen3_moe, which is no name of this base\n"));
  EXPECT_THAT(on("/qwen3_moe"), Not(HasSubstr("trained on")));
}

TEST(InspectAdapter, OnlyAdaptersHaveABase) {
  const Outcome outcome =
      motley({"inspect", goldens + "/qwen3_moe", "--model", goldens + "/qwen3_moe"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("only an adapter has a base (--model)"));
}

// On the CPU: the ops of a step, those of layers once, and their fusions.
TEST_F(Inspect, ShowsWhatStepsLaunch) {
  const std::string demo = MOTLEY_DEMO_MODEL;
  const Outcome fused = motley({"inspect", demo, "--kernels", "--device", "cpu"});
  EXPECT_EQ(fused.status, 0) << fused.errors;
  EXPECT_THAT(fused.output,
              AllOf(HasSubstr("decode, 1 row(s), no adapters: "), HasSubstr(" times\n"),
                    HasSubstr("add_norm_route = add norm linear route\n"),
                    HasSubstr("a prompt of 256 tokens, adapters at every site: "),
                    HasSubstr("adapt_heads = adapt")));
  const Outcome plain = motley({"inspect", demo, "--kernels", "--device", "cpu", "--no-fusion"});
  EXPECT_EQ(plain.status, 0) << plain.errors;
  EXPECT_THAT(plain.output, AllOf(HasSubstr("    route\n"), Not(HasSubstr(" = "))));
  const Outcome adapter =
      motley({"inspect", demo + "/adapters/jargon", "--kernels", "--device", "cpu"});
  EXPECT_THAT(adapter.errors, HasSubstr("name a model's folder"));
}

}  // namespace
}  // namespace motley::cli
