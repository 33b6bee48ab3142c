// One random adapter on the experts, written in every convention, loads to one set of deltas.

#include <array>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "lora/files/load.h"
#include "lora/test_base.h"

namespace motley::lora {
namespace {

using test::AdapterFiles;
using test::FakeBase;
using test::ModelShape;

// Factors of one layer's experts. gate and up share one A [r, H], or all experts share all of A and
// down's B, so that every convention can express them.
struct Truth {
  int rank = 0;
  bool shared_outer = false;
  std::vector<std::vector<float>> a;       // [r, H] by expert
  std::vector<std::vector<float>> gate;    // [I, r]
  std::vector<std::vector<float>> up;      // [I, r]
  std::vector<std::vector<float>> down_a;  // [r, I]
  std::vector<std::vector<float>> down_b;  // [H, r]
};

Truth make_truth(std::mt19937& random, const ModelShape& shape, int rank, bool shared_outer) {
  Truth truth;
  truth.rank = rank;
  truth.shared_outer = shared_outer;
  for (int e = 0; e < shape.experts; ++e) {
    const auto numbers = [&](std::int64_t count) { return test::random_numbers(random, count); };
    const bool first = e == 0 || !shared_outer;
    truth.a.push_back(first ? numbers(rank * shape.hidden) : truth.a[0]);
    truth.gate.push_back(numbers(shape.intermediate * rank));
    truth.up.push_back(numbers(shape.intermediate * rank));
    truth.down_a.push_back(numbers(rank * shape.intermediate));
    truth.down_b.push_back(first ? numbers(shape.hidden * rank) : truth.down_b[0]);
  }
  return truth;
}

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// gate and up as fused in the base, [2 I, r].
std::vector<float> gate_up(const Truth& truth, int e, const ModelShape& shape, bool interleaved) {
  std::vector<float> both(at(2 * shape.intermediate * truth.rank));
  for (std::int64_t row = 0; row < shape.intermediate; ++row) {
    for (std::int64_t r = 0; r < truth.rank; ++r) {
      const auto from = at(row * truth.rank + r);
      const std::int64_t gate_row = interleaved ? 2 * row : row;
      const std::int64_t up_row = interleaved ? 2 * row + 1 : shape.intermediate + row;
      both[at(gate_row * truth.rank + r)] = truth.gate[at(e)][from];
      both[at(up_row * truth.rank + r)] = truth.up[at(e)][from];
    }
  }
  return both;
}

// How factors are laid out in a packed pair.
struct Packing {
  std::int64_t rank = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool swapped = false;
  bool expert_major = false;
};

// Packs A [r, in] and B [out, r] of each expert as PEFT does.
void add_packed(AdapterFiles& files, const std::string& module,
                const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                const Packing& packing) {
  const auto [rank, in, out, swapped, expert_major] = packing;
  const auto experts = static_cast<std::int64_t>(a.size());
  const std::int64_t wide = swapped ? out : in;
  const std::int64_t tall = swapped ? in : out;
  std::vector<float> packed_a(at(experts * rank * wide));
  std::vector<float> packed_b(at(tall * rank * experts));
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t r = 0; r < rank; ++r) {
      const std::int64_t column = expert_major ? e * rank + r : r * experts + e;
      for (std::int64_t i = 0; i < in; ++i) {
        const float value = a[at(e)][at(r * in + i)];
        if (swapped) {
          packed_b[at(i * rank * experts + column)] = value;
        } else {
          packed_a[at((e * rank + r) * in + i)] = value;
        }
      }
      for (std::int64_t o = 0; o < out; ++o) {
        const float value = b[at(e)][at(o * rank + r)];
        if (swapped) {
          packed_a[at((e * rank + r) * out + o)] = value;
        } else {
          packed_b[at(o * rank * experts + column)] = value;
        }
      }
    }
  }
  files.add(module + ".lora_A.weight", {experts * rank, wide}, packed_a);
  files.add(module + ".lora_B.weight", {tall, rank * experts}, packed_b);
}

