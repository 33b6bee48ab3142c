// Which tensors of a checkpoint a model takes, which it leaves out, and what it refuses by name.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "score/golden_model.h"
#include "tensor/device/cpu_device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::score_tests {
namespace {

namespace fs = std::filesystem;

// A golden with other tensors.
class CheckpointTensors : public testing::Test {
 protected:
  void open(const std::string& golden) {
    golden_ = goldens_folder() / golden;
    checkpoint_.emplace(tensor::Checkpoint::open(golden_, "model", FileAccess::mapped).value());
    tensors_.clear();
    for (const tensor::Checkpoint::Item& item : checkpoint_->items())
      tensors_.push_back({std::string(item.name()), item.tensor()});
  }
  tensor::NamedTensor& find(std::string_view name) {
    for (tensor::NamedTensor& each : tensors_)
      if (each.name == name) return each;
    ADD_FAILURE() << "no tensor " << name;
    return tensors_.front();
  }
  void add(const std::string& name) {
    static constexpr float number = 1;
    tensors_.push_back({name, {reinterpret_cast<const std::byte*>(&number), DType::f32, {1}}});
  }
  // The error of loading it, or nothing.
  std::string error() {
    const TemporaryFolder folder;
    for (const auto& entry : fs::directory_iterator(golden_)) {
      if (entry.path().extension() == ".json" &&
          entry.path().filename() != "model.safetensors.index.json")
        fs::copy_file(entry.path(), folder.path() / entry.path().filename());
    }
    tensor::write_checkpoint(folder.path(), "model", tensors_, 1 << 30).value();
    tensor::CpuDevice device({.threads = 1});
    const auto model = model::Model::load(folder.path(), device, {});
    return model.ok() ? "" : model.error().message();
  }
  void expect_refused(std::string_view name, std::string_view reason) {
    const std::string message = error();
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }

