#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/random_id.h"
#include "base/system/temporary_folder.h"
#include "server/api/api_error.h"
#include "server/api/api_keys.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/generation_fields.h"
#include "server/api/fields/notices.h"
#include "server/api/messages/error.h"
#include "server/http/messages/message.h"

namespace motley::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

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
  EXPECT_EQ(fields.finish().error().where(), "outer.odd");
}

json::Object of_odd_fields(int count, std::string_view value) {
  std::string text = R"({"known": 1)";
  for (int i = 0; i < count; ++i) text += cat(", \"odd", i, "\": ", value);
  return object(text + "}");
}

TEST(Fields, ThatAreIgnoredAreNotedUntilTheListIsFull) {
  std::vector<std::string> ignored;
  const auto finish = [&](const json::Object& body, std::vector<std::string>* list) {
    Fields fields(body, "", list);
    fields.take("known");
    return fields.finish();
  };
  EXPECT_TRUE(finish(of_odd_fields(100, "null"), nullptr).ok());
  EXPECT_TRUE(finish(of_odd_fields(31, "1"), &ignored).ok());
  EXPECT_EQ(ignored.size(), 31U);
  EXPECT_TRUE(finish(of_odd_fields(100, "1"), &ignored).ok());
  EXPECT_EQ(ignored.size(), 33U) << "those of the header and one more";
  EXPECT_TRUE(serving::notices_full(ignored));
  EXPECT_EQ(ignored.back(), "odd1");
  // If nothing may be ignored, every field is checked.
  EXPECT_EQ(finish(of_odd_fields(100, "1"), nullptr).error().where(), "odd0");
}

TEST(Notices, SayInTheHeaderWhereTheirListIsCut) {
  for (const bool unenforced : {false, true}) {
    const auto header = [&](int places) {
      serving::Notices notices;
      for (int i = 0; i < places; ++i)
        serving::add_notice(cat("p", i), unenforced ? notices.unenforced : notices.ignored);
      return notice_headers(notices).at(0);
    };
    EXPECT_EQ(header(32).first, unenforced ? "x-motley-unenforced" : "x-motley-ignored");
    EXPECT_THAT(header(32).second, EndsWith(", p30, p31"));
    EXPECT_THAT(header(33).second, EndsWith(", p31, ..."));
    EXPECT_THAT(header(1000).second, EndsWith(", p31, ..."));
  }
  serving::Notices longer;
  for (int i = 0; i < 20; ++i) serving::add_notice(std::string(100, 'p'), longer.ignored);
  EXPECT_THAT(notice_headers(longer).at(0).second, EndsWith("p, ..."));
}

// Captures what is logged during its lifetime.
class LogLines {
 public:
  LogLines() {
    log::configure({.level = log::Level::info,
                    .format = log::Format::text,
                    .sink = [this](std::string_view line) { lines_.emplace_back(line); }});
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines() { log::configure({}); }

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

TEST(IgnoredFieldsLog, SaysEachFieldOnceInWhicheverEntryOfAList) {
  const LogLines log;
  const std::vector<std::string>& lines = log.lines();
  IgnoredFieldsLog ignored;
  ignored.say({"messages[0].odd", "messages[17].odd", "odd"});
  ignored.say({"odd", "messages[3].odd"});
  EXPECT_THAT(lines,
              ::testing::ElementsAre(HasSubstr("field=messages[].odd"), HasSubstr("field=odd")));
}

TEST(IgnoredFieldsLog, SaysOnceThatItIsFull) {
  const LogLines log;
  const std::vector<std::string>& lines = log.lines();
  IgnoredFieldsLog ignored;
  for (int i = 0; i < 256; ++i) ignored.say({cat("odd", i)});
  ignored.say({"odd0", "odd255"});
  ASSERT_EQ(lines.size(), 256U);
  EXPECT_THAT(lines.back(), HasSubstr("request.ignored field=odd255"));
  for (int i = 0; i < 300; ++i) ignored.say({cat("more", i), "odd3"});
  ASSERT_EQ(lines.size(), 257U);
  EXPECT_THAT(lines.back(), HasSubstr("request.ignored_full fields=256"));
}

TEST(ApiError, SaysParamOnlyWhereTheRequestIsAtFault) {
  EXPECT_THAT(error_body({ErrorCode::invalid_argument, "bad", "top_p", "mend it"}),
              HasSubstr(R"("param":"top_p")"));
  EXPECT_THAT(error_body({ErrorCode::io, "disk", "/secret/place"}), HasSubstr(R"("param":null)"));
  EXPECT_EQ(error_response({ErrorCode::not_implemented, "x"}).status, 501);
}

TEST(ApiError, AConflictIs409InEachForm) {
  const Error error(ErrorCode::conflict, "version 3 is there, not 2", "expected_version");
  const HttpResponse plain = error_response(error);
  EXPECT_EQ(plain.status, 409);
  EXPECT_TRUE(plain.headers.empty()) << "to ask again changes nothing";
  EXPECT_THAT(plain.body, HasSubstr(R"("type":"invalid_request_error")"));
  EXPECT_THAT(plain.body, HasSubstr(R"("param":"expected_version","code":"conflict")"));
  const HttpResponse flat = adapter_error(error, {});
  EXPECT_EQ(flat.status, 409);
  EXPECT_THAT(flat.body, HasSubstr(R"("type":"ConflictError","param":null,"code":409)"));
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

TEST(MessagesError, TypesFollowFromTheStatus) {
  for (const auto& [code, status, type] :
       std::initializer_list<std::tuple<ErrorCode, int, std::string_view>>{
           {ErrorCode::invalid_argument, 400, "invalid_request_error"},
           {ErrorCode::unauthorized, 401, "authentication_error"},
           {ErrorCode::forbidden, 403, "permission_error"},
           {ErrorCode::not_found, 404, "not_found_error"},
           {ErrorCode::conflict, 409, "invalid_request_error"},
           {ErrorCode::timed_out, 408, "timeout_error"},
           {ErrorCode::too_long, 413, "request_too_large"},
           {ErrorCode::busy, 429, "rate_limit_error"},
           {ErrorCode::internal, 500, "api_error"},
           {ErrorCode::unavailable, 503, "overloaded_error"}}) {
    const HttpResponse response = messages_error({code, "what"}, "id-1");
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.body, cat(R"({"type":"error","error":{"type":")", type,
                                 R"(","message":"what"},"request_id":"id-1"})"));
    EXPECT_EQ(response.headers, error_response({code, "what"}).headers);
  }
  // Anthropic's wording, by which clients know to shorten the conversation.
  const HttpResponse response =
      messages_error(serving::prompt_too_long(5, "6", "messages"), "id-1");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("prompt is too long"));
}

