// Quantised experts that are fused over experts, or listed by projection, have the bits of the same
// experts apart.

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "score/golden_model.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::score_tests {
namespace {

namespace fs = std::filesystem;

// How the fused tensors are named.
enum class Names {
  modules,
  parameters
};  // experts.down_proj.weight_scale, experts.down_proj_scale

struct Stored {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

// "model.layers.0.mlp.experts.3.up_proj.weight_scale" in its pieces. Experts of `mtp` stay apart,
// as in releases.
struct ExpertPart {
  std::string experts;  // "model.layers.0.mlp.experts"
  std::size_t expert;
  std::string projection;
  std::string part;
};
std::optional<ExpertPart> read_name(const std::string& name) {
  constexpr std::string_view word = ".experts.";
  const std::size_t at = name.find(word);
  if (at == std::string::npos || name.starts_with("mtp.")) return std::nullopt;
  const std::size_t number = at + word.size();
  const std::size_t projection = name.find('.', number) + 1;
  const std::size_t part = name.find('.', projection) + 1;
  return ExpertPart{.experts = name.substr(0, number - 1),
                    .expert = std::stoul(name.substr(number, projection - number - 1)),
                    .projection = name.substr(projection, part - projection - 1),
                    .part = name.substr(part)};
}

std::string fused_name(const ExpertPart& of, std::string_view projection, Names names) {
  if (names == Names::modules) return cat(of.experts, ".", projection, ".", of.part);
  return cat(of.experts, ".", projection, of.part.substr(std::string("weight").size()));
}

// Parts of all experts, by name; gate's rows come before up's.
class Fused {
 public:
  explicit Fused(Names names) : names_(names) {}

  void add(const ExpertPart& of, const tensor::ConstTensor& tensor) {
    const bool half = of.projection != "down_proj";
    Entry& entry = entries_[fused_name(of, half ? "gate_up_proj" : "down_proj", names_)];
    entry.dtype = tensor.dtype();
    entry.halves = half ? 2 : 1;
    entry.shape.assign(tensor.shape().dims().begin(), tensor.shape().dims().end());
    const std::size_t place = of.expert * entry.halves + (of.projection == "up_proj" ? 1 : 0);
    if (entry.pieces.size() <= place) entry.pieces.resize(place + 1);
    const auto bytes =
        static_cast<std::size_t>(bytes_of(tensor.dtype(), tensor.elements()).value());
    entry.pieces[place].assign(tensor.bytes(), tensor.bytes() + bytes);
    entry.is_size = of.part == "weight_shape";
  }

  std::map<std::string, Stored> stored() const {
    std::map<std::string, Stored> all;
    for (const auto& [name, entry] : entries_) {
      Stored stored{.dtype = entry.dtype, .shape = entry.shape, .bytes = {}};
      if (entry.is_size) {
        // Sizes are not by expert.
        stored.bytes = entry.pieces.front();
      } else {
        for (const std::vector<std::byte>& piece : entry.pieces)
          stored.bytes.insert(stored.bytes.end(), piece.begin(), piece.end());
        stored.shape[0] *= static_cast<std::int64_t>(entry.halves);
        stored.shape.insert(stored.shape.begin(),
                            static_cast<std::int64_t>(entry.pieces.size() / entry.halves));
      }
      all.emplace(name, std::move(stored));
    }
    return all;
  }

 private:
  struct Entry {
    DType dtype = DType::f32;
    std::size_t halves = 1;
    std::vector<std::int64_t> shape;
    std::vector<std::vector<std::byte>> pieces;
    bool is_size = false;
  };

