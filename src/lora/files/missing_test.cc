// What a configuration names and a file lacks is refused by name, by the rules of missing.h and no
// stricter ones.

#include "lora/files/missing.h"

#include <functional>
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

// A small DeepSeek: a dense layer, then two with experts, a shared expert and a router; latent
// attention in all of them.
FakeBase deepseek() {
  FakeBase base;
  for (std::int32_t layer = 0; layer < 3; ++layer) {
    base.add({{layer, Projection::q}, 8, 12});
    base.add({{layer, Projection::kv_a}, 8, 6});
    base.add({{layer, Projection::o}, 12, 8});
    if (layer == 0) {
      base.add({{layer, Projection::gate}, 8, 10});
      base.add({{layer, Projection::up}, 8, 10});
      base.add({{layer, Projection::down}, 10, 8});
      continue;
    }
    base.add({{layer, Projection::shared_gate}, 8, 10});
    base.add({{layer, Projection::shared_up}, 8, 10});
    base.add({{layer, Projection::shared_down}, 10, 8});
    base.add({{layer, Projection::router}, 8, 3});
    base.add({{layer, Projection::expert_gate}, 8, 5, 3});
    base.add({{layer, Projection::expert_up}, 8, 5, 3});
    base.add({{layer, Projection::expert_down}, 5, 8, 3});
  }
  base.add({{-1, Projection::embed}, 20, 8});
  base.add({{-1, Projection::lm_head}, 8, 20});
  return base;
}

std::vector<float> ones(std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count), 1.0F);
}

// Modules named as in transformers 4, with factors of rank 1; tests remove some.
class Files {
 public:
  explicit Files(const FakeBase& base) : base_(base) {}

  // Adds all modules of these projections.
  Files& all(const std::vector<Projection>& projections) {
    for (const SiteSpec& spec : base_.sites()) {
      if (std::ranges::find(projections, spec.site.projection) == projections.end()) continue;
      for (int e = 0; e < std::max(spec.experts, 1); ++e)
        modules_[path(spec, e)] = {spec.in, spec.out};
    }
    return *this;
  }
  Files& without(const std::string& module) {
    EXPECT_EQ(modules_.erase(module), 1U) << module;
    return *this;
  }

  Result<Adapter> load(std::string_view members, bool partial = false) const {
    AdapterFiles files;
    for (const auto& [module, size] : modules_) {
      files.add(module + ".lora_A.weight", {1, size.first}, ones(size.first));
      files.add(module + ".lora_B.weight", {size.second, 1}, ones(size.second));
    }
    const TemporaryFolder folder;
    files.write(folder.path(), cat(R"({"r": 1, "lora_alpha": 1)", members, "}"));
    return load_adapter(folder.path(), {.partial = partial}, base_);
  }

 private:
  static std::string path(const SiteSpec& spec, int expert) {
    const Site site = spec.site;
    if (site.projection == Projection::lm_head) return "lm_head";
    std::string words(name(site.projection));
    if (spec.experts > 0) words.insert(words.find("experts.") + 8, cat(expert, "."));
    return cat("model.layers.", site.layer, ".", words);
  }

  const FakeBase& base_;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> modules_;
};

const std::vector<Projection> attention = {Projection::q, Projection::kv_a, Projection::o};
const std::vector<Projection> dense = {Projection::gate, Projection::up, Projection::down};
const std::vector<Projection> shared = {Projection::shared_gate, Projection::shared_up,
                                        Projection::shared_down};
const std::vector<Projection> routed = {Projection::expert_gate, Projection::expert_up,
                                        Projection::expert_down};
const std::string of_attention =
    R"(, "target_modules": ["q_proj", "kv_a_proj_with_mqa", "o_proj"])";
const std::string of_blocks = R"(, "target_modules": ["gate_proj", "up_proj", "down_proj"])";

void expect_loads(const Files& files, std::string_view members) {
  const auto loaded = files.load(members);
  EXPECT_TRUE(loaded.ok()) << members << "\n" << loaded.error().message();
}

