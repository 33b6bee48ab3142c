#include "lora/files/content.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/sha256.h"
#include "base/system/temporary_folder.h"
#include "base/system/unnamed_file.h"
#include "lora/files/load.h"
#include "lora/test_base.h"

namespace motley::lora {
namespace {

using testing::HasSubstr;

constexpr std::string_view config = R"({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})";
const std::string q = "model.layers.0.self_attn.q_proj.";

test::AdapterFiles files_of_q(float first = 1) {
  test::AdapterFiles files;
  std::vector<float> a(48, 0.5F);
  a.front() = first;
  files.add(q + "lora_A.weight", {2, 24}, a);
  files.add(q + "lora_B.weight", {32, 2}, std::vector<float>(64, 2.0F));
  return files;
}

// A folder's tensors as one file with that metadata.
MappedFile body_of(const std::filesystem::path& folder,
                   const std::map<std::string, std::string>& metadata) {
  const auto tensors = tensor::Checkpoint::open(folder, "adapter_model").value();
  std::vector<tensor::NamedTensor> named;
  for (const auto& item : tensors.items()) named.push_back({item.name(), item.tensor()});
  const TemporaryFolder other;
  tensor::write_safetensors(other.path() / "body", named, metadata).value();
  UnnamedFile file = UnnamedFile::create({}).value();
  file.write(read_text(other.path() / "body", 1 << 20).value()).value();
  return std::move(file).map("body").value();
}

std::string refusal_of(const std::map<std::string, std::string>& metadata) {
  const TemporaryFolder folder;
  files_of_q().write(folder.path(), std::string(config));
  const auto content = AdapterContent::of(body_of(folder.path(), metadata), "poet");
  return content.ok() ? "none" : content.error().message();
}

TEST(AdapterContent, LoadsAsItsFolderDoes) {
  const TemporaryFolder folder;
  files_of_q().write(folder.path(), std::string(config));
  const test::FakeBase base = test::make_base({});
  const LoadOptions options{.partial = true};
  const Adapter from_folder = load_adapter(folder.path(), options, base).value();
  const auto pushed =
      AdapterContent::of(body_of(folder.path(), {{"adapter_config", std::string(config)}}), "poet")
          .value();
  const auto copied = AdapterContent::copy_of(folder.path(), "poet", {}).value();
  for (const auto* const content : {pushed.get(), copied.get()}) {
    const Adapter loaded = load_adapter(*content, options, base).value();
    EXPECT_EQ(loaded.version, from_folder.version);
    ASSERT_EQ(loaded.matrices.size(), from_folder.matrices.size());
    for (std::size_t i = 0; i < loaded.matrices.size(); ++i)
      EXPECT_EQ(loaded.matrices[i].numbers(), from_folder.matrices[i].numbers());
    // Again, as after an eviction.
    EXPECT_EQ(load_adapter(*content, options, base).value().version, from_folder.version);
  }
  EXPECT_EQ(pushed->checksum(), copied->checksum());
}

TEST(AdapterContent, NeedsItsFilesNoMoreOnceTheyAreCopied) {
  const TemporaryFolder disk;
  std::unique_ptr<AdapterContent> content;
  std::uint64_t taken = 0;
  {
    const TemporaryFolder folder;
    files_of_q().write(folder.path(), std::string(config));
    AdapterContent::Copying copying{.take = [&](std::uint64_t bytes) -> Result<void> {
      taken += bytes;
      return {};
    }};
    copying.rules.copies_in = disk.path();
    content = AdapterContent::copy_of(folder.path(), "poet", copying).value();
  }
  EXPECT_TRUE(load_adapter(*content, {.partial = true}, test::make_base({})).ok());
  EXPECT_EQ(taken + config.size(), content->bytes());
  EXPECT_EQ(list_folder(disk.path()).value().size(), 0U);
}

TEST(AdapterContent, IsNotCopiedWhereItIsRefused) {
  const TemporaryFolder folder;
  files_of_q().write(folder.path(), std::string(config));
  const auto refused = AdapterContent::copy_of(
      folder.path(), "poet",
      {.take = [](std::uint64_t) -> Result<void> { return Error(ErrorCode::busy, "no room"); }});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::busy);
}

// In Python: sha256(b"".join(sha256(tensors[name]).digest() for name in sorted(tensors)))
TEST(AdapterContent, HasAChecksumOfItsTensorsInTheOrderOfNames) {
  const TemporaryFolder folder;
  files_of_q().write(folder.path(), std::string(config));
  const auto content = AdapterContent::copy_of(folder.path(), "poet", {}).value();
  Sha256 all;
  for (const char* const part : {"lora_A.weight", "lora_B.weight"}) {
    Sha256 one;
    const auto* const item = content->tensors().find(cat("base_model.model.", q, part));
    ASSERT_NE(item, nullptr);
    one.add({item->tensor().bytes(), item->entry->end - item->entry->begin});
    all.add(one.digest());
  }
  EXPECT_EQ(content->checksum(), to_hex(all.digest()));
  const TemporaryFolder other;
  files_of_q(2).write(other.path(), std::string(config));
  EXPECT_NE(AdapterContent::copy_of(other.path(), "poet", {}).value()->checksum(),
            content->checksum());
}

TEST(AdapterContent, NamesWhatItsMetadataLacks) {
  EXPECT_THAT(refusal_of({}), HasSubstr("no adapter_config in the metadata (body)"));
  EXPECT_THAT(refusal_of({{"adapter_config", "{"}}), HasSubstr("body, adapter_config"));
  EXPECT_THAT(refusal_of({{"adapter_config", "[]"}}), HasSubstr("body, adapter_config"));
  EXPECT_THAT(refusal_of({{"adapter_config", "{}"}}), HasSubstr("is missing"));
}

TEST(AdapterContent, NamesATensorThatTheBaseLacks) {
  const TemporaryFolder folder;
  test::AdapterFiles files = files_of_q();
  files.add("model.layers.7.self_attn.q_proj.lora_A.weight", {2, 24}, std::vector<float>(48));
  files.write(folder.path(), std::string(config));
  const auto content = AdapterContent::copy_of(folder.path(), "poet", {}).value();
  const auto loaded = load_adapter(*content, {.partial = true}, test::make_base({}));
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message(), HasSubstr("model.layers.7.self_attn.q_proj"));
}

}  // namespace
}  // namespace motley::lora