  Names names_;
  std::map<std::string, Entry> entries_;
};

// The golden's checkpoint with fused experts.
void write_fused(const fs::path& golden, const fs::path& folder, Names names) {
  const auto checkpoint = tensor::Checkpoint::open(golden, "model").value();
  std::vector<tensor::NamedTensor> tensors;
  Fused fused(names);
  for (const auto& item : checkpoint.items()) {
    if (const auto part = read_name(item.name())) {
      fused.add(*part, item.tensor());
    } else {
      tensors.push_back({item.name(), item.tensor()});
    }
  }
  const std::map<std::string, Stored> all = fused.stored();
  for (const auto& [name, stored] : all) {
    tensors.push_back({name, tensor::ConstTensor(stored.bytes.data(), stored.dtype,
                                                 tensor::Shape::make(stored.shape).value())});
  }
  tensor::write_checkpoint(folder, "model", tensors, UINT64_MAX).value();
  fs::copy_file(golden / "config.json", folder / "config.json");
}

// The golden's checkpoint with experts.gate_proj.3 in place of experts.3.gate_proj.
void write_by_projection(const fs::path& golden, const fs::path& folder) {
  const auto checkpoint = tensor::Checkpoint::open(golden, "model").value();
  std::vector<tensor::NamedTensor> tensors;
  for (const auto& item : checkpoint.items()) {
    const auto part = read_name(item.name());
    tensors.push_back(
        {part ? cat(part->experts, ".", part->projection, ".", part->expert, ".", part->part)
              : item.name(),
         item.tensor()});
  }
  tensor::write_checkpoint(folder, "model", tensors, UINT64_MAX).value();
  fs::copy_file(golden / "config.json", folder / "config.json");
}

void expect_bits_of(const std::string& model, const fs::path& folder,
                    const GoldenModel::Options& options) {
  GoldenModel::Options of_other = options;
  of_other.folder = folder;
  GoldenModel golden(model, options);
  GoldenModel other(model, of_other);
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<runner::ScoreLine> lines = golden.lines_of(each);
    const auto wanted = golden.score(lines, std::vector(lines.size(), golden.mix_of(each)));
    const auto got = other.score(lines, std::vector(lines.size(), other.mix_of(each)));
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(got[i].token_logprobs, wanted[i].token_logprobs)
          << *at(each, "name").if_string() << ", " << options.ranks << " ranks";
  }
}

struct Case {
  const char* model;
  Names names;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << (c.names == Names::modules ? ", modules" : ", parameters");
}

class FusedExperts : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Goldens, FusedExperts,
                         testing::Values(Case{"qwen3_moe_w4a16", Names::modules},
                                         Case{"qwen3_moe_w4a16", Names::parameters},
                                         Case{"qwen3_5_moe_fp8", Names::modules},
                                         Case{"qwen3_5_moe_fp8", Names::parameters},
                                         Case{"qwen3_5_moe_w4a16", Names::parameters},
                                         Case{"qwen3_5_moe_nvfp4", Names::modules},
                                         Case{"qwen3_5_moe_mxfp4", Names::parameters}));

// On ranks that cut experts inside a block, too.
TEST_P(FusedExperts, HaveTheBitsOfExpertsApart) {
  const TemporaryFolder folder;
  write_fused(goldens_folder() / GetParam().model, folder.path(), GetParam().names);
  for (const int ranks : {1, 3})
    expect_bits_of(GetParam().model, folder.path(), {.threads = 1, .ranks = ranks});
}

TEST(ListedExperts, HaveTheBitsOfExpertsApart) {
  const TemporaryFolder folder;
  write_by_projection(goldens_folder() / "qwen3_moe_nvfp4", folder.path());
  for (const int groups : {1, 2})
    expect_bits_of("qwen3_moe_nvfp4", folder.path(),
                   {.threads = 1, .ranks = groups, .expert_groups = groups});
}

// Blocks of 32 rows hold rows of gate and of up where those have 48.
TEST(FusedCodes, RefuseBlocksThatGateAndUpShare) {
  const TemporaryFolder folder;
  write_fused(goldens_folder() / "qwen3_moe_fp8", folder.path(), Names::parameters);
  const auto device =
      tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {.threads = 1}).value();
  const auto model = model::Model::load(folder.path(), *device, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message().find("gate and up of 48 rows share blocks of 32"),
            std::string::npos)
      << model.error().message();
}

}  // namespace
}  // namespace motley::score_tests