// Expects a refusal with the module's name, and that the file loads if missing parts are allowed.
void expect_missing(const Files& files, std::string_view members, std::string_view module) {
  const auto loaded = files.load(members);
  ASSERT_FALSE(loaded.ok()) << members;
  EXPECT_EQ(loaded.error().code(), ErrorCode::bad_file);
  EXPECT_EQ(loaded.error().what().find(cat("has no factors of ", module, ", which")), 0U)
      << loaded.error().message();
  EXPECT_NE(loaded.error().fix().find("partial"), std::string::npos);
  EXPECT_TRUE(files.load(members, true).ok()) << members;
}

TEST(MissingModules, ANamedLinearOccursInEveryLayer) {
  const FakeBase base = deepseek();
  expect_loads(Files(base).all(attention), of_attention);
  expect_missing(Files(base).all(attention).without("model.layers.2.self_attn.o_proj"),
                 of_attention, "model.layers.2.self_attn.o_proj");
  expect_missing(Files(base).all({Projection::q, Projection::o}), of_attention,
                 "model.layers.0.self_attn.kv_a_proj_with_mqa, "
                 "model.layers.1.self_attn.kv_a_proj_with_mqa, "
                 "model.layers.2.self_attn.kv_a_proj_with_mqa");
  expect_missing(Files(base).all(attention),
                 R"(, "target_modules": ["q_proj", "kv_a_proj_with_mqa", "o_proj", "lm_head"])",
                 "lm_head");
}

TEST(MissingModules, NamesThatTheBaseLacksPass) {
  const FakeBase base = deepseek();
  expect_loads(
      Files(base).all(attention),
      R"(, "target_modules": ["q_proj", "kv_a_proj_with_mqa", "o_proj", "q_a_proj", "v_proj",
                  "gate_up_proj", "block_sparse_moe.gate"])");
}

TEST(MissingModules, LayersAndExclusionsSelect) {
  const FakeBase base = deepseek();
  const std::string one = R"(, "target_modules": ["q_proj"], )";
  const Files last = Files(base)
                         .all({Projection::q})
                         .without("model.layers.0.self_attn.q_proj")
                         .without("model.layers.1.self_attn.q_proj");
  expect_loads(last, one + R"("layers_to_transform": [2])");
  expect_loads(last, one + R"("layers_to_transform": 2, "layers_pattern": "layers")");
  expect_loads(last, one + R"("layers_to_transform": [2, 7], "layers_pattern": ["h", "layers"])");
  expect_loads(last, one + R"("layers_to_transform": [0], "layers_pattern": "blocks")");
  expect_loads(last,
               one + R"("exclude_modules": ["0.self_attn.q_proj", "layers.1.self_attn.q_proj"])");
  expect_loads(last, one + R"x("exclude_modules": ".*layers\\.[01]\\..*")x");
  expect_loads(last, R"x(, "target_modules": ".*\\.2\\.self_attn\\.q_proj")x");
  expect_missing(last, one + R"("layers_to_transform": [1, 2])", "model.layers.1.self_attn.q_proj");
  expect_missing(last, one + R"("layers_to_transform": [0], "layers_pattern": "layers")",
                 "model.layers.0.self_attn.q_proj");
  expect_missing(last, one + R"("exclude_modules": ["0.self_attn.q_proj"])",
                 "model.layers.1.self_attn.q_proj");

  // The first pattern that finds a number decides: expert 2 of layer 1 is not selected.
  Files experts(base);
  experts.all(routed).all(shared);
  for (const std::string_view part : {"gate_proj", "up_proj", "down_proj"}) {
    experts.without(cat("model.layers.1.mlp.shared_experts.", part));
    for (int e = 0; e < 3; ++e) experts.without(cat("model.layers.1.mlp.experts.", e, ".", part));
  }
  expect_loads(experts, of_blocks + R"(, "layers_to_transform": [2],
               "layers_pattern": ["layers", "experts"])");
  expect_missing(last, R"x(, "target_modules": ".*\\.[12]\\.self_attn\\.q_proj")x",
                 "model.layers.1.self_attn.q_proj");
  // A regular expression matches whole names, a list matches their ends.
  expect_loads(last, R"(, "target_modules": "q_proj")");
  // Names that are given whole are not required in other layers.
  expect_missing(last,
                 R"(, "target_modules": ["model.layers.1.self_attn.q_proj"],
                    "layers_to_transform": [2])",
                 "model.layers.1.self_attn.q_proj");
}

