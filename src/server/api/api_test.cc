#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/temporary_folder.h"
#include "server/api/api_error.h"
#include "server/api/api_keys.h"
#include "server/api/fields.h"
#include "server/http/body_budget.h"
#include "server/http/message.h"
#include "server/metrics.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

json::Object object(std::string_view text) {
  return *json::parse(text, "test").value().if_object();
}

TEST(Fields, IntegersMayBeWrittenAsNumbers) {
  const json::Object body = object(R"({"a": 3.0, "b": 1e3, "c": 2.5, "d": 1e300, "e": null})");
  Fields fields(body);
  EXPECT_EQ(fields.integer("a", 0, 9).value(), 3);
  EXPECT_EQ(fields.integer("b", 0, 1000).value(), 1000);
  EXPECT_FALSE(fields.integer("c", 0, 9).ok());
  EXPECT_FALSE(fields.integer("d").ok());
  EXPECT_EQ(fields.integer("e", 0, 9).value(), std::nullopt);
}

TEST(Fields, ErrorsStandAtThePath) {
  const json::Object body = object(R"({"list": ["x", 1], "odd": 1})");
  Fields fields(body, "outer");
  EXPECT_EQ(fields.strings("list", 9).error().where(), "outer.list[1]");
  EXPECT_EQ(fields.strings("list", 1).error().where(), "outer.list");
  EXPECT_EQ(fields.refuse_others().error().where(), "outer.odd");
}

TEST(ApiError, SaysParamOnlyWhereTheRequestIsAtFault) {
  EXPECT_THAT(error_body({ErrorCode::invalid_argument, "bad", "top_p", "mend it"}),
              HasSubstr(R"("param":"top_p")"));
  EXPECT_THAT(error_body({ErrorCode::io, "disk", "/secret/place"}), HasSubstr(R"("param":null)"));
  EXPECT_EQ(error_response({ErrorCode::not_implemented, "x"}).status, 501);
}

TEST(ApiError, WhatIsTooLongDecidesStatusAndCode) {
  const auto of = [](std::string_view where) {
    return error_response({ErrorCode::too_long, "long", std::string(where)});
  };
  EXPECT_EQ(of("").status, 413);
  EXPECT_EQ(of(target_place).status, 414);
  EXPECT_THAT(of(target_place).body, HasSubstr(R"("param":null,"code":"too_long")"));
  for (const std::string_view field : {"messages", "prompt", "prompt[3]"}) {
    EXPECT_EQ(of(field).status, 400);
    EXPECT_THAT(of(field).body, HasSubstr(R"("type":"invalid_request_error")"));
    EXPECT_THAT(of(field).body, HasSubstr(R"("code":"context_length_exceeded")"));
  }
  EXPECT_EQ(of("guided_regex").status, 400);
  EXPECT_THAT(of("guided_regex").body, HasSubstr(R"("code":"too_long")"));
}

TEST(ApiKeys, ComeFromAFileThatHoldsSome) {
  const TemporaryFolder folder;
  const auto keys = ApiKeys::load(folder.file("keys", "# ours\nalpha\r\n\nbeta \t\n")).value();
  EXPECT_TRUE(keys.allow("Bearer alpha"));
  EXPECT_TRUE(keys.allow("bearer beta"));
  EXPECT_FALSE(keys.allow("Bearer "));
  EXPECT_FALSE(keys.allow("Bearer # ours"));
  EXPECT_FALSE(keys.allow("Bearer alphabeta"));
  EXPECT_FALSE(ApiKeys::load(folder.file("none", "# nobody\n")).ok());
  EXPECT_TRUE(ApiKeys().allow(""));
}

TEST(BodyBudget, SharesAreGivenBack) {
  BodyBudget budget(10);
  {
    BodyBudget::Share one(budget);
    EXPECT_TRUE(one.grow(6));
    BodyBudget::Share other(budget);
    EXPECT_FALSE(other.grow(5));
    EXPECT_TRUE(other.grow(4));
    other = {};
    EXPECT_TRUE(one.grow(4));
  }
  BodyBudget::Share again(budget);
  EXPECT_TRUE(again.grow(10));
}

TEST(RequestId, IsRepeatedOnlyIfItIsFit) {
  EXPECT_TRUE(is_request_id("a-B_3.4:5"));
  EXPECT_FALSE(is_request_id(""));
  EXPECT_FALSE(is_request_id("a b"));
  EXPECT_FALSE(is_request_id("a\r\nSet-Cookie: x"));
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
  EXPECT_NE(new_request_id(), new_request_id());
}

TEST(Metrics, LinesOfAdaptersAreBounded) {
  engine::Stats stats;
  for (int i = 0; i < 300; ++i)
    stats.adapters.push_back({.name = cat("a", i), .pages = 1, .running = i < 2 ? 1 : 0});
  stats.adapters[250].pages = 9;
  const std::string page = metrics_page(stats, HttpCounts(), 1.5);
  EXPECT_THAT(page, HasSubstr("motley_adapter_pages{adapter=\"a250\"} 9\n"));
  EXPECT_THAT(page, HasSubstr("motley_adapter_pages{adapter=\"(others)\"} 200\n"));
  EXPECT_THAT(page, Not(HasSubstr("adapter=\"a299\"")));
  EXPECT_THAT(page, HasSubstr("running_lora_adapters=\"a0,a1\",waiting_lora_adapters=\"\"} 1.5\n"));
}

TEST(Metrics, NamesInALabelAreBounded) {
  engine::Stats stats;
  for (int i = 0; i < 1000; ++i)
    stats.adapters.push_back({.name = cat("a", i + 1000), .waiting = i < 800 ? 1 : 2});
  const std::string page = metrics_page(stats, HttpCounts(), 1.5);
  const std::size_t begin = page.find("waiting_lora_adapters=\"");
  const std::string label = page.substr(begin, page.find('}', begin) - begin);
  EXPECT_EQ(std::ranges::count(label, ','), 255);
  // All that two sequences wait for, and of the others the first.
  EXPECT_THAT(label, HasSubstr("=\"a1000,a1001,"));
  EXPECT_THAT(label, HasSubstr(",a1055,a1800,"));
  EXPECT_TRUE(label.ends_with(",a1999\""));
}

}  // namespace
}  // namespace motley::server
