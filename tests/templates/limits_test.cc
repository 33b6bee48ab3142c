// No template runs on for ever, and none takes the machine's memory.

#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "templates/render.h"

namespace motley::text {
namespace {

constexpr RenderLimits small = {
    .steps = 200'000, .depth = 400, .output_bytes = 1 << 16, .memory_bytes = std::size_t{8} << 20};

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

class Limits : public testing::TestWithParam<const char*> {};

TEST_P(Limits, EndInAnError) {
  const auto rendered = render_text(GetParam(), small);
  ASSERT_FALSE(rendered.ok());
  const ErrorCode code = rendered.error().code();
  EXPECT_TRUE(code == ErrorCode::too_long || code == ErrorCode::invalid_argument)
      << rendered.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, Limits,
    testing::Values(
        "{{ range(10 ** 9) }}", "{{ 'a' * 10 ** 9 }}", "{{ [1] * 10 ** 9 }}",
        "{{ 'ab' * (2 ** 62) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{{ caller(x) }}{% endmacro %}{% call(y) m(1) %}{% call m(y) %}{% endcall "
        "%}{% endcall %}",
        "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
        "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
        "{% for a in range(1000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for a in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor "
        "%}",
        "{% set n = namespace(s=[1]) %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% endfor "
        "%}",
        "{% set n = namespace(l=[]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor "
        "%}{{ n.l }}",
        "{% set n = namespace(l=[]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor "
        "%}{{ n.l | tojson }}",
        "{% set n = namespace(l=[], m=[]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% "
        "set n.m = [n.m, n.m] %}{% endfor %}{{ n.l == n.m }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
        "{% set n = namespace(l=[]) %}{% for a in range(5000) %}{% set n.l = [n.l] %}{% endfor "
        "%}{{ n.l }}",
        "{% set n = namespace(g=[1]) %}{% for a in range(5000) %}{% set n.g = n.g | map('abs') "
        "%}{% endfor %}{{ n.g | list }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", "{{ 'x' | center(10 ** 9) }}",
        "{{ 'x'.ljust(10 ** 9) }}", "{{ '7'.zfill(10 ** 9) }}", "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}", "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a\nb' | indent(10 ** 9) }}", "{{ [[1]] | tojson(indent=10 ** 9) }}",
        "{{ ('a' * 10000).replace('a', 'b' * 10000) }}", "{{ ('b' * 10000).join('a' * 10000) }}",
        "{{ ['a'] * 10000 | join('b' * 10000) }}", "{{ [1] | batch(10 ** 9, 0) | list }}",
        "{{ [1] | slice(10 ** 9) | list }}", "{{ '\\n' * 100000 | indent(100000, blank=true) }}",
        "{% for a in range(1000) %}{% set x %}{{ 'y' * 20000 }}{% endset %}{% endfor %}",
        "{{ strftime_now('%A' * 5000) }}"));

TEST(Limits, DeepTemplatesAreRefused) {
  for (const std::string& source :
       {cat("{{ ", repeated("(", 5000), "1", repeated(")", 5000), " }}"),
        cat("{{ ", repeated("[", 5000), repeated("]", 5000), " }}"),
        cat("{{ ", repeated("not ", 5000), "1 }}"), cat("{{ ", repeated("-", 5000), "1 }}"),
        cat("{{ 1", repeated(" + 1", 5000), " }}"), cat("{{ x", repeated("|e", 5000), " }}"),
        cat("{{ x", repeated(".a", 5000), " }}"),
        cat("{{ 1", repeated(" if 1 else 1", 5000), " }}"),
        cat(repeated("{% if 1 %}", 5000), repeated("{% endif %}", 5000)),
        cat("{% set ", repeated("(", 5000), "a", repeated(")", 5000), " = 1 %}")}) {
    const auto rendered = render_text(source);
    ASSERT_FALSE(rendered.ok()) << source.substr(0, 40);
    EXPECT_EQ(rendered.error().code(), ErrorCode::unsupported) << rendered.error().message();
  }
}

TEST(Limits, LeaveRoomForLongConversations) {
  std::string messages = "[";
  for (int i = 0; i < 2000; ++i)
    messages +=
        cat(i == 0 ? "" : ",", R"({"role": "user", "content": ")", repeated("word ", 400), R"("})");
  const json::Value variables = json_of(cat(R"({"messages": )", messages, "]}"));
  const auto rendered = render(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.strip().split('</think>')[-1] "
      "| trim }}{% endfor %}",
      variables);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message();
  EXPECT_GT(rendered->text.size(), 3'900'000U);
}

TEST(Limits, RecursionOfOrdinaryDepthWorks) {
  EXPECT_EQ(*render_text("{% macro m(n) %}{% if n > 0 %}{% for x in [1] %}{{ m(n - 1) }}{% endfor "
                         "%}{% else %}end{% endif %}"
                         "{% endmacro %}{{ m(30) }}"),
            "end");
}

}  // namespace
}  // namespace motley::text