std::vector<float> concatenated(const std::vector<std::vector<float>>& parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Spelling {
  std::string name;
  LoadOptions options;
  std::string config;  // further members
  bool needs_shared = false;
  std::function<void(AdapterFiles&, const Truth&, const ModelShape&, bool interleaved)> write;
};

const std::string layer = "model.layers.1.mlp.experts";

// The base has two layers; the files here have factors for one.
LoadOptions of_one_layer(LoadOptions options) {
  options.partial = true;
  return options;
}

Spelling packed_spelling(const std::string& name, bool swapped, bool expert_major) {
  Spelling spelling;
  spelling.name = name;
  spelling.write = [=](AdapterFiles& files, const Truth& truth, const ModelShape& shape,
                       bool interleaved) {
    std::vector<std::vector<float>> both;
    for (int e = 0; e < shape.experts; ++e) both.push_back(gate_up(truth, e, shape, interleaved));
    add_packed(files, layer + ".base_layer", truth.a, both,
               {truth.rank, shape.hidden, 2 * shape.intermediate, swapped, expert_major});
    add_packed(files, layer, truth.down_a, truth.down_b,
               {truth.rank, shape.intermediate, shape.hidden, swapped, expert_major});
  };
  return spelling;
}

Spelling linear_spelling(const std::string& name, const std::string& parent,
                         const std::array<std::string, 3>& leaves) {
  Spelling spelling;
  spelling.name = name;
  spelling.write = [=](AdapterFiles& files, const Truth& truth, const ModelShape& shape, bool) {
    for (int e = 0; e < shape.experts; ++e) {
      const std::string expert = cat("model.layers.1.", parent, ".experts.", e, ".");
      const auto add = [&](const std::string& leaf, const std::vector<float>& a,
                           const std::vector<float>& b, std::int64_t in, std::int64_t out) {
        files.add(expert + leaf + ".lora_A.weight", {truth.rank, in}, a);
        files.add(expert + leaf + ".lora_B.weight", {out, truth.rank}, b);
      };
      add(leaves[0], truth.a[at(e)], truth.gate[at(e)], shape.hidden, shape.intermediate);
      add(leaves[1], truth.a[at(e)], truth.up[at(e)], shape.hidden, shape.intermediate);
      add(leaves[2], truth.down_a[at(e)], truth.down_b[at(e)], shape.intermediate, shape.hidden);
    }
  };
  return spelling;
}

Spelling unsloth_linears() {
  Spelling linears;
  linears.name = "Unsloth linears";
  linears.write = [](AdapterFiles& files, const Truth& truth, const ModelShape& shape,
                     bool interleaved) {
    for (int e = 0; e < shape.experts; ++e) {
      files.add(cat(layer, ".gate_up_projs.", e, ".lora_A.weight"), {truth.rank, shape.hidden},
                truth.a[at(e)]);
      files.add(cat(layer, ".gate_up_projs.", e, ".lora_B.weight"),
                {2 * shape.intermediate, truth.rank}, gate_up(truth, e, shape, interleaved));
      files.add(cat(layer, ".down_projs.", e, ".lora_A.weight"), {truth.rank, shape.intermediate},
                truth.down_a[at(e)]);
      files.add(cat(layer, ".down_projs.", e, ".lora_B.weight"), {shape.hidden, truth.rank},
                truth.down_b[at(e)]);
    }
  };
  return linears;
}

// With and without a shared outer factor, as the first dimension tells.
std::vector<float> outer(const Truth& truth, const std::vector<std::vector<float>>& parts) {
  return truth.shared_outer ? parts[0] : concatenated(parts);
}

Spelling tinker_outer() {
  Spelling tinker;
  tinker.name = "Tinker";
  tinker.write = [](AdapterFiles& files, const Truth& truth, const ModelShape& shape, bool) {
    const std::int64_t first = truth.shared_outer ? 1 : shape.experts;
    for (const char* leaf : {"w1", "w3"}) {
      files.add(cat(layer, ".", leaf, ".lora_A.weight"), {first, truth.rank, shape.hidden},
                outer(truth, truth.a));
    }
    files.add(layer + ".w1.lora_B.weight", {shape.experts, shape.intermediate, truth.rank},
              concatenated(truth.gate));
    files.add(layer + ".w3.lora_B.weight", {shape.experts, shape.intermediate, truth.rank},
              concatenated(truth.up));
    files.add(layer + ".w2.lora_A.weight", {shape.experts, truth.rank, shape.intermediate},
              concatenated(truth.down_a));
    files.add(layer + ".w2.lora_B.weight", {first, shape.hidden, truth.rank},
              outer(truth, truth.down_b));
  };
  return tinker;
}

Spelling sglang_fused() {
  Spelling fused;
  fused.name = "SGLang fused";
  fused.write = [](AdapterFiles& files, const Truth& truth, const ModelShape& shape,
                   bool interleaved) {
    const std::int64_t first = truth.shared_outer ? 1 : shape.experts;
    std::vector<std::vector<float>> stacked;
    std::vector<std::vector<float>> both;
    for (int e = 0; e < shape.experts; ++e) {
      stacked.push_back(concatenated({truth.a[at(e)], truth.a[at(e)]}));
      both.push_back(gate_up(truth, e, shape, interleaved));
    }
    files.add(layer + ".gate_up_proj.lora_A.weight", {first, 2 * truth.rank, shape.hidden},
              outer(truth, stacked));
    files.add(layer + ".gate_up_proj.lora_B.weight",
              {shape.experts, 2 * shape.intermediate, truth.rank}, concatenated(both));
    files.add(layer + ".down_proj.lora_A.weight", {shape.experts, truth.rank, shape.intermediate},
              concatenated(truth.down_a));
    files.add(layer + ".down_proj.lora_B.weight", {first, shape.hidden, truth.rank},
              outer(truth, truth.down_b));
  };
  return fused;
}

Spelling sglang_split() {
  Spelling split;
  split.name = "SGLang split";
  split.needs_shared = true;
  split.write = [](AdapterFiles& files, const Truth& truth, const ModelShape& shape, bool) {
    for (const char* leaf : {"gate_proj", "up_proj"}) {
      files.add(cat(layer, ".", leaf, ".lora_A.weight"), {1, truth.rank, shape.hidden}, truth.a[0]);
    }
    files.add(layer + ".down_proj.lora_B.weight", {1, shape.hidden, truth.rank}, truth.down_b[0]);
    for (int e = 0; e < shape.experts; ++e) {
      files.add(cat(layer, ".", e, ".gate_proj.lora_B.weight"), {shape.intermediate, truth.rank},
                truth.gate[at(e)]);
      files.add(cat(layer, ".", e, ".up_proj.lora_B.weight"), {shape.intermediate, truth.rank},
                truth.up[at(e)]);
      files.add(cat(layer, ".", e, ".down_proj.lora_A.weight"), {truth.rank, shape.intermediate},
                truth.down_a[at(e)]);
    }
  };
  return split;
}

std::vector<Spelling> spellings() {
  std::vector<Spelling> all;
  all.push_back(linear_spelling("per expert", "mlp", {"gate_proj", "up_proj", "down_proj"}));
  all.push_back(linear_spelling("Mixtral", "block_sparse_moe", {"w1", "w3", "w2"}));
  all.push_back(packed_spelling("packed", false, false));
  all.push_back(packed_spelling("swapped", true, false));
  all.push_back(packed_spelling("grouped", false, true));
  all.back().config = R"(, "lora_B_layout": "grouped_by_expert")";
  all.push_back(packed_spelling("Megatron", true, true));
  all.back().options.b_columns = BColumns::expert_major;
  all.push_back(unsloth_linears());
  all.push_back(tinker_outer());
  all.push_back(sglang_fused());
  all.push_back(sglang_split());
  return all;
}

// The numbers of one factor of one expert.
std::vector<float> factor(const Adapter& adapter, Projection projection, int expert, bool a) {
  const Factors& factors = adapter.find({1, projection})->factors[at(expert)];
  return adapter.matrices[at(a ? factors.a : factors.b)].numbers();
}

TEST(Conventions, ARandomAdapterLoadsToTheSameDeltasFromEach) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    ModelShape shape;
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution(least, most)(random);
    };
    shape.experts = pick(2, 6);
    shape.hidden = pick(3, 20);
    // gate_up or down may be square, but not both: then only the version would tell.
    shape.intermediate = pick(3, 20);
    if (2 * shape.intermediate == shape.hidden && shape.intermediate == shape.hidden) continue;
    const int rank = pick(1, 5);
    const bool shared = pick(0, 1) == 1;
    FakeBase base = test::make_base(shape);
    base.interleaved = pick(0, 1) == 1;
    base.transposed = base.interleaved;
    const Truth truth = make_truth(random, shape, rank, shared);
    std::optional<ContentVersion> version;
    for (const Spelling& spelling : spellings()) {
      if (spelling.needs_shared && !shared) continue;
      AdapterFiles files;
      spelling.write(files, truth, shape, base.interleaved);
      const TemporaryFolder folder;
      files.write(folder.path(), cat(R"({"r": )", rank, R"(, "lora_alpha": 3)", spelling.config,
                                     R"(, "target_parameters": ["mlp.experts.gate_up_proj"]})"));
      const auto adapter = load_adapter(folder.path(), of_one_layer(spelling.options), base);
      ASSERT_TRUE(adapter.ok()) << spelling.name << ": " << adapter.error().message();
      for (int e = 0; e < shape.experts; ++e) {
        const auto expect = [&](Projection projection, const std::vector<float>& a,
                                const std::vector<float>& b) {
          EXPECT_EQ(factor(*adapter, projection, e, true), a) << spelling.name;
          EXPECT_EQ(factor(*adapter, projection, e, false), b) << spelling.name;
          const Factors& factors = adapter->find({1, projection})->factors[at(e)];
          EXPECT_EQ(factors.rank, rank);
          EXPECT_FLOAT_EQ(factors.scale, 3.0F / static_cast<float>(rank));
        };
        expect(Projection::expert_gate, truth.a[at(e)], truth.gate[at(e)]);
        expect(Projection::expert_up, truth.a[at(e)], truth.up[at(e)]);
        expect(Projection::expert_down, truth.down_a[at(e)], truth.down_b[at(e)]);
      }
      // The deltas are the same, so the version is.
      if (!version) version = adapter->version;
      EXPECT_EQ(*version, adapter->version) << spelling.name;
      ASSERT_FALSE(HasFailure()) << spelling.name << " in round " << round;
    }
  }
}

