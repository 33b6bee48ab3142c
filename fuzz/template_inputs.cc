// Any JSON as the inputs of templates of all kinds: {"messages", "tools", "documents", "kwargs"}.
// They render or fail with a message of one line, and what is not marked untrusted is the
// template's own: it holds no character that only the inputs could have brought.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "text/chat/chat_template.h"

namespace json = motley::json;
namespace text = motley::text;

namespace {

constexpr text::RenderLimits limits = {.steps = 50'000,
                                       .depth = 400,
                                       .output_bytes = std::size_t{1} << 18,
                                       .memory_bytes = std::size_t{8} << 20};

// Each walks through its inputs in another way. None writes a byte beyond ASCII, nor a letter Q.
constexpr std::array<std::string_view, 6> sources = {
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content + '\\n' }}{% for c in m.tool_calls or [] "
    "%}"
    "{{ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}{% endfor %}{{ tools | "
    "tojson(indent=2) }}",
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'].split('</think>')[-1].lstrip('\\n') "
    "}}"
    "{% for c in m['tool_calls'] %}{{ c['function']['arguments'] }}{% endfor %}{% endfor %}",
    "{% macro show(c) %}{% if c is string %}{{ c | trim }}{% elif c is mapping %}{% for k, v in c "
    "| dictsort %}{{ k }}={{ show(v) }};"
    "{% endfor %}{% elif c is iterable %}{% for x in c %}{{ show(x) }},{% endfor %}{% else %}{{ c "
    "}}{% endif %}{% endmacro %}"
    "{{ show(messages) }}{{ show(tools) }}{{ show(documents) }}",
    "{{ messages }}{{ tools }}{{ documents }}{{ messages | map(attribute='content') | join('|') | "
    "upper | replace('A', '-') }}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') %}{{ '%5s|%-5s' % (m.content, "
    "loop.index) }}"
    "{{ '{:>7}|{!r}'.format(m.role, m.content) }}{{ m.content[1:-1][::-1] | title | indent(3) }}{% "
    "endfor %}",
    "{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}{{ "
    "messages | tojson(sort_keys=true) }}"
    "{{ kw | default('none') | string | truncate(9) | wordcount }}{{ messages | "
    "unique(attribute='content') | list | length }}",
};

const std::vector<text::ChatTemplate>& templates() {
  static const std::vector<text::ChatTemplate> all = [] {
    std::vector<text::ChatTemplate> made;
    for (const std::string_view source : sources)
      made.push_back(text::ChatTemplate::compile(source, "fixed").value());
    return made;
  }();
  return all;
}

bool only_inputs_bring(char byte) {
  return static_cast<unsigned char>(byte) >= 0x80 || byte == 'Q';
}

void check(const motley::Result<text::MarkedText>& rendered) {
  if (!rendered.ok()) {
    const std::string message = rendered.error().message();
    MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
    return;
  }
  std::size_t at = 0;
  const auto check_own = [&](std::size_t end) {
    for (; at < end; ++at)
      MOTLEY_CHECK(!only_inputs_bring(rendered->text[at]), "an input's byte without its mark");
  };
  for (const text::Span span : rendered->untrusted) {
    check_own(span.begin);
    at = span.end;
  }
  check_own(rendered->text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto value = json::parse(bytes, "input");
  if (!value.ok() || value->if_object() == nullptr) return 0;
  text::ChatInputs inputs;
  if (const json::Value* const messages = value->if_object()->find("messages"))
    inputs.messages = *messages;
  if (const json::Value* const tools = value->if_object()->find("tools")) inputs.tools = *tools;
  if (const json::Value* const documents = value->if_object()->find("documents"))
    inputs.documents = *documents;
  if (const json::Value* const kwargs = value->if_object()->find("kwargs");
      kwargs != nullptr && kwargs->if_object() != nullptr)
    inputs.kwargs = *kwargs->if_object();
  for (const text::ChatTemplate& each : templates()) check(each.render(inputs, limits));
  return 0;
}
