// Templates against what jinja2 gives under the environment of transformers.

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "base/system/files.h"
#include "templates/render.h"
#include "text/chat/chat_template.h"

namespace motley::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t any_size = 64'000'000;

const fs::path& folder() {
  static const fs::path path = MOTLEY_TEMPLATES;
  return path;
}

json::Value read_golden(const std::string& name) {
  const fs::path path = folder() / "goldens" / (name + ".json");
  return json::parse(read_text(path, any_size).value(), path.string()).value();
}

const json::Value& at(const json::Value& object, std::string_view key) {
  const json::Value* const value = object.as_object(key).value()->find(key);
  MOTLEY_CHECK(value != nullptr, key);
  return *value;
}

const std::string& text_at(const json::Value& object, std::string_view key) {
  return *at(object, key).as_string(key).value();
}

const json::Array& list_at(const json::Value& object, std::string_view key) {
  return *at(object, key).as_array(key).value();
}

// The text, or that there is none.
void expect_like(const Result<MarkedText>& ours, const json::Value& golden,
                 const std::string& what) {
  const json::Value* const text = golden.if_object()->find("text");
  if (text == nullptr) {
    EXPECT_FALSE(ours.ok()) << what << "\ngives " << (ours.ok() ? ours->text : "");
    return;
  }
  ASSERT_TRUE(ours.ok()) << what << "\nfails: " << ours.error().message();
  EXPECT_EQ(ours->text, *text->if_string()) << what;
}

class GoldenTemplates : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTemplates, RenderAsJinjaRendersThem) {
  const json::Value golden = read_golden(GetParam());
  const json::Array& cases = list_at(golden, "cases");
  ASSERT_FALSE(cases.empty());
  for (const json::Value& each : cases) {
    const std::string& source = text_at(each, "template");
    expect_like(render(source, at(golden, "variables")), each, source);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTemplates,
                         testing::Values("expressions", "statements", "findings", "numbers"));

// Messages of undefined values and of templates' own are Jinja's.
TEST(GoldenErrors, SayWhatJinjaSays) {
  const json::Value golden = read_golden("expressions");
  int compared = 0;
  for (const json::Value& each : list_at(golden, "cases")) {
    const json::Value* const error = each.if_object()->find("error");
    if (error == nullptr || error->if_string() == nullptr) continue;
    const std::string& message = *error->if_string();
    if (!message.ends_with("is undefined") && message.find("has no attribute") == std::string::npos)
      continue;
    const auto ours = render(text_at(each, "template"), at(golden, "variables"));
    ASSERT_FALSE(ours.ok());
    EXPECT_EQ(ours.error().what(), *error->if_string()) << text_at(each, "template");
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

std::string_view name_of(ContentForm form) {
  switch (form) {
    case ContentForm::text:
      return "text";
    case ContentForm::parts:
      return "parts";
    case ContentForm::one_part:
      return "one_part";
    case ContentForm::both:
      return "both";
  }
  return "?";
}

class Shapes : public testing::Test {
 protected:
  static ChatTemplate compile(const std::string& shape) {
    const fs::path path = folder() / "shapes" / (shape + ".jinja");
    auto compiled =
        ChatTemplate::compile(read_text(path, any_size).value(), path.filename().string());
    MOTLEY_CHECK(compiled.ok(), compiled.error().message());
    return std::move(compiled).value();
  }

  ChatInputs inputs(const json::Value& each) const {
    const json::Value& setting = list_at(
        golden_,
        "settings")[static_cast<std::size_t>(at(each, "setting").as_integer("setting").value())];
    ChatInputs made;
    made.messages = at(at(golden_, "conversations"), text_at(each, "conversation"));
    if (!at(setting, "tools").is_null()) made.tools = at(setting, "tools");
    made.add_generation_prompt = at(setting, "add_generation_prompt").as_boolean("prompt").value();
    made.kwargs = *at(setting, "arguments").if_object();
    for (const auto& [name, text] : at(golden_, "special_tokens").if_object()->members())
      made.special_tokens.emplace_back(name, *text.if_string());
    made.now = golden_time();
    return made;
  }

  const json::Value golden_ = read_golden("shapes");
};

TEST_F(Shapes, RenderConversationsAsJinjaRendersThem) {
  for (const json::Value& each : list_at(golden_, "cases")) {
    const std::string& shape = text_at(each, "shape");
    expect_like(compile(shape).render(inputs(each)), each,
                shape + ", " + text_at(each, "conversation"));
  }
}

TEST_F(Shapes, TellTheirHabits) {
  for (const auto& [shape, wanted] : at(golden_, "shapes").if_object()->members()) {
    const TemplateHabits habits = compile(shape).habits();
    EXPECT_EQ(habits.wants_argument_strings, *at(wanted, "wants_argument_strings").if_boolean())
        << shape;
    EXPECT_EQ(habits.wants_null_content, *at(wanted, "wants_null_content").if_boolean()) << shape;
    for (const auto& [role, form] : at(wanted, "content").if_object()->members())
      EXPECT_EQ(name_of(habits.content.of(role)), *form.if_string()) << shape << ", " << role;
  }
}

TEST_F(Shapes, RefuseWithTheTemplatesOwnWords) {
  int compared = 0;
  for (const json::Value& each : list_at(golden_, "cases")) {
    const json::Value* const error = each.if_object()->find("error");
    if (error == nullptr || error->if_string() == nullptr) continue;
    const auto ours = compile(text_at(each, "shape")).render(inputs(each));
    ASSERT_FALSE(ours.ok());
    EXPECT_EQ(ours.error().what(), *error->if_string());
    EXPECT_EQ(http_status(ours.error().code()), 400);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

}  // namespace
}  // namespace motley::text