TEST(Conventions, SharesWhatIsShared) {
  std::mt19937 random(3);
  const ModelShape shape;
  const FakeBase base = test::make_base(shape);
  const Truth truth = make_truth(random, shape, 2, true);
  const auto load = [&](std::string_view name) {
    for (const Spelling& spelling : spellings()) {
      if (spelling.name != name) continue;
      AdapterFiles files;
      spelling.write(files, truth, shape, false);
      const TemporaryFolder folder;
      files.write(folder.path(), R"({"r": 2, "lora_alpha": 3})");
      return load_adapter(folder.path(), of_one_layer(spelling.options), base).value();
    }
    return Adapter();
  };
  const Adapter packed = load("packed");
  EXPECT_EQ(packed.convention, Convention::packed);
  EXPECT_EQ(packed.find({1, Projection::expert_gate})->factors[1].a,
            packed.find({1, Projection::expert_up})->factors[1].a);
  const Adapter tinker = load("Tinker");
  EXPECT_EQ(tinker.convention, Convention::shared_outer);
  EXPECT_EQ(tinker.find({1, Projection::expert_gate})->factors[0].a,
            tinker.find({1, Projection::expert_gate})->factors[3].a);
  EXPECT_EQ(tinker.find({1, Projection::expert_down})->factors[0].b,
            tinker.find({1, Projection::expert_down})->factors[3].b);
  EXPECT_EQ(tinker.matrices.size(), 2U + 2U * 4U + 4U + 1U);
}

