// Limits of matching an adapter's patterns against a large model: configurations that name every
// module load, and those that would stall the loader are refused with the name of the field.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "lora/files/load.h"
#include "lora/test_base.h"

namespace motley::lora {
namespace {

using test::AdapterFiles;
using test::FakeBase;

constexpr test::ModelShape large = {
    .layers = 48, .hidden = 2, .intermediate = 2, .experts = 128, .vocabulary = 4};

std::string module_of(int layer, int expert, std::string_view projection) {
  return cat("model.layers.", layer, ".mlp.experts.", expert, ".", projection);
}

// Factors of all experts of 48 layers, each as a module. Written once.
class PatternBounds : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    base = new FakeBase(test::make_base(large));
    folder = new TemporaryFolder();
    AdapterFiles files;
    for (int layer = 0; layer < large.layers; ++layer) {
      for (int expert = 0; expert < large.experts; ++expert) {
        for (const std::string_view projection : {"gate_proj", "up_proj", "down_proj"}) {
          const std::string module = module_of(layer, expert, projection);
          files.add(cat(module, ".lora_A.weight"), {1, 2}, {1, 2});
          files.add(cat(module, ".lora_B.weight"), {2, 1}, {1, 2});
        }
      }
    }
    files.write(folder->path(), "{}");
  }
  static void TearDownTestSuite() {
    delete folder;
    delete base;
  }

  // Empty if it loads.
  static std::string error_of(std::string_view members) {
    folder->file("adapter_config.json", cat(R"({"r": 1, "lora_alpha": 1)", members, "}"));
    const auto loaded = load_adapter(folder->path(), {}, *base);
    return loaded.ok() ? "" : loaded.error().message();
  }
  // `, "field": {"p0": 1, "p1": 1, ...}`, as PEFT writes ranks.
  static std::string map_of(std::string_view field, int count, auto pattern) {
    std::vector<std::string> members;
    for (int i = 0; i < count; ++i) members.push_back(cat("\"", pattern(i), "\": 1"));
    return cat(", \"", field, "\": {", join(members), "}");
  }

  static inline FakeBase* base = nullptr;
  static inline TemporaryFolder* folder = nullptr;
};

TEST_F(PatternBounds, EveryModuleByItsName) {
  const auto every = [](int i) {
    constexpr const char* projections[] = {"gate_proj", "up_proj", "down_proj"};
    return module_of(i / 384, i / 3 % 128, projections[i % 3]);
  };
  constexpr int modules = large.layers * large.experts * 3;
  EXPECT_EQ(error_of(cat(map_of("rank_pattern", modules, every),
                         map_of("alpha_pattern", modules, every))),
            "");
}

TEST_F(PatternBounds, LayersAndProjectionsByExpressions) {
  const auto layer = [](int i) { return cat(R"(layers\\.)", i, R"(\\..*)"); };
  EXPECT_EQ(error_of(cat(map_of("rank_pattern", large.layers, layer),
                         R"(, "target_modules": ".*\\.experts\\.\\d+\\.(gate|up|down)_proj")")),
            "");
}

TEST_F(PatternBounds, ManyExpressionsAreRefusedByTheirField) {
  const auto no_module = [](int i) { return cat(".*x", i); };
  for (const std::string_view field : {"rank_pattern", "alpha_pattern"}) {
    const std::string message = error_of(map_of(field, 2000, no_module));
    EXPECT_NE(message.find("patterns take too long"), std::string::npos) << message;
    EXPECT_NE(message.find(cat("adapter_config.json, ", field)), std::string::npos) << message;
    const std::string many = error_of(map_of(field, 5000, no_module));
    EXPECT_NE(many.find("more than 4096 regular expressions"), std::string::npos) << many;
  }
}

// Almost as many states as an expression may have, all of them active.
TEST_F(PatternBounds, OneLargeExpressionIsRefusedByItsField) {
  const std::string large_one = R"((?:(?:.?){100}){95}x)";
  const std::string message = error_of(cat(R"(, "rank_pattern": {")", large_one, R"(": 1})"));
  EXPECT_NE(message.find("adapter_config.json, rank_pattern"), std::string::npos) << message;
}

TEST_F(PatternBounds, ListsAreBounded) {
  const auto list_of = [](std::string_view field, int count) {
    return cat(", \"", field, "\": [",
               join(std::vector<std::string>(static_cast<std::size_t>(count), "\"a\"")), "]");
  };
  EXPECT_NE(error_of(list_of("modules_to_save", 1025)).find("modules_to_save"), std::string::npos);
  EXPECT_NE(error_of(list_of("target_parameters", 4097)).find("target_parameters"),
            std::string::npos);
  EXPECT_NE(error_of(cat(R"(, "layers_to_transform": [1])", list_of("layers_pattern", 65)))
                .find("layers_pattern"),
            std::string::npos);
}

}  // namespace
}  // namespace motley::lora