  fs::path golden_;
  std::optional<tensor::Checkpoint> checkpoint_;
  std::vector<tensor::NamedTensor> tensors_;
};

// What predicts further tokens stands behind the last layer, or apart.
TEST_F(CheckpointTensors, ThoseOfOtherTasksAreLeftOut) {
  open("deepseek_v3");  // of three layers
  for (const char* const name :
       {"model.layers.3.eh_proj.weight", "model.layers.3.mlp.experts.0.up_proj.weight",
        "mtp.fc.weight", "visual.patch_embed.proj.weight", "model.visual.merger.norm.weight",
        "vision_tower.x", "model.layers.0.self_attn.rotary_emb.inv_freq"})
    add(name);
  EXPECT_EQ(error(), "");
}

TEST_F(CheckpointTensors, OthersHaveNoPlaceByName) {
  for (const char* const name : {"model.layers.2.eh_proj.weight", "model.layers.0.mtp.fc.weight",
                                 "model.layers.0.self_attn.inv_freq"}) {
    open("deepseek_v3");
    add(name);
    expect_refused(name, "no place for");
  }
}

// gpt-oss's own files, whose experts lie in blocks of 32 inputs.
TEST_F(CheckpointTensors, DamagedBlocksAreRefusedByName) {
  const std::string experts = "model.layers.1.mlp.experts.";
  const auto refuse = [&](const std::string& part, DType type, const tensor::Shape& shape,
                          std::string_view reason) {
    open("gpt_oss_mxfp4");
    tensor::NamedTensor& stored = find(experts + part);
    stored.tensor = {stored.tensor.bytes(), type, shape};
    expect_refused(cat("'", experts, part, "'"), reason);
  };
  refuse("gate_up_proj_blocks", DType::u8, {5, 128, 1, 16}, "[5, 128, 2, 16] is needed");
  refuse("gate_up_proj_blocks", DType::i8, {5, 128, 2, 16}, "U8 [5, 128, 2, 16]");
  refuse("gate_up_proj_scales", DType::u8, {5, 128, 1}, "U8 [5, 128, 2]");
  refuse("down_proj_scales", DType::u8, {5, 32, 2}, "U8 [5, 64, 2]");

  open("gpt_oss_mxfp4");
  std::erase_if(tensors_,
                [&](const auto& each) { return each.name == experts + "down_proj_scales"; });
  expect_refused(cat("'", experts, "down_proj_scales'"), "no tensor");

  // The one code of a scale that is no number.
  for (const std::string_view part : {"gate_up_proj_scales", "down_proj_scales"}) {
    open("gpt_oss_mxfp4");
    tensor::NamedTensor& stored = find(cat(experts, part));
    const auto bytes = static_cast<std::size_t>(stored.tensor.elements());
    std::vector<std::byte> scales(stored.tensor.bytes(), stored.tensor.bytes() + bytes);
    scales[bytes - 3] = std::byte{0xFF};
    stored.tensor = {scales.data(), DType::u8, stored.tensor.shape()};
    expect_refused(cat("'", experts, part, "'"), "not finite");
  }
}

// A multimodal wrapper's names, in lists of modules and in errors.
constexpr std::string_view delta_net = "model.language_model.layers.0.linear_attn";

// By its name, by a pattern of names, and by layers that a list of algorithms leaves out.
TEST_F(CheckpointTensors, CodesOfAModuleThatStaysPlainAreRefusedByName) {
  const auto refuse = [&](const std::string& golden, std::string_view plain,
                          std::string_view coded) {
    open(golden);
    const std::string module = cat(delta_net, ".", plain);
    std::erase_if(tensors_, [&](const auto& each) { return each.name == module + ".weight"; });
    const std::string prefix = cat(delta_net, ".", coded, ".");
    const std::vector<tensor::NamedTensor> all = tensors_;
    std::string codes;
    for (const tensor::NamedTensor& each : all) {
      if (!each.name.starts_with(prefix)) continue;
      const std::string part = each.name.substr(prefix.size());
      if (part == "weight" || part == "weight_packed") codes = cat(module, ".", part);
      tensors_.push_back({cat(module, ".", part), each.tensor});
    }
    std::ranges::sort(tensors_, {}, &tensor::NamedTensor::name);
    expect_refused(codes, "leaves this module plain");
  };
  refuse("qwen3_5_moe_w4a16", "in_proj_b", "in_proj_z");
  refuse("qwen3_5_moe_nvfp4", "in_proj_a", "in_proj_z");
}

TEST_F(CheckpointTensors, ScalesOfADeltaNetThatDontFitAreRefusedByName) {
  const std::string scales = cat(delta_net, ".in_proj_qkv.weight_scale_inv");
  open("qwen3_5_moe_fp8");
  std::erase_if(tensors_, [&](const auto& each) { return each.name == scales; });
  expect_refused(scales, "missing");
  open("qwen3_5_moe_fp8");
  tensor::NamedTensor& stored = find(scales);
  stored.tensor = {stored.tensor.bytes(), stored.tensor.dtype(), {stored.tensor.dim(0) - 1, 2}};
  expect_refused(scales, "[5, 2]");
}

// Exports that quantise fewer modules than their configuration says.
TEST_F(CheckpointTensors, APlainWeightOfAQuantisedModuleIsTaken) {
  open("qwen3_5_moe_fp8");
  const std::string module = cat(delta_net, ".out_proj");
  tensor::NamedTensor& stored = find(module + ".weight");
  const tensor::Shape shape = stored.tensor.shape();
  const std::vector<float> numbers(static_cast<std::size_t>(shape.elements()), 0.5F);
  stored.tensor = {reinterpret_cast<const std::byte*>(numbers.data()), DType::f32, shape};
  expect_refused(module + ".weight_scale_inv", "");  // with a scale it means two things
  std::erase_if(tensors_,
                [&](const auto& each) { return each.name == module + ".weight_scale_inv"; });
  EXPECT_EQ(error(), "");
}

}  // namespace
}  // namespace motley::score_tests
