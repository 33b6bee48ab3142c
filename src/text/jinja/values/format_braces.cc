// "{} of {count:>5}".format(...)

#include <algorithm>

#include "base/ascii.h"
#include "base/cat.h"
#include "text/jinja/attributes.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/format_digits.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const String& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  Result<Value> run() {
    MOTLEY_TRY_VOID(runtime_.scan(format_.text().size()));
    TextBuilder out(runtime_);
    MOTLEY_TRY_VOID(expand(0, format_.text().size(), 2, out));
    return out.finish(format_.markup);
  }

 private:
  // Appends the format between two bytes with its fields filled in.
  Result<void> expand(std::size_t begin, std::size_t end, int nesting, TextBuilder& out) {
    if (nesting == 0) return failure("Max string recursion exceeded");
    const std::string_view text = format_.text();
    for (std::size_t at = begin; at < end;) {
      const std::size_t brace = std::min(text.substr(0, end).find_first_of("{}", at), end);
      MOTLEY_TRY_VOID(runtime_.step());
      MOTLEY_TRY_VOID(out.append_part(format_.marked, at, brace));
      if (brace == end) break;
      at = brace + 1;
      if (at < end && text[at] == text[brace]) {
        MOTLEY_TRY_VOID(out.append_part(format_.marked, brace, at++));
        continue;
      }
      if (text[brace] == '}') return failure("Single '}' encountered in format string");
      MOTLEY_TRY_VOID(expand_field(at, end, nesting, out));
    }
    return {};
  }

  // Appends the field whose name begins at `at`, which is moved past its closing brace.
  Result<void> expand_field(std::size_t& at, std::size_t end, int nesting, TextBuilder& out) {
    const std::string_view text = format_.text();
    int depth = 1;
    std::size_t close = at;
    std::size_t colon = std::string_view::npos;
    for (; close < end; ++close) {
      if (text[close] == '{') ++depth;
      if (text[close] == '}' && --depth == 0) break;
      if (text[close] == ':' && depth == 1 && colon == std::string_view::npos) colon = close;
    }
    if (close == end) return failure("expected '}' before end of string");
    const std::size_t head_end = std::min(colon, close);
    std::string_view head = text.substr(at, head_end - at);
    char conversion = 0;
    if (head.size() >= 2 && head[head.size() - 2] == '!') {
      conversion = head.back();
      head.remove_suffix(2);
    }
    MOTLEY_TRY(Value value, value_of(head));
    if (conversion == 'r' || conversion == 'a') {
      MOTLEY_TRY(value, represent(runtime_, value));
    } else if (conversion == 's') {
      MOTLEY_TRY(value, to_string(runtime_, value));
    } else if (conversion != 0) {
      return failure("Unknown conversion specifier");
    }
    TextBuilder specification(runtime_);
    if (colon < close) MOTLEY_TRY_VOID(expand(colon + 1, close, nesting - 1, specification));
    at = close + 1;
    MOTLEY_TRY(const Value shown, format_value(runtime_, value, specification.text().text));
    const bool escapes = format_.markup && !(value.is(Kind::string) && value.string().markup);
    return escapes ? append_escaped(out, shown.string().marked) : out.append(shown.string().marked);
  }

  Result<Value> value_of(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    MOTLEY_TRY(Value value, first_value(name.substr(0, first_end)));
    for (std::size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) return failure("Empty attribute in format string");
        MOTLEY_TRY(value, get_attribute(runtime_, value, name.substr(at + 1, end - at - 1)));
        at = end;
        continue;
      }
      const std::size_t end = name.find(']', at);
      if (name[at] != '[' || end == std::string_view::npos)
        return failure("Missing ']' in format string");
      const std::string_view key = name.substr(at + 1, end - at - 1);
      const bool is_number = !key.empty() && std::ranges::all_of(key, ascii::is_digit);
      std::size_t digits = 0;
      const Value index = is_number ? Value::integer(read_amount(key, digits)) : runtime_.text(key);
      MOTLEY_TRY(value, get_item(runtime_, value, index));
      at = end + 1;
    }
    return value;
  }

  Result<Value> first_value(std::string_view name) {
    const bool is_number = std::ranges::all_of(name, ascii::is_digit);
    if (!is_number) {
      for (const auto& [key, value] : arguments_.keyword) {
        MOTLEY_TRY_VOID(runtime_.step(key.size() == name.size() ? 1 + (name.size() / 64) : 1));
        if (key == name) return value;
      }
      return failure(cat("format() lacks the argument ", quote(shortened(name))));
    }
    std::size_t digits = 0;
    const std::size_t index =
        name.empty() ? next_++ : static_cast<std::size_t>(read_amount(name, digits));
    if (index >= arguments_.positional.size())
      return failure(cat("Replacement index ", index, " out of range for positional args tuple"));
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const String& format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

Result<Value> format_braces(Runtime& runtime, const String& format, const Arguments& arguments) {
  return BraceFormat(runtime, format, arguments).run();
}

}  // namespace motley::text::jinja
