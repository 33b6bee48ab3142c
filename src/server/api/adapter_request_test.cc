#include "server/api/adapter_request.h"

#include <gtest/gtest.h>

#include "base/json/json.h"

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

}  // namespace
}  // namespace motley::server