TEST(MissingModules, SavedModulesAreNotAskedForFactors) {
  const FakeBase base = deepseek();
  expect_loads(Files(base).all(attention),
               R"(, "target_modules": ["q_proj", "kv_a_proj_with_mqa", "o_proj", "lm_head"],
                  "modules_to_save": ["lm_head"])");
}

TEST(MissingModules, RoutersAndExpertsMayBeAbsentAltogether) {
  const FakeBase base = deepseek();
  Files files(base);
  files.all(attention).all(dense).all(shared);
  const std::string everything = R"(, "target_modules": ["q_proj", "kv_a_proj_with_mqa", "o_proj",
      "gate_proj", "up_proj", "down_proj", "gate"])";
  expect_loads(files, everything);
  files.all({Projection::router});
  expect_loads(files, everything);
  files.without("model.layers.2.mlp.gate");
  expect_missing(files, everything, "model.layers.2.mlp.gate");
}

TEST(MissingModules, AnExpertHasAllNamedParts) {
  const FakeBase base = deepseek();
  Files files(base);
  files.all(dense).all(shared).all(routed);
  expect_loads(files, of_blocks);
  Files half = files;
  half.without("model.layers.1.mlp.experts.2.up_proj");
  expect_missing(half, of_blocks, "model.layers.1.mlp.experts.2.up_proj");
  expect_loads(half, R"(, "target_modules": ["gate_proj", "down_proj"])");
  // An expert may be missing as a whole.
  half.without("model.layers.1.mlp.experts.2.gate_proj")
      .without("model.layers.1.mlp.experts.2.down_proj");
  expect_loads(half, of_blocks);
  // All experts of a layer may not be missing if other layers have some.
  for (const int expert : {0, 1}) {
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      half.without(cat("model.layers.1.mlp.experts.", expert, ".", part));
  }
  expect_missing(half, of_blocks,
                 "model.layers.1.mlp.experts.*.gate_proj, model.layers.1.mlp.experts.*.up_proj, "
                 "model.layers.1.mlp.experts.*.down_proj");
  expect_loads(half, of_blocks + R"(, "layers_to_transform": [2])");
  // No expert has the part.
  Files none(base);
  none.all(dense).all(shared).all({Projection::expert_gate, Projection::expert_down});
  const auto loaded = none.load(of_blocks);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().what(),
            "has no factors of model.layers.1.mlp.experts.0.up_proj, "
            "model.layers.1.mlp.experts.1.up_proj, model.layers.1.mlp.experts.2.up_proj, "
            "model.layers.2.mlp.experts.0.up_proj, model.layers.2.mlp.experts.1.up_proj, "
            "model.layers.2.mlp.experts.2.up_proj, which adapter_config.json names");
}

// PEFT up to 0.19 reads an expert's number as its layer's.
TEST(MissingModules, LayersToTransformOfOlderReleasesSelectExperts) {
  const FakeBase base = deepseek();
  Files files(base);
  files.all(routed);
  for (const int layer : {1, 2}) {
    for (const int expert : {0, 2}) {
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        files.without(cat("model.layers.", layer, ".mlp.experts.", expert, ".", part));
    }
  }
  const std::string members = R"(, "target_modules": ["experts.1.gate_proj", "experts.1.up_proj",
      "experts.1.down_proj"], "layers_to_transform": [1])";
  expect_loads(files, members);
  files.without("model.layers.2.mlp.experts.1.up_proj");
  expect_missing(files, members, "model.layers.2.mlp.experts.1.up_proj");
}

