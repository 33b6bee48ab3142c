// What a rendering takes is what it counts: memory before it is allocated, and a step for a piece
// of work of bounded size, in every operation.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "support/allocations.h"
#include "templates/render.h"
#include "text/jinja/builtins/filter_lists.h"
#include "text/jinja/builtins/globals.h"
#include "text/jinja/builtins/methods.h"
#include "text/jinja/template.h"

namespace motley::text {
namespace {

// The memory that is allocated may be this many times what is counted, because texts and lists are
// copied as they grow.
constexpr double tolerance = 2;
constexpr std::size_t fixed_bytes = std::size_t{256} << 10;

struct Use {
  bool ok = false;
  std::string message;
  std::size_t steps = 0;
  std::size_t counted_bytes = 0;
  std::size_t allocated_bytes = 0;
};

// Renders with `t`, an untrusted text of that many words; `m`, whose every other byte is trusted;
// `l`, a list of as many texts; and `d`, a dict with as many keys.
Use rendered(std::string_view body, int words, const RenderLimits& limits = {}) {
  const std::string source =
      cat("{% set t = (word * ", words, ") %}{% set m = ('x' ~ word[0]) * ", words,
          " %}{% set l = t.split() %}{% set n = namespace(d={}) %}{% set d = dict(pairs) %}", body);
  json::Object variables;
  variables.add("word", "a<\"é\n ");
  json::Array pairs;
  for (int i = 0; i < words; ++i)
    pairs.emplace_back(json::Array{json::Value(cat("key", i)), json::Value(i)});
  variables.add("pairs", std::move(pairs));
  const json::Value given{std::move(variables)};
  const auto compiled = jinja::Template::compile(source, "test");
  EXPECT_TRUE(compiled.ok()) << source << ": " << compiled.error().message();
  if (!compiled.ok()) return {};
  const std::int64_t before = test::live_bytes();
  test::watch_peak();
  Use use;
  {
    jinja::Runtime runtime(limits, golden_time());
    auto& context = runtime.heap().make<jinja::Dict>();
    EXPECT_TRUE(add_globals(runtime, context).ok());
    for (const auto& [name, value] : given.if_object()->members()) {
      const auto variable = from_json(runtime, value, true);
      EXPECT_TRUE(context.set(runtime, runtime.text(name), *variable).ok());
    }
    const auto text = compiled->render(runtime, context);
    use.ok = text.ok();
    if (!text.ok()) use.message = text.error().message();
    use.steps = runtime.steps();
    use.counted_bytes = runtime.memory();
  }
  use.allocated_bytes = static_cast<std::size_t>(test::peak_bytes() - before);
  return use;
}

void expect_counted(std::string_view body, const Use& use) {
  EXPECT_LE(static_cast<double>(use.allocated_bytes),
            (tolerance * static_cast<double>(use.counted_bytes)) + fixed_bytes)
      << body << " counts " << use.counted_bytes << " bytes " << use.message;
}

// An operation, and whether the time it takes depends on the size of what it is given.
struct Case {
  std::string_view name;
  std::string_view body;
  bool reads = true;
};

constexpr Case method_cases[] = {
    {"capitalize", "{{ t.capitalize() }}"},
    {"center", "{{ t.center(2000000) }}{{ m.center(500000, m[1]) }}"},
    {"count", "{{ t.count('<') }}{{ t.count(t[:-1] ~ '!') }}"},
    {"endswith", "{{ t.endswith(t) }}{{ t.endswith((t, 'x') * 10) }}"},
    {"find", "{{ t.find(t[:-1] ~ '!') }}{{ m.find('!', 3) }}"},
    {"format", "{{ '{0} {0!r} {0:>400000} {1}'.format(t, m) }}"},
    {"index", "{{ t.index(t[9:]) }}"},
    {"isalnum", "{{ ('a' * 100000).isalnum() }}"},
    {"isalpha", "{{ ('a' * 100000).isalpha() }}"},
    {"isascii", "{{ t.isascii() }}", false},
    {"isdecimal", "{{ ('1' * 100000).isdecimal() }}"},
    {"isdigit", "{{ ('1' * 100000).isdigit() }}"},
    {"islower", "{{ t.islower() }}"},
    {"isnumeric", "{{ ('1' * 100000).isnumeric() }}"},
    {"isprintable", "{{ ('1' * 100000).isprintable() }}"},
    {"isspace", "{{ (' ' * 100000).isspace() }}"},
    {"istitle", "{{ t.istitle() }}"},
    {"isupper", "{{ ('A' * 100000).isupper() }}"},
    {"join", "{{ t.join(l[:50]) }}{{ (t | safe).join(l[:20]) }}"},
    {"ljust", "{{ t.ljust(1000000, 'é') }}"},
    {"lower", "{{ t.upper().lower() }}"},
    {"lstrip", "{{ t.lstrip() }}{{ t.lstrip(m ~ t) }}"},
    {"partition", "{{ t.partition(t[4:9]) }}{{ t.partition('!') }}"},
    {"removeprefix", "{{ t.removeprefix(t[:-1]) }}"},
    {"removesuffix", "{{ t.removesuffix(t[1:]) }}"},
    {"replace", "{{ t.replace('<', m[:100]) }}{{ t.replace('', '-') }}"},
    {"rfind", "{{ t.rfind('!' ~ t[1:]) }}"},
    {"rindex", "{{ t.rindex(t[:-9]) }}"},
    {"rjust", "{{ t.rjust(1000000) }}"},
    {"rpartition", "{{ m.rpartition('x' ~ m[1:40]) }}"},
    {"rsplit", "{{ t.rsplit() }}{{ t.rsplit('<') }}"},
    {"rstrip", "{{ t.rstrip() }}{{ t.rstrip(m ~ t) }}"},
    {"split", "{{ t.split() }}{{ t.split('<') }}"},
    {"splitlines", "{{ t.splitlines(true) }}"},
    {"startswith", "{{ t.startswith(t) }}{{ t.startswith((t ~ 'x', t ~ 'y') * 10) }}"},
    {"strip", "{{ t.strip() }}{{ t.strip(m ~ t) }}"},
    {"title", "{{ t.title() }}{{ m.title() }}"},
    {"upper", "{{ t.upper() }}{{ ('ﬃ' * 30000).upper() }}"},
    {"zfill", "{{ t.zfill(1000000) }}"},
};

constexpr Case filter_cases[] = {
    {"abs", "{{ (0 - 7) | abs }}", false},
    {"attr", "{{ 7 | attr(t) }}"},
    {"batch", "{{ l | batch(3, t) | list }}"},
    {"capitalize", "{{ t | capitalize }}"},
    {"center", "{{ t | center(1000000) }}"},
    {"count", "{{ t | count }}"},
    {"d", "{{ nothing | d(t) }}", false},
    {"default", "{{ nothing | default(t) }}", false},
    {"dictsort", "{{ d | dictsort }}{{ d | dictsort(by='value') }}"},
    {"e", "{{ t | e }}{{ m | e }}"},
    {"escape", "{{ ('<' * 200000) | escape }}"},
    {"filesizeformat", "{{ ('0' * 100000) | filesizeformat }}"},
    {"first", "{{ l | first }}", false},
    {"float", "{{ t | float }}{{ ('0' * 100000) | float }}"},
    {"forceescape", "{{ t | safe | forceescape }}"},
    {"format", "{{ '%s %r %.9s %400000d %.200000f' | format(t, m, t, 3, 1.5) }}"},
    {"groupby", "{{ d.items() | groupby(1) }}"},
    {"indent", "{{ t | indent(40, true, true) }}"},
    {"int", "{{ t | int }}{{ ('0' * 100000) | int }}"},
    {"items", "{{ d | items | list }}"},
    {"join", "{{ l | join(m[:400]) }}"},
    {"last", "{{ d | last }}"},
    {"length", "{{ t | length }}"},
    {"list", "{{ t | list }}"},
    {"lower", "{{ t | lower }}"},
    {"map", "{{ l | map('upper') | list }}{{ [1] * 9 | map('replace', t, m) | list }}"},
    {"max", "{{ l | max }}"},
    {"min", "{{ l | min }}"},
    {"reject", "{{ l | reject('in', t) | list }}"},
    {"rejectattr", "{{ d.items() | rejectattr(1, 'odd') | list }}"},
    {"replace", "{{ t | replace('a', m[:100]) }}"},
    {"reverse", "{{ t | reverse }}{{ m | reverse }}{{ l | reverse | list }}"},
    {"round", "{{ 1.5 | round(300) }}", false},
    {"safe", "{{ t | safe }}"},
    {"select", "{{ l | select('string') | list }}"},
    {"selectattr", "{{ d.items() | selectattr(1) | list }}"},
    {"slice", "{{ l | slice(1000, t) | list }}"},
    {"sort", "{{ l | sort }}{{ d.items() | sort(attribute='1,0') }}"},
    {"string", "{{ l | string }}"},
    {"sum", "{{ ([l] * 9) | sum(start=[]) }}"},
    {"title", "{{ t | title }}"},
    {"tojson",
     "{{ t | tojson }}{{ ('\x01' * 100000) | tojson }}{{ d | tojson(sort_keys=true) }}"
     "{{ [[l]] | tojson(indent=20) }}"},
    {"trim", "{{ t | trim }}"},
    {"truncate", "{{ t | truncate(9000) }}"},
    {"unique", "{{ l | unique | list }}{{ d.keys() | unique | list }}"},
    {"upper", "{{ t | upper }}"},
    {"urlencode", "{{ t | urlencode }}{{ m | urlencode }}{{ d | urlencode }}"},
    {"wordcount", "{{ t | wordcount }}"},
};

constexpr Case other_cases[] = {
    {"*", "{{ t * 9 }}{{ m * 9 }}{{ l * 9 }}"},
    {"+", "{{ t + t }}{{ (t | safe) + t }}{{ l + l }}"},
    {"~", "{{ t ~ l ~ m ~ 3 }}"},
    {"%", "{{ '%(key1)s' % d }}{{ '%s' % t }}{{ ('%s' | safe) % t }}"},
    {"in", "{{ t[:-1] ~ '!' in t }}{{ 'none' in l }}{{ t in d }}"},
    {"==", "{{ l == l[:] }}{{ t == t[:] }}{{ d == d.copy() }}"},
    {"<", "{{ t < t ~ '!' }}{{ l < l + [1] }}"},
    {"[]", "{{ t[999] }}{{ 3[t] }}{{ d[t] }}{{ 3[l] }}"},
    {"[:]", "{{ t[3:] }}{{ t[::-1] }}{{ m[::2] }}{{ l[::2] }}"},
    {"is", "{{ t is lower }}{{ t is upper }}{{ t is in(t) }}{{ t is filter }}"},
    {"for", "{% for a in t %}{% endfor %}{% for a in d.items() %}{{ a }}{% endfor %}"},
    {"for if", "{% for a in l if a != t %}{{ loop.length }}{% endfor %}"},
    {"recursive",
     "{% for a in [[[t]]] recursive %}{{ a if a is string else loop(a) }}{% endfor %}"},
    {"macro",
     "{% macro f(a, b='') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
     "{{ f(*l) }}{{ f(1, **d) }}"},
    {"call", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{{ t }}{% endcall %}"},
    {"set", "{% set a %}{{ t }}{% endset %}{% set b | upper %}{{ a }}{% endset %}{{ b }}"},
    {"filter", "{% filter upper %}{{ t }}{% endfilter %}"},
    {"append", "{% set k = [] %}{% for a in l %}{% set _ = k.append(a) %}{% endfor %}"},
    {"extend", "{% set k = [] %}{% set _ = k.extend(l) %}{% set _ = k.extend(t) %}"},
    {"insert",
     "{% set k = l.copy() %}{% for a in range(99) %}{% set _ = k.insert(0, a) %}{% endfor %}"},
    {"pop", "{% set k = l.copy() %}{% for a in range(99) %}{% set _ = k.pop(0) %}{% endfor %}"},
    {"list.index", "{{ l.index('<') if false else l.count('a') }}"},
    {"dict", "{{ dict(d, a=1) }}{{ d.copy() }}{{ d.get(t) }}{{ d.values() }}"},
    {"cycler", "{% set c = cycler(*l) %}{{ c.next() }}{{ c.items }}"},
    {"namespace", "{{ namespace(d) }}"},
    {"strftime_now", "{{ strftime_now('%c' * 2000) }}"},
    {"undefined", "{{ t.nothing is defined }}{{ d[t] is defined }}{{ 3[t] is defined }}"},
    {"keywords", "{{ '{key1} {key99}'.format(**d) }}{{ '%(key1)s' | format(**d) }}"},
};

class Accounting : public testing::TestWithParam<Case> {
 protected:
  // Tables of characters are made once a process.
  static void SetUpTestSuite() {
    EXPECT_TRUE(render_text("{{ 'é'.upper().lower().title().isalpha() }}").ok());
  }
};

TEST_P(Accounting, CountsWhatItAllocates) {
  for (const int words : {300, 3'000})
    expect_counted(GetParam().body, rendered(GetParam().body, words));
  // With a limit that most of them exceed.
  constexpr RenderLimits small{.memory_bytes = std::size_t{3} << 20};
  const Use use = rendered(GetParam().body, 2'000, small);
  EXPECT_LE(use.counted_bytes, 2 * small.memory_bytes) << GetParam().body;
  expect_counted(GetParam().body, use);
}

TEST_P(Accounting, CountsStepsInProportion) {
  if (!GetParam().reads) {
    EXPECT_LT(rendered(GetParam().body, 500).steps, 200'000U);
    return;
  }
  const std::size_t few = rendered(GetParam().body, 1'000).steps - rendered("", 1'000).steps;
  EXPECT_GE(few, 1'000 / 64) << GetParam().body;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = cat(info.index, "_");
  for (const char each : info.param.name)
    name += std::isalnum(static_cast<unsigned char>(each)) != 0 ? each : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Methods, Accounting, testing::ValuesIn(method_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Filters, Accounting, testing::ValuesIn(filter_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Others, Accounting, testing::ValuesIn(other_cases), case_name);

TEST(AccountingCases, CoverEveryMethodAndFilter) {
  std::set<std::string_view> methods;
  for (const Case& each : method_cases) methods.insert(each.name);
  for (const jinja::Method& each : jinja::string_methods())
    EXPECT_TRUE(methods.contains(each.name)) << each.name;
  std::set<std::string_view> filters;
  for (const Case& each : filter_cases) filters.insert(each.name);
  for (const auto& list :
       {jinja::text_filters(), jinja::number_filters(), jinja::sequence_filters()})
    for (const jinja::Filter& each : list) EXPECT_TRUE(filters.contains(each.name)) << each.name;
}

// A search that takes the product of both lengths would take hours here.
TEST(AccountingSearches, TakeLinearTime) {
  constexpr std::string_view prefix =
      "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}{% set c = 'b' ~ 'a' * 2000000 "
      "%}";
  for (const std::string_view body :
       {"{{ b in a }}", "{{ c in a }}", "{{ a is in(b) }}", "{{ a.find(b) }}", "{{ a.find(c) }}",
        "{{ a.rfind(b) }}", "{{ a.rfind(c) }}", "{{ a.count(b) }}", "{{ a.count(c) }}",
        "{{ a.split(b) | length }}", "{{ a.split(c) | length }}", "{{ a.rsplit(b) | length }}",
        "{{ a.rsplit(c) | length }}", "{{ a.partition(b) | length }}",
        "{{ a.rpartition(c) | length }}", "{{ a.replace(b, '') | length }}",
        "{{ a.replace(c, '') | length }}", "{{ (a ~ b).index(b) }}", "{{ (c ~ a).rindex(c) }}"}) {
    const auto text = render_text(cat(prefix, body));
    EXPECT_TRUE(text.ok()) << body << ": " << text.error().message();
  }
}

// Work that is repeated for each of many operands ends at the limit of steps.
TEST(AccountingSearches, OfManyOperandsEndAtTheLimit) {
  constexpr RenderLimits limits{.steps = 5'000'000, .memory_bytes = std::size_t{128} << 20};
  for (const std::string_view body :
       {"{% set a = 'a' * 4000000 %}{% for i in range(99999) %}{% if a.startswith((a ~ 'b',) * "
        "1000) "
        "%}{% endif %}{% endfor %}",
        "{% set b = 'a' * 4000000 %}{% for i in range(99999) %}{{ b ~ 'x' in b }}{% endfor %}",
        "{% set n = 'x' * 1000000 %}{% set d = dict([[n ~ 1, 1], [n ~ 2, 2]]) %}"
        "{% for i in range(99999) %}{% for j in range(99) %}{% if n in d %}{% endif %}{% endfor "
        "%}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set s = strftime_now('%%' * "
        "2000) %}"
        "{% endfor %}{% endfor %}",
        "{% set n = '0' * 4000000 %}{% for i in range(99999) %}{% if n | int %}{% endif %}{% "
        "endfor %}"}) {
    const auto text = render_text(body, limits);
    ASSERT_FALSE(text.ok()) << body;
    EXPECT_EQ(text.error().code(), ErrorCode::too_long) << body << ": " << text.error().message();
  }
}

TEST(AccountingMessages, AreCut) {
  const auto text = render_text("{{ raise_exception('é' * 100000) }}");
  ASSERT_FALSE(text.ok());
  EXPECT_LT(text.error().message().size(), 5000U);
}

}  // namespace
}  // namespace motley::text
