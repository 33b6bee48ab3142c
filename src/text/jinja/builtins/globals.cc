#include "text/jinja/builtins/globals.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <locale>
#include <sstream>

#include "base/cat.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/represent.h"

namespace motley::text::jinja {
namespace {

// The limit of Jinja's sandbox.
constexpr std::int64_t longest_range = 100'000;

Result<Value> range(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("range", {"", "", ""}, 1));
  MOTLEY_TRY(std::int64_t start, as_count(values[0]));
  std::int64_t stop = start;
  if (values[1].is(Kind::missing)) {
    start = 0;
  } else {
    MOTLEY_TRY(stop, as_count(values[1]));
  }
  MOTLEY_TRY(const std::int64_t step, as_count_or(values[2], 1));
  if (step == 0) return failure("range() arg 3 must not be zero");
  auto& made = runtime.heap().make<Range>(start, stop, step);
  if (made.size > longest_range)
    return failure(cat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (",
                       longest_range, ")."));
  return Value::object(Kind::range, &made);
}

// dict(mapping or pairs, name=value, ...)
Result<void> fill(Runtime& runtime, Dict& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    return failure(cat("dict expected at most 1 argument, got ", arguments.positional.size()));
  if (!arguments.positional.empty() && arguments.positional[0].is(Kind::undefined))
    return failure(arguments.positional[0].undefined().message);
  if (!arguments.positional.empty() && arguments.positional[0].is(Kind::dict)) {
    for (const auto& [key, value] : arguments.positional[0].dict().entries())
      MOTLEY_TRY_VOID(dict.set(runtime, key, value));
  } else if (!arguments.positional.empty()) {
    MOTLEY_TRY(Cursor cursor, Cursor::over(arguments.positional[0]));
    while (true) {
      MOTLEY_TRY(const Value item, cursor.next(runtime));
      if (item.is(Kind::missing)) break;
      MOTLEY_TRY(const std::vector<Value> pair, to_vector(runtime, item));
      if (pair.size() != 2)
        return failure(cat("a dict is made of pairs, not of ", pair.size(), " values"));
      MOTLEY_TRY_VOID(dict.set(runtime, pair[0], pair[1]));
    }
  }
  for (const auto& [name, value] : arguments.keyword)
    MOTLEY_TRY_VOID(dict.set(runtime, runtime.text(name), value));
  return {};
}

Result<Value> make_dict(Runtime& runtime, Arguments& arguments) {
  auto& made = runtime.heap().make<Dict>();
  MOTLEY_TRY_VOID(fill(runtime, made, arguments));
  return Value::object(Kind::dict, &made);
}

Result<Value> make_namespace(Runtime& runtime, Arguments& arguments) {
  auto& made = runtime.heap().make<Namespace>();
  MOTLEY_TRY_VOID(fill(runtime, made.attributes, arguments));
  for (const auto& [key, value] : made.attributes.entries()) {
    if (key.is(Kind::string) && key.string().text().starts_with('_'))
      return failure(cat("a namespace takes no attribute that begins with an underscore: ",
                         quote(shortened(key.string().text()))));
  }
  return Value::object(Kind::name_space, &made);
}

Result<Value> make_cycler(Runtime& runtime, Arguments& arguments) {
  if (!arguments.keyword.empty()) return failure("cycler() takes no argument by name");
  if (arguments.positional.empty()) return failure("at least one item has to be provided");
  auto& made = runtime.heap().make<Cycler>();
  MOTLEY_TRY_VOID(runtime.reserve(arguments.positional.size(), sizeof(Value)));
  runtime.heap().count(arguments.positional.size() * sizeof(Value));
  made.items = arguments.positional;
  return Value::object(Kind::cycler, &made);
}

struct Joiner : Callable {
  explicit Joiner(const Value& by) : separator(by) {}
  Result<Value> call(Runtime& runtime, Arguments& arguments) override {
    MOTLEY_TRY_VOID(arguments.bind_nothing("a joiner"));
    return std::exchange(used, true) ? separator : runtime.text("");
  }
  std::string name() const override { return "<Joiner object>"; }

  Value separator;
  bool used = false;
};

Result<Value> make_joiner(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("joiner", {"sep"}, 0));
  const Value separator = values[0].is(Kind::missing) ? runtime.text(", ") : values[0];
  return Value::object(Kind::callable,
                       static_cast<Callable*>(&runtime.heap().make<Joiner>(separator)));
}

Result<Value> raise_exception(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("raise_exception", {"message"}, 1));
  MOTLEY_TRY(const Value message, to_string(runtime, values[0]));
  runtime.raise();
  const std::string_view text = message.string().text();
  return failure(cat(shortened(text), shortened(text).size() < text.size() ? "..." : ""));
}

// The result of one strftime directive. The time has no zone, as from datetime.now(): %z and %Z are
// empty.
std::string time_part(const std::tm& now, char directive) {
  if (directive == 'z' || directive == 'Z') return {};
  if (directive == 'f') return "000000";
  std::ostringstream text;
  text.imbue(std::locale::classic());
  const auto& writer = std::use_facet<std::time_put<char>>(text.getloc());
  writer.put(std::ostreambuf_iterator<char>(text), text, ' ', &now, directive);
  return text.str();
}

Result<Value> strftime_now(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("strftime_now", {"format"}, 1));
  MOTLEY_TRY(const String* const format, as_text(values[0], "strftime_now"));
  constexpr std::size_t longest_format = 4096;
  if (format->text().size() > longest_format)
    return failure("strftime_now() takes a shorter format");
  std::string text;
  const std::string_view wanted = format->text();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != '%' || i + 1 == wanted.size()) {
      text += wanted[i];
      continue;
    }
    // "%-d": without leading zeros or spaces.
    // A conversion costs far more than a piece of text.
    MOTLEY_TRY_VOID(runtime.step(32));
    const bool bare = wanted[i + 1] == '-' && i + 2 < wanted.size();
    i += bare ? 2 : 1;
    std::string part = time_part(runtime.now(), wanted[i]);
    if (bare && part.size() > 1)
      part.erase(0, std::min(part.find_first_not_of("0 "), part.size() - 1));
    text += part;
  }
  return runtime.text(text, format->any_untrusted());
}

struct Builtin : Callable {
  using Run = Result<Value> (*)(Runtime&, Arguments&);
  Builtin(std::string_view name, Run what) : called(name), run(what) {}
  Result<Value> call(Runtime& runtime, Arguments& arguments) override {
    return run(runtime, arguments);
  }
  std::string name() const override { return cat("<function ", called, ">"); }

  std::string_view called;
  Run run;
};

constexpr std::pair<std::string_view, Builtin::Run> builtins[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Result<void> add_globals(Runtime& runtime, Dict& context) {
  for (const auto& [name, run] : builtins) {
    const Value made = Value::object(
        Kind::callable, static_cast<Callable*>(&runtime.heap().make<Builtin>(name, run)));
    MOTLEY_TRY_VOID(context.set(runtime, runtime.text(name), made));
  }
  return {};
}

}  // namespace motley::text::jinja
