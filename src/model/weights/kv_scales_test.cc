#include "model/weights/kv_scales.h"

#include <cmath>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/number_types.h"
#include "base/system/temporary_folder.h"
#include "model/weights/weight_source.h"
#include "tensor/device/cpu_device.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::model {
namespace {

class ReadKvScales : public testing::Test {
 protected:
  template <class Number>
  void add(std::string_view name, DType type, const tensor::Shape& shape,
           const std::vector<Number>& numbers) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(numbers.data());
    bytes_.emplace_back(bytes, bytes + numbers.size() * sizeof(Number));
    tensors_.push_back(
        {cat("model.layers.3.self_attn.", name), {bytes_.back().data(), type, shape}});
  }
  void add(std::string_view name, float scale) {
    add(name, DType::f32, {}, std::vector<float>{scale});
  }

  // What layer 3 of a checkpoint with these tensors has; no other tensor may be left over.
  Result<KvScales> read() {
    const TemporaryFolder folder;
    MOTLEY_TRY_VOID(tensor::write_checkpoint(folder.path(), "model", tensors_, 1 << 20));
    MOTLEY_TRY(const tensor::Checkpoint checkpoint,
               tensor::Checkpoint::open(folder.path(), "model", FileAccess::copied));
    const quant::Config plain;
    WeightSource source(checkpoint, plain, {.host = device_, .device = device_});
    auto scales = read_kv_scales(source, 3);
    if (scales.ok()) MOTLEY_TRY_VOID(source.finish([](std::string_view) { return false; }));
    return scales;
  }
  void expect(float key, float value) {
    const auto scales = read();
    ASSERT_TRUE(scales.ok()) << scales.error().message();
    EXPECT_TRUE(scales->stored);
    EXPECT_EQ(scales->key, key);
    EXPECT_EQ(scales->value, value);
    tensors_.clear();
  }

  tensor::CpuDevice device_{{.threads = 1}};
  std::list<std::vector<std::byte>> bytes_;
  std::vector<tensor::NamedTensor> tensors_;
};

TEST_F(ReadKvScales, UnderEveryPackersNames) {
  for (const auto& [key, value] : {std::pair{"k_scale", "v_scale"},
                                   {"k_proj.k_scale", "v_proj.v_scale"},
                                   {"k_proj.output_scale", "v_proj.output_scale"}}) {
    add(key, 0.25F);
    add(value, 3.5F);
    expect(0.25F, 3.5F);
  }
  add("kv_scale", 0.125F);
  expect(0.125F, 0.125F);
}

TEST_F(ReadKvScales, OfAnyTypeAndShapeOfOneNumber) {
  add("k_scale", DType::bf16, {1}, std::vector<bf16>{bf16::from(0.5F)});
  add("v_scale", DType::f16, {1, 1}, std::vector<f16>{f16::from(0.75F)});
  expect(0.5F, 0.75F);
}

TEST_F(ReadKvScales, OneAloneIsForBoth) {
  add("k_scale", 0.5F);
  expect(0.5F, 0.5F);
  add("v_proj.v_scale", 0.25F);
  add("k_proj.k_scale", -1.0F);
  expect(0.25F, 0.25F);
}

TEST_F(ReadKvScales, WithoutCalibrationAreOne) {
  add("k_scale", -1.0F);
  add("v_scale", -1.0F);
  const KvScales scales = read().value();
  EXPECT_FALSE(scales.stored);
  EXPECT_EQ(scales.key, 1.0F);
  EXPECT_EQ(scales.value, 1.0F);
}

TEST_F(ReadKvScales, RefusesWhatIsNoNumberByName) {
  add("v_proj.v_scale", NAN);
  const auto scales = read();
  ASSERT_FALSE(scales.ok());
  EXPECT_NE(scales.error().message().find("'model.layers.3.self_attn.v_proj.v_scale'"),
            std::string::npos)
      << scales.error().message();
}

}  // namespace
}  // namespace motley::model
