#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/client/api_client.h"
#include "cli/client/event_reader.h"
#include "cli/client/metrics_page.h"

namespace motley::cli {
namespace {

using testing::HasSubstr;

TEST(EventReader, ReadsPiecesCutAnywhere) {
  const std::string text =
      ": a comment\n"
      "data: {\"choices\": [{\"text\": \"a\"}]}\r\n\r\n"
      "data:{\"choices\": [{\"text\": \"\"}]}\n\n"
      "data: {\"choices\": [{\"text\": \"b\"}]}\n\n"
      "data: {\"choices\": [], \"usage\": {\"completion_tokens\": 3}}\n\n"
      "data: [DONE]\n\n";
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    int heard = 0;
    EventReader events(
        [&](const json::Object& event) { heard += event.find("choices") != nullptr; });
    ASSERT_TRUE(events.read(text.substr(0, cut)).ok());
    ASSERT_TRUE(events.read(text.substr(cut)).ok());
    EXPECT_EQ(heard, 4) << cut;
    EXPECT_EQ(events.tokens(), 3);
    EXPECT_TRUE(events.done());
  }
  EventReader events([](const json::Object&) {});
  EXPECT_THAT(events.read("data: {\"error\": {\"message\": \"device lost\"}}\n").error().message(),
              HasSubstr("device lost"));
  EXPECT_FALSE(events.read("data: {\n").ok());
}

TEST(Metrics, AreFoundByTheirWholeNames) {
  constexpr std::string_view page =
      "# TYPE steps counter\nsteps_total 12\nsteps 3.5\ninfo{max=\"4\",running=\"a,b\"} 1.0\n";
  EXPECT_EQ(metric(page, "steps"), 3.5);
  EXPECT_EQ(metric(page, "steps_total"), 12);
  EXPECT_EQ(metric(page, "total"), std::nullopt);
  EXPECT_EQ(metric("\nsteps{replica=\"0\"} 3\nsteps{replica=\"1\"} 4\nstep 1\n", "steps"), 7);
  EXPECT_EQ(metric_label(page, "info", "running"), "a,b");
  EXPECT_EQ(metric_label(page, "info", "waiting"), "");
  EXPECT_EQ(metric_label(page, "steps", "running"), "");
}

TEST(ErrorText, IsTheMessageOrTheBeginning) {
  EXPECT_EQ(error_text(R"({"error": {"message": "no such model"}})"), "no such model");
  EXPECT_EQ(error_text("<html>"), "'<html>'");
}

}  // namespace
}  // namespace motley::cli