// Tools that train only experts list them by words that dense blocks have, too.
TEST(MissingModules, ListsOfExpertsDoNotAskForDenseBlocks) {
  const FakeBase base = deepseek();
  expect_loads(Files(base).all(routed), of_blocks);
  // Any other adapted module shows that the list means everything it names.
  Files part(base);
  part.all(routed).all(shared).all({Projection::gate, Projection::up});
  expect_missing(part, of_blocks, "model.layers.0.mlp.down_proj");
  expect_missing(Files(base).all(routed).all(shared), of_blocks,
                 "model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj, "
                 "model.layers.0.mlp.down_proj");
  expect_missing(
      Files(base).all(routed).all(dense).all({Projection::shared_gate, Projection::shared_up}),
      of_blocks,
      "model.layers.1.mlp.shared_experts.down_proj, "
      "model.layers.2.mlp.shared_experts.down_proj");
  expect_missing(Files(base).all(routed),
                 R"(, "target_modules": ["mlp.gate_proj", "up_proj", "down_proj"])",
                 "model.layers.0.mlp.gate_proj");
  // Without experts the list means the dense block and the shared experts.
  expect_missing(Files(base).all(shared), of_blocks,
                 "model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj, "
                 "model.layers.0.mlp.down_proj");
}

// A list that can't mean experts alone asks for the dense layer, also in a file with nothing else.
TEST(MissingModules, ADenseLayersOwnMapsAreAskedFor) {
  const FakeBase base = deepseek();
  constexpr std::string_view of_dense =
      "model.layers.0.mlp.gate_proj, model.layers.0.mlp.up_proj, model.layers.0.mlp.down_proj";
  // The dense layer is chosen by its number.
  expect_missing(Files(base).all(routed), of_blocks + R"(, "layers_to_transform": [0, 1, 2])",
                 of_dense);
  expect_loads(Files(base).all(routed), of_blocks + R"(, "layers_to_transform": [1, 2])");
  expect_loads(Files(base).all(routed).all(dense),
               of_blocks + R"(, "layers_to_transform": [0, 1, 2], "exclude_modules":
                  ["shared_experts.gate_proj", "shared_experts.up_proj",
                   "shared_experts.down_proj"])");
  // The file spells its experts by other words.
  AdapterFiles files;
  for (const int layer : {1, 2}) {
    for (const char* const word : {"0.w1", "0.w3"}) {
      const std::string module = cat("model.layers.", layer, ".mlp.experts.", word);
      files.add(module + ".lora_A.weight", {1, 8}, ones(8));
      files.add(module + ".lora_B.weight", {5, 1}, ones(5));
    }
  }
  const TemporaryFolder folder;
  const auto load = [&](std::string_view list) {
    files.write(folder.path(), cat(R"({"r": 1, "lora_alpha": 1, "target_modules": [)", list, "]}"));
    return load_adapter(folder.path(), {}, base);
  };
  EXPECT_TRUE(load(R"("w1", "w3")").ok());
  const auto refused = load(R"("w1", "w3", "gate_proj")");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().what(),
            "has no factors of model.layers.0.mlp.gate_proj, "
            "model.layers.1.mlp.shared_experts.gate_proj, "
            "model.layers.2.mlp.shared_experts.gate_proj, which adapter_config.json names");
}

TEST(MissingModules, HalfOfLatentAttentionLacksTheOther) {
  FakeBase base;
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    base.add({{layer, Projection::o}, 12, 8});
    base.add({{layer, Projection::q_a}, 8, 4});
    base.add({{layer, Projection::q_b}, 4, 12});
    base.add({{layer, Projection::kv_a}, 8, 6});
    base.add({{layer, Projection::kv_b}, 4, 12});
  }
  const std::string all = R"(, "target_modules": "all-linear")";
  const std::vector<Projection> halves = {Projection::q_a, Projection::q_b, Projection::kv_a,
                                          Projection::kv_b};
  expect_loads(Files(base).all(halves), all);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    std::vector<Projection> others = halves;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string_view word = name(halves[i]);
    expect_missing(Files(base).all(others), all,
                   cat("model.layers.0.", word, ", model.layers.1.", word));
  }
  // Without a list any of them may be absent, and with one both halves may.
  expect_loads(Files(base).all({Projection::q_a}), "");
  expect_loads(Files(base).all({Projection::o}), all);
}

