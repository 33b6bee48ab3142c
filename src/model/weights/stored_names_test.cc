#include "model/weights/stored_names.h"

#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::model {
namespace {

// The names of a checkpoint with those tensors.
StoredNames names_of(std::initializer_list<std::string_view> tensors) {
  const TemporaryFolder folder;
  const float number = 1;
  std::vector<tensor::NamedTensor> all;
  for (const std::string_view name : tensors)
    all.push_back(
        {std::string(name),
         tensor::ConstTensor(reinterpret_cast<const std::byte*>(&number), DType::f32, {1})});
  tensor::write_checkpoint(folder.path(), "model", all, 1 << 20).value();
  return StoredNames(tensor::Checkpoint::open(folder.path(), "model").value());
}

TEST(StoredNames, FollowTheFilesWrapper) {
  const StoredNames plain = names_of({"model.norm.weight", "model.layers.0.a", "lm_head.weight"});
  EXPECT_EQ(plain.stored("model.layers.3.mlp.gate"), "model.layers.3.mlp.gate");
  EXPECT_EQ(plain.stored("lm_head"), "lm_head");
  const StoredNames inner = names_of({"model.language_model.norm.weight", "model.visual.x"});
  EXPECT_EQ(inner.stored("model.layers.3.mlp.gate"), "model.language_model.layers.3.mlp.gate");
  EXPECT_EQ(inner.stored("lm_head.weight"), "lm_head.weight");
  const StoredNames outer = names_of({"language_model.model.norm.weight"});
  EXPECT_EQ(outer.stored("model.norm.weight"), "language_model.model.norm.weight");
  EXPECT_EQ(outer.stored("lm_head.weight"), "language_model.lm_head.weight");
}

TEST(StoredNames, EveryWrappersNameMeansOne) {
  for (const std::string_view name :
       {"model.layers.0.x", "model.language_model.layers.0.x", "language_model.model.layers.0.x"})
    EXPECT_EQ(StoredNames::plain(name), "model.layers.0.x");
  for (const std::string_view name : {"lm_head.weight", "language_model.lm_head.weight"})
    EXPECT_EQ(StoredNames::plain(name), "lm_head.weight");
  EXPECT_EQ(StoredNames::plain("model.visual.blocks.0.x"), "model.visual.blocks.0.x");
  EXPECT_EQ(StoredNames::plain("mtp.fc.weight"), "mtp.fc.weight");
}

}  // namespace
}  // namespace motley::model