// If only a square gate_up is adapted, the user's option decides, then the version.
TEST(Conventions, VersionDecidesWhatShapesDoNot) {
  std::mt19937 random(5);
  ModelShape shape;
  shape.hidden = 12;
  shape.intermediate = 6;
  FakeBase base = test::make_base(shape);
  const Truth truth = make_truth(random, shape, 2, false);
  std::vector<std::vector<float>> both;
  for (int e = 0; e < shape.experts; ++e) both.push_back(gate_up(truth, e, shape, false));
  AdapterFiles files;
  add_packed(files, layer, truth.a, both, {.rank = 2, .in = 12, .out = 12});
  const TemporaryFolder folder;
  const auto swapped = [&](std::string_view version, Orientation given, bool transposed) {
    base.transposed = transposed;
    files.write(folder.path(),
                cat(R"({"r": 2, "lora_alpha": 1, "target_parameters": ["experts.gate_up_proj"])",
                    version.empty() ? "" : R"(, "peft_version": ")", version,
                    version.empty() ? "" : "\"", "}"));
    return load_adapter(folder.path(), of_one_layer({.orientation = given}), base);
  };
  const auto automatic = Orientation::automatic;
  EXPECT_TRUE(swapped("0.17.1", automatic, false).value().swapped);
  EXPECT_TRUE(swapped("0.18.1@abcdef", automatic, false).value().swapped);
  EXPECT_FALSE(swapped("0.18.1", automatic, true).value().swapped);
  EXPECT_TRUE(swapped("0.19.0", automatic, false).value().swapped);
  EXPECT_TRUE(swapped("0.19.0", automatic, true).value().swapped);
  EXPECT_FALSE(swapped("0.19.1", automatic, false).value().swapped);
  EXPECT_FALSE(swapped("0.20.1.dev0", automatic, false).value().swapped);
  EXPECT_TRUE(swapped("0.21.2", Orientation::swapped, false).value().swapped);
  EXPECT_FALSE(swapped("0.18.1", Orientation::standard, false).value().swapped);
  for (const char* version : {"", "new"}) {
    const auto unknown = swapped(version, automatic, false);
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code(), ErrorCode::bad_file);
    EXPECT_NE(unknown.error().message().find("orientation=swapped"), std::string::npos);
  }
  // Over a transposed base the answer depends on transformers' version, too.
  for (const char* version : {"0.19.1", "0.20.1.dev0", "0.21.2"}) {
    const auto unknown = swapped(version, automatic, true);
    ASSERT_FALSE(unknown.ok()) << version;
    EXPECT_EQ(unknown.error().code(), ErrorCode::bad_file);
    EXPECT_NE(unknown.error().fix().find("made with transformers 4: swapped, 5: standard"),
              std::string::npos)
        << unknown.error().message();
    EXPECT_FALSE(swapped(version, Orientation::standard, true).value().swapped);
    EXPECT_TRUE(swapped(version, Orientation::swapped, true).value().swapped);
  }
  EXPECT_NE(swapped("", automatic, true)
                .error()
                .fix()
                .find("PEFT 0.17, which wrote no peft_version, "
                      "is standard"),
            std::string::npos);
  EXPECT_NE(swapped("", automatic, false).error().fix().find("is swapped"), std::string::npos);
  const Adapter standard = swapped("0.21.0", automatic, false).value();
  EXPECT_EQ(factor(standard, Projection::expert_gate, 3, true), truth.a[3]);
  const Adapter other = swapped("0.18.0", automatic, false).value();
  EXPECT_NE(factor(other, Projection::expert_gate, 3, true), truth.a[3]);
}