TEST(MissingModules, KindsThatOccurNowherePassWithoutAList) {
  const FakeBase base = deepseek();
  for (const std::string members : {"", R"(, "target_modules": "All-Linear")"}) {
    std::string lines;
    log::configure({.sink = [&](std::string_view line) { lines += line; }});
    expect_loads(Files(base).all(attention).all(routed), members);
    log::configure({});
    EXPECT_NE(lines.find("adapter.kinds_absent"), std::string::npos) << lines;
    EXPECT_NE(lines.find("mlp.shared_experts.up_proj"), std::string::npos) << lines;
    EXPECT_EQ(lines.find("kv_a_proj"), std::string::npos) << lines;
    expect_missing(Files(base).all(attention).without("model.layers.1.self_attn.q_proj"), members,
                   "model.layers.1.self_attn.q_proj");
    expect_missing(Files(base).all(routed).without("model.layers.1.mlp.experts.0.down_proj"),
                   members, "model.layers.1.mlp.experts.0.down_proj");
  }
}

TEST(MissingModules, ExpressionsThatMotleyCannotRunAskForNothing) {
  const FakeBase base = deepseek();
  expect_loads(Files(base).all({Projection::q}), R"x(, "target_modules": ".*(?<=x)_proj")x");
}

// PEFT's packed parameters, and those of a router.
TEST(MissingModules, NamedParametersOccur) {
  const FakeBase base = deepseek();
  const auto load = [&](const std::vector<int>& layers, bool gate_up, bool down,
                        std::string_view parameters) {
    AdapterFiles files;
    for (const int layer : layers) {
      const std::string module = cat("model.layers.", layer, ".mlp.experts");
      if (gate_up) {
        const std::string inner = down ? module + ".base_layer" : module;
        files.add(inner + ".lora_A.weight", {3, 8}, ones(24));
        files.add(inner + ".lora_B.weight", {10, 3}, ones(30));
      }
      if (down) {
        files.add(module + ".lora_A.weight", {3, 5}, ones(15));
        files.add(module + ".lora_B.weight", {8, 3}, ones(24));
      }
    }
    const TemporaryFolder folder;
    files.write(folder.path(),
                cat(R"({"r": 1, "lora_alpha": 1, "target_modules": [], "target_parameters": [)",
                    parameters, "]}"));
    const auto loaded = load_adapter(folder.path(), {}, base);
    return loaded.ok() ? std::string() : std::string(loaded.error().what());
  };
  constexpr std::string_view both = R"("mlp.experts.gate_up_proj", "down_proj")";
  EXPECT_EQ(load({1, 2}, true, true, both), "");
  EXPECT_EQ(load({1, 2}, true, false, R"("gate_up_proj")"), "");
  EXPECT_EQ(load({2}, false, true, R"("2.mlp.experts.down_proj")"), "");
  EXPECT_EQ(load({1, 2}, true, true, R"("gate_up_proj", "down_proj", "feed_forward.experts.w1")"),
            "");
  EXPECT_EQ(load({1}, true, true, both),
            "has no factors of model.layers.2.mlp.experts.gate_up_proj, "
            "model.layers.2.mlp.experts.down_proj, which adapter_config.json names");
  EXPECT_EQ(load({1, 2}, true, false, both),
            "has no factors of model.layers.1.mlp.experts.down_proj, "
            "model.layers.2.mlp.experts.down_proj, which adapter_config.json names");
  EXPECT_EQ(load({1, 2}, true, true, R"("gate_up_proj", "down_proj", "mlp.gate.weight")"),
            "has no factors of model.layers.1.mlp.gate.weight, model.layers.2.mlp.gate.weight, "
            "which adapter_config.json names");
}

TEST(MissingModules, PartialWarnsWithABoundedList) {
  const FakeBase base = deepseek();
  Files files(base);
  files.all({Projection::q}).all(dense).all(shared).all({Projection::expert_gate});
  std::string lines;
  log::configure({.sink = [&](std::string_view line) { lines += line; }});
  const auto loaded = files.load(of_blocks, true);
  log::configure({});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_NE(lines.find("adapter.partial"), std::string::npos) << lines;
  EXPECT_NE(lines.find("missing=12"), std::string::npos) << lines;
  EXPECT_NE(lines.find("layers.2.mlp.experts.1.up_proj and 4 more"), std::string::npos) << lines;
}

}  // namespace
}  // namespace motley::lora
