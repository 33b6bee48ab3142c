// Where templates are rendered otherwise than jinja2 renders them, on purpose. The list, with the
// reasons, is tools/template_goldens/differences.py.

#include <filesystem>

#include <gtest/gtest.h>

#include "base/system/files.h"
#include "templates/render.h"

namespace motley::text {
namespace {

TEST(Differences, AreStillThere) {
  const std::filesystem::path path =
      std::filesystem::path(MOTLEY_TEMPLATES) / "goldens" / "differences.json";
  const json::Value golden = json::parse(read_text(path, 1'000'000).value(), path.string()).value();
  const json::Value& variables = *golden.if_object()->find("variables");
  for (const json::Value& each : *golden.if_object()->find("cases")->if_array()) {
    const std::string& source = *each.if_object()->find("template")->if_string();
    const json::Value* const text = each.if_object()->find("text");
    const auto ours = render(source, variables);
    const bool same =
        ours.ok() == (text != nullptr) && (text == nullptr || ours->text == *text->if_string());
    EXPECT_FALSE(same) << source << " is rendered as Jinja renders it: take it off the list";
  }
}

TEST(Differences, WhatIsRefusedIsNamedWithItsPlace) {
  const auto refused = [](std::string_view source) {
    const auto rendered = render_text(source);
    return rendered.ok() ? *rendered : rendered.error().message();
  };
  EXPECT_EQ(refused("a\n {{ x | urlize }}"),
            "the filter 'urlize', which chat templates have no use for (test, line 2, column 9): "
            "mend the chat template");
  EXPECT_EQ(refused("{% include 'x' %}"),
            "the tag 'include', which chat templates have no use for (test, line 1, column 4): "
            "mend the chat template");
  EXPECT_EQ(refused("{{ x | nope }}"),
            "no filter named 'nope' (test, line 1, column 8): mend the chat template");
  EXPECT_EQ(refused("{{ 'é' is nope }}"),
            "no test named 'nope' (test, line 1, column 11): mend the chat template");
}

TEST(Differences, ListsGrow) {
  EXPECT_EQ(*render_text("{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.extend([3, 4]) %}"
                         "{% set _ = l.insert(0, 'a') %}{{ l.pop() }}{{ l.pop(1) }}{{ l }}"),
            "41['a', 2, 3]");
  EXPECT_EQ(*render_text("{% set l = [1] %}{% for x in l %}{% if x < 4 %}{% do l.append(x + 1) "
                         "%}{% endif %}{{ x }}{% endfor %}"),
            "1234");
}

TEST(Differences, ErrorsHaveLineAndColumn) {
  const auto error = [](std::string_view source) { return render_text(source).error().message(); };
  EXPECT_EQ(error("ab\n{{ x.y.z }}"), "'x' is undefined (test, line 2, column 5)");
  EXPECT_EQ(error("{{ 'é' ~ raise_exception('no') }}"), "no (test, line 1, column 25)");
  EXPECT_EQ(error("a\r\nb{% if %}"),
            "expected an expression, found '%}' (test, line 2, column 8): mend the chat template");
  EXPECT_EQ(error("{% for x in y %}"),
            "the template ends where 'endfor' or 'else' is missing (test, line 1, column 17): mend "
            "the chat template");
  EXPECT_EQ(error("\xff"), "a chat template that is not UTF-8 (test): save it as UTF-8");
}

}  // namespace
}  // namespace motley::text