TEST(Conventions, AGivenOrientationMayNotContradictTheShapes) {
  std::mt19937 random(5);
  const ModelShape shape;
  const FakeBase base = test::make_base(shape);
  const Truth truth = make_truth(random, shape, 2, false);
  AdapterFiles files;
  packed_spelling("", true, false).write(files, truth, shape, false);
  const TemporaryFolder folder;
  files.write(folder.path(), R"({"r": 2, "lora_alpha": 1})");
  const auto loaded = load_adapter(folder.path(), {.orientation = Orientation::standard}, base);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), ErrorCode::invalid_argument);
}

// Tinker adapts queries, keys and values of a delta net each by itself; its config has a rank and
// an alpha alone.
TEST(Conventions, PartsOfRowsBecomeOneMap) {
  constexpr std::int64_t in = 6;
  constexpr std::array<std::int64_t, 3> parts{4, 4, 5};
  constexpr std::int64_t rank = 2;
  FakeBase base;
  base.add({.site = {0, Projection::in_qkv}, .in = in, .out = 13, .row_parts = parts});
  std::mt19937 random(7);
  AdapterFiles files;
  std::vector<float> wanted(13 * in);  // B A of each part, in its rows
  std::int64_t first = 0;
  const std::array<std::string, 3> leaves{"q", "k", "v"};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<float> a = test::random_numbers(random, rank * in);
    const std::vector<float> b = test::random_numbers(random, parts[i] * rank);
    const std::string module = "model.layers.0.linear_attn.in_proj_" + leaves[i];
    files.add(module + ".lora_A.weight", {rank, in}, a);
    files.add(module + ".lora_B.weight", {parts[i], rank}, b);
    for (std::int64_t row = 0; row < parts[i]; ++row)
      for (std::int64_t column = 0; column < in; ++column)
        for (std::int64_t r = 0; r < rank; ++r)
          wanted[at((first + row) * in + column)] += b[at(row * rank + r)] * a[at(r * in + column)];
    first += parts[i];
  }
  const TemporaryFolder folder;
  files.write(folder.path(), R"({"r": 2, "lora_alpha": 4})");
  const auto adapter = load_adapter(folder.path(), {}, base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  ASSERT_EQ(adapter->sites.size(), 1U);
  const Factors& factors = adapter->sites[0].factors[0];
  EXPECT_EQ(factors.rank, 6);
  EXPECT_EQ(factors.scale, 2);
  const Matrix& a = adapter->matrices[at(factors.a)];
  const Matrix& b = adapter->matrices[at(factors.b)];
  for (std::int64_t row = 0; row < 13; ++row) {
    for (std::int64_t column = 0; column < in; ++column) {
      float sum = 0;
      for (std::int64_t r = 0; r < 6; ++r) sum += b.at(row, r) * a.at(r, column);
      EXPECT_NEAR(sum, wanted[at(row * in + column)], 1e-6) << row << ", " << column;
    }
  }
}

// A list of leaf names matched modules of the vision tower too.
TEST(Conventions, FactorsOfAVisionTowerAreLeftAside) {
  FakeBase base;
  base.add({.site = {0, Projection::q}, .in = 4, .out = 6});
  AdapterFiles files;
  for (const std::string module :
       {"model.language_model.layers.0.self_attn.q_proj", "model.visual.blocks.0.attn.q_proj"}) {
    files.add(module + ".lora_A.weight", {1, 4}, std::vector<float>(4, 1));
    files.add(module + ".lora_B.weight", {6, 1}, std::vector<float>(6, 1));
  }
  const TemporaryFolder folder;
  files.write(folder.path(),
              R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]})");
  const auto adapter = load_adapter(folder.path(), {}, base);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message();
  ASSERT_EQ(adapter->sites.size(), 1U);
  EXPECT_EQ(adapter->sites[0].site, (Site{0, Projection::q}));
}

}  // namespace
}  // namespace motley::lora
