#include "server/api/fields/routed_fields.h"

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::server {
namespace {

constexpr engine::RoutedExpertsSizes kept{.layers = 3, .top_k = 2, .experts = 64};

struct Read {
  GenerationFields fields;
  std::vector<std::string> ignored;
  Error error{ErrorCode::internal, ""};
  bool ok = false;
};

Read read(std::string_view body, const engine::RoutedExpertsSizes& sizes,
          RoutedInStreams streams = RoutedInStreams::no, bool stream = false) {
  Read all;
  const json::Value value = json::parse(body, "body").value();
  Fields fields(*value.if_object(), "", &all.ignored);
  all.fields.stream = stream;
  const Result<void> done = read_routed_fields(fields, sizes, streams, all.fields);
  all.ok = done.ok();
  if (!done.ok()) all.error = done.error();
  EXPECT_TRUE(fields.finish().ok());
  return all;
}

TEST(RoutedFields, AreReadWhereTheServerKeepsExperts) {
  EXPECT_EQ(read("{}", kept).fields.routed_experts_from, 0);
  EXPECT_EQ(read("{}", kept).fields.routed_experts, kept);
  EXPECT_EQ(read(R"({"return_routed_experts": true, "routed_experts_prompt_start": 7})", kept)
                .fields.routed_experts_from,
            7);
  EXPECT_FALSE(read(R"({"return_routed_experts": false, "routed_experts_prompt_start": 7})", kept)
                   .fields.routed_experts_from);
  EXPECT_EQ(read(R"({"routed_experts_prompt_start": null})", kept).fields.routed_experts_from, 0);
}

TEST(RoutedFields, AskForNothingElsewhere) {
  for (const char* const body :
       {"{}", R"({"return_routed_experts": false})", R"({"routed_experts_prompt_start": 0})",
        R"({"return_routed_experts": null, "routed_experts_prompt_start": null})"}) {
    const Read all = read(body, {});
    EXPECT_TRUE(all.ok) << body;
    EXPECT_FALSE(all.fields.routed_experts_from) << body;
    EXPECT_FALSE(all.fields.routed_experts.kept()) << body;
  }
  for (const char* const field :
       {R"("return_routed_experts": true)", R"("routed_experts_prompt_start": 1)"}) {
    const Read all = read(cat("{", field, "}"), {});
    EXPECT_FALSE(all.ok) << field;
    EXPECT_NE(all.error.message().find("--enable-return-routed-experts"), std::string::npos);
    EXPECT_NE(std::string_view(field).find(all.error.where()), std::string_view::npos);
  }
}

TEST(RoutedFields, OfAStreamAreThoseOfItsRoute) {
  EXPECT_FALSE(read("{}", kept, RoutedInStreams::no, true).fields.routed_experts_from);
  EXPECT_EQ(read("{}", kept, RoutedInStreams::yes, true).fields.routed_experts_from, 0);
  const Read refused = read(R"({"return_routed_experts": true})", kept, RoutedInStreams::no, true);
  EXPECT_FALSE(refused.ok);
  EXPECT_EQ(refused.error.where(), "return_routed_experts");
  const Read ignored =
      read(R"({"routed_experts_prompt_start": 4})", kept, RoutedInStreams::no, true);
  EXPECT_EQ(ignored.ignored, std::vector<std::string>{"routed_experts_prompt_start"});
}

TEST(RoutedFields, OutOfRangeAreRefused) {
  for (const char* const value : {"-1", "2147483648", "1.5", "\"3\"", "[]", "true", "1e30"})
    EXPECT_FALSE(read(cat(R"({"routed_experts_prompt_start": )", value, "}"), kept).ok) << value;
  for (const char* const value : {"1", "\"true\"", "{}"})
    EXPECT_FALSE(read(cat(R"({"return_routed_experts": )", value, "}"), kept).ok) << value;
}

}  // namespace
}  // namespace motley::server
