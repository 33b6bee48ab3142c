// OpenPipe ART's serving protocol (openpipe-art 0.5.23), over sockets and on a golden model.

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/golden_engine.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using testing::HasSubstr;

std::string adapter_folder(const std::string& adapter) {
  return (score_tests::goldens_folder() / "qwen3_moe" / "adapters" / adapter).string();
}

class Art : public testing::Test {
 protected:
  void SetUp() override {
    const Received loaded = server_.ask(post(
        "/v1/load_lora_adapter",
        cat(R"({"lora_name": "policy:active", "lora_path": ")", adapter_folder("experts"), "\"}")));
    ASSERT_EQ(loaded.status, 200) << loaded.body;
  }

  // The update to a step, as ART sends it, but with these members.
  Received update(int step, const std::string& adapter, const json::Object& more = {}) const {
    const json::Object usual{{"operation_id", cat("operation-", step)},
                             {"model_name", cat("policy@", step)},
                             {"lora_slot", "policy:active"},
                             {"lora_path", adapter_folder(adapter)},
                             {"generation_id", cat("generation-", step)},
                             {"policy_version", step}};
    json::Object body;
    for (const json::Member& member : usual.members()) {
      if (more.find(member.key) == nullptr) body.add(member.key, member.value);
    }
    for (const json::Member& member : more.members()) body.add(member.key, member.value);
    return server_.ask(post("/art/in_flight_lora_update", json::write(body)));
  }
  json::Value answer() const {
    return server_
        .ask(post("/v1/completions",
                  R"({"model": "policy:active", "prompt": [7, 11, 23], "max_tokens": 5,)"
                  R"("ignore_eos": true, "temperature": 0})"))
        .json();
  }

  score_tests::GoldenModel golden_{"qwen3_moe", {}};
  engine_tests::GoldenEngine world_{golden_, {}};
  TestServer server_{{.tokenizer = {.name = "qwen2", .end = "!"},
                      .adapter_loading = true,
                      .max_sequence_tokens = 64,
                      .engine = &world_.engine()}};
};

// Its client refuses other members, and another protocol.
TEST_F(Art, ServersSayWhatTheyCan) {
  const json::Value can = server_.ask(get("/art/capabilities")).json();
  EXPECT_EQ(text_at(can, "runtime"), "art_vllm");
  EXPECT_EQ(text_at(can, "protocol_version"), "5");
  EXPECT_EQ(text_at(can, "in_flight_lora_updates"), "true");
  EXPECT_EQ(text_at(can, "policy_token_spans"), "true");
  const json::Value state = server_.ask(get("/art/state")).json();
  EXPECT_FALSE(text_at(state, "process_uuid").empty());
  EXPECT_EQ(text_at(state, "generation"), "0");
}

TEST_F(Art, UpdatesReplaceTheSlot) {
  const std::string before = text_at(answer(), "choices.0.text");
  const Received updated = update(1, "attention");
  ASSERT_EQ(updated.status, 200) << updated.body;
  const json::Value said = updated.json();
  EXPECT_EQ(text_at(said, "status"), "updated");
  EXPECT_EQ(text_at(said, "model_name"), "policy@1");
  EXPECT_EQ(text_at(said, "lora_slot"), "policy:active");
  EXPECT_EQ(text_at(said, "generation_id"), "generation-1");
  EXPECT_EQ(text_at(said, "policy_version"), "1");
  const json::Value next = answer();
  EXPECT_EQ(text_at(next, "adapter_version"), "generation-1@1");
  EXPECT_EQ(text_at(next, "choices.0.policy_token_spans.0.policy_version"), "1");
  EXPECT_EQ(text_at(next, "choices.0.policy_token_spans.0.start_token"), "0");
  EXPECT_EQ(text_at(next, "choices.0.policy_token_spans.0.end_token"), "5");
  EXPECT_EQ(text_at(next, "choices.0.policy_token_spans.0.lora_slot"), "policy:active");
  EXPECT_NE(text_at(next, "choices.0.text"), before);
}

TEST_F(Art, AnUpdateThatIsSentAgainIsNotDoneAgain) {
  const Received first = update(1, "attention");
  ASSERT_EQ(update(2, "experts", {{"expected_generation_id", "generation-1"}}).status, 200);
  const Received again = update(1, "attention");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.body, first.body);
  EXPECT_EQ(text_at(answer(), "adapter_version"), "generation-2@2");
}

TEST_F(Art, UpdatesOfAnotherGenerationAreConflicts) {
  ASSERT_EQ(update(3, "attention").status, 200);
  const auto refused = [&](int step, json::Object more, int status, std::string_view why) {
    more.add("operation_id", nullptr);
    const Received answer = update(step, "experts", more);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.error("message"), HasSubstr(std::string(why)));
  };
  refused(4, {{"expected_generation_id", "generation-2"}}, 409, "'generation-3' now");
  refused(4, {{"generation_id", "generation-3"}}, 409, "this generation already");
  refused(2, {}, 409, "its policy is 3 now");
  refused(4, {{"lora_slot", "other"}}, 404, "no adapter 'other'");
  refused(4, {{"lora_path", "/nowhere/step-4"}}, 404, "no such folder");
  refused(4, {{"lora_path", adapter_folder("refused_nan")}}, 400, "is NaN");
  EXPECT_EQ(text_at(answer(), "adapter_version"), "generation-3@3");
  EXPECT_EQ(update(4, "experts", {{"expected_generation_id", "generation-3"}}).status, 200);
}

// As ART's managers send them without a coordinator: no operation and no generations.
TEST_F(Art, UpdatesNeedNoGenerations) {
  const json::Object none{
      {"operation_id", nullptr}, {"generation_id", nullptr}, {"lora_slot", "policy:active"}};
  ASSERT_EQ(update(1, "attention", none).status, 200);
  ASSERT_EQ(update(2, "experts", none).status, 200);
  EXPECT_EQ(text_at(answer(), "choices.0.policy_token_spans.0.policy_version"), "2");
}

TEST_F(Art, UpdatesSayWhatIsWrong) {
  const auto refused = [&](std::string_view body, std::string_view field) {
    const Received answer = server_.ask(post("/art/in_flight_lora_update", body));
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.error("param"), field) << answer.body;
  };
  refused(R"({"lora_path": "/a", "policy_version": 1})", "model_name");
  refused(R"({"model_name": "a@1", "policy_version": 1})", "lora_path");
  refused(R"({"model_name": "a@1", "lora_path": "/a"})", "policy_version");
  refused(R"({"model_name": "a@1", "lora_path": "/a", "policy_version": -1})", "policy_version");
  refused(R"({"model_name": "a b@1", "lora_path": "/a", "policy_version": 1})", "lora_slot");
  refused(
      R"({"model_name": "a@1", "lora_path": "/a", "policy_version": 1, "generation_id": "a,b"})",
      "generation_id");
  refused(R"({"model_name": "a@1", "lora_path": "/a", "policy_version": 1, "operation_id": ""})",
          "operation_id");
  const TestServer closed({.tokenizer = {.name = "qwen2", .end = "!"}, .engine = &world_.engine()});
  EXPECT_EQ(closed.ask(post("/art/in_flight_lora_update", "{}")).status, 403);
}

}  // namespace
}  // namespace motley::server
