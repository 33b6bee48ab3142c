#include "server/api/adapter_request.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "base/system/temporary_folder.h"

namespace motley::server {
namespace {

Result<LoadAdapterRequest> read(std::string_view text) {
  return read_load_adapter_request(json::parse(text, "test").value());
}

TEST(LoadAdapterRequest, CarriesWhatTheFileCannotSay) {
  const auto plain = read(R"({"lora_name": "poet", "lora_path": "a/b"})").value();
  EXPECT_EQ(plain.spec.name, "poet");
  EXPECT_EQ(plain.spec.path, "a/b");
  EXPECT_FALSE(plain.spec.load.partial);
  EXPECT_EQ(plain.spec.load.orientation, lora::Orientation::automatic);
  const auto told = read(R"({"lora_name": "poet", "lora_path": "a/b", "partial": true,
                             "orientation": "swapped", "b_columns": "expert-major"})")
                        .value();
  EXPECT_TRUE(told.spec.load.partial);
  EXPECT_EQ(told.spec.load.orientation, lora::Orientation::swapped);
  EXPECT_EQ(told.spec.load.b_columns, lora::BColumns::expert_major);
}

TEST(LoadAdapterRequest, PartialIsTrueOrFalse) {
  const auto bad = read(R"({"lora_name": "poet", "lora_path": "a", "partial": "yes"})");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().where(), "partial");
}

// The loader opens the files later, when a link may lead elsewhere.
TEST(PlaceAdapter, WhatIsOpenedLaterMustLieInTheRootToo) {
  const TemporaryFolder folder;
  const TemporaryFolder outside;
  outside.file("adapter_config.json", "secret");
  const std::filesystem::path root = std::filesystem::canonical(folder.path());
  std::filesystem::create_directory(root / "poet");
  folder.file("poet/adapter_config.json", "open");
  std::filesystem::create_directory_symlink(root, outside.path() / "to_root");
  engine::AdapterSpec spec{.name = "poet", .path = "poet"};
  ASSERT_TRUE(place_adapter(spec, outside.path() / "to_root").ok());
  EXPECT_EQ(spec.path, root / "poet");
  EXPECT_EQ(spec.load.beneath, root);
  const auto read = [&] {
    return read_text(spec.path / "adapter_config.json", 100, spec.load.beneath);
  };
  EXPECT_EQ(read().value(), "open");
  // Another process exchanges the folder for a link.
  std::filesystem::remove_all(root / "poet");
  std::filesystem::create_directory_symlink(outside.path(), root / "poet");
  EXPECT_FALSE(read().ok());
  engine::AdapterSpec anywhere{.name = "poet", .path = outside.path()};
  ASSERT_TRUE(place_adapter(anywhere, std::nullopt).ok());
  EXPECT_TRUE(anywhere.load.beneath.empty());
}

// A whole Hugging Face cache as the root: files of its snapshots are links to blobs.
TEST(PlaceAdapter, LinksMayStayInTheRootAndNotLeaveIt) {
  namespace fs = std::filesystem;
  const TemporaryFolder cache;
  const TemporaryFolder outside;
  const std::string folder = "models--acme--poet/snapshots/abc";
  fs::create_directories(cache / folder);
  fs::create_directories(cache / "models--acme--poet/blobs");
  cache.file("models--acme--poet/blobs/1", "inside");
  fs::create_symlink("../../blobs/1", cache / folder / "adapter_config.json");
  engine::AdapterSpec spec{.name = "poet", .path = folder};
  ASSERT_TRUE(place_adapter(spec, cache.path()).ok());
  const auto read = [&] {
    return read_text(spec.path / "adapter_config.json", 100, spec.load.beneath);
  };
  EXPECT_EQ(read().value(), "inside");
  // The blobs of another disk.
  outside.file("2", "outside");
  fs::create_symlink(outside.path() / "2", cache / folder / "adapter_model.safetensors");
  const auto refused = place_adapter(spec = {.name = "poet", .path = folder}, cache.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().what(),
            "'models--acme--poet/snapshots/abc/adapter_model.safetensors' lies outside "
            "--adapter-root");
  // A snapshot that leads out as a whole.
  fs::create_directory_symlink(outside.path(), cache / "models--acme--poet/snapshots/out");
  spec = {.name = "poet", .path = "models--acme--poet/snapshots/out"};
  EXPECT_FALSE(place_adapter(spec, cache.path()).ok());
}

}  // namespace
}  // namespace motley::server