TEST(ApiKeys, ComeFromAFileThatHoldsSome) {
  const TemporaryFolder folder;
  const auto keys = ApiKeys::load(folder.file("keys", "# ours\nalpha\r\n\nbeta \t\n")).value();
  const auto allow = [&](std::string_view authorization, std::string_view api_key = {}) {
    return keys.find(authorization, api_key) != nullptr;
  };
  EXPECT_TRUE(allow("Bearer alpha"));
  EXPECT_TRUE(allow("bearer beta"));
  EXPECT_FALSE(allow("Bearer "));
  EXPECT_FALSE(allow("Bearer # ours"));
  EXPECT_FALSE(allow("Bearer alphabeta"));
  EXPECT_TRUE(allow("", "beta"));
  EXPECT_TRUE(allow("Bearer theirs", "beta"));
  EXPECT_FALSE(allow("Basic alpha", "Bearer beta"));
  EXPECT_FALSE(allow("", ""));
  EXPECT_FALSE(ApiKeys::load(folder.file("none", "# nobody\n")).ok());
  EXPECT_FALSE(ApiKeys().required());
  ApiKeys both = keys;
  EXPECT_FALSE(both.add(keys).ok());
  EXPECT_TRUE(both.add(ApiKeys({"gamma", "gamma"})).ok());
}

TEST(ApiKeys, HaveHoldersInJson) {
  const ApiKeys keys = ApiKeys::parse_holders(R"([
    {"key": "alpha", "name": "team-a", "weight": 3, "adapters": ["a-*", "shared"]},
    {"key": "beta", "name": "team-b", "adapters": "b"},
    {"key": "gamma", "name": "team-b", "adapters": ["b"]},
    {"key": "delta", "name": "none", "adapters": []}])",
                                              "keys.json")
                           .value();
  EXPECT_EQ(keys.count(), 4);
  EXPECT_EQ(keys.find("Bearer omega"), nullptr);
  const Principal& alpha = *keys.find("Bearer alpha")->holder;
  EXPECT_EQ(alpha.name, "team-a");
  EXPECT_EQ(alpha.weight, 3);
  EXPECT_TRUE(alpha.may_use("a-"));
  EXPECT_TRUE(alpha.may_use("a-1"));
  EXPECT_TRUE(alpha.may_use("shared"));
  EXPECT_FALSE(alpha.may_use("shared-2"));
  EXPECT_FALSE(alpha.may_use("b"));
  EXPECT_EQ(keys.find("", "gamma")->holder->weight, 1);
  EXPECT_FALSE(keys.find("", "delta")->holder->may_use("b"));
  EXPECT_TRUE(Principal{.name = "all"}.may_use("b"));
}

TEST(ApiKeys, OfHoldersAreRefusedWithTheirPlace) {
  const auto why = [](std::string_view text) {
    const auto keys = ApiKeys::parse_holders(text, "keys.json");
    return keys.ok() ? std::string("accepted") : keys.error().message();
  };
  EXPECT_THAT(why("{}"), HasSubstr("keys.json"));
  EXPECT_THAT(why("[]"), HasSubstr("holds none"));
  EXPECT_THAT(why(R"([{"name": "a"}])"), HasSubstr("no key (keys.json, [0].key)"));
  EXPECT_THAT(why(R"([{"key": "a b ", "name": "a"}])"), HasSubstr("no header can carry this key"));
  EXPECT_THAT(why(R"([{"key": "k"}])"), HasSubstr("no name (keys.json, [0].name)"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "10.0.0.1"}])"),
              HasSubstr("can't be called '10.0.0.1'"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "fe80::1"}])"), HasSubstr("can't be called"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a", "weight": 0}])"), HasSubstr("[0].weight"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a", "wieght": 1}])"), HasSubstr("[0].wieght"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a", "adapters": [1]}])"), HasSubstr("[0].adapters[0]"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a", "adapters": null}])"),
              HasSubstr("could mean all or none"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a"}, {"key": "k", "name": "b"}])"),
              HasSubstr("a key that stands twice (keys.json, [1])"));
  EXPECT_THAT(why(R"([{"key": "k", "name": "a"}, {"key": "l", "name": "a", "weight": 2}])"),
              HasSubstr("another weight or other adapters for 'a'"));
}

TEST(RequestId, IsRepeatedOnlyIfItIsFit) {
  EXPECT_TRUE(is_request_id("a-B_3.4:5"));
  EXPECT_FALSE(is_request_id(""));
  EXPECT_FALSE(is_request_id("a b"));
  EXPECT_FALSE(is_request_id("a\r\nSet-Cookie: x"));
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
  EXPECT_NE(random_id(), random_id());
}

}  // namespace
}  // namespace motley::server
