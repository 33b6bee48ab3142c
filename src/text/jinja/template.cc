#include "text/jinja/template.h"

#include "base/cat.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/syntax/parser.h"
#include "text/jinja/values/big_integer.h"

namespace motley::text::jinja {
namespace {

// Far beyond any chat template; compiling takes time and memory in proportion.
constexpr std::size_t longest_source = std::size_t{1} << 20;

}  // namespace

Template::Template(Source source, Heap heap, Block block, Root root)
    : source_(std::make_unique<Source>(std::move(source))),
      heap_(std::make_unique<Heap>(std::move(heap))),
      block_(std::move(block)),
      root_(std::move(root)) {}

Result<Template> Template::compile(std::string_view source, std::string name) {
  if (source.size() > longest_source)
    return Error(ErrorCode::unsupported, cat("a chat template of ", source.size(), " bytes"),
                 std::move(name), cat("at most ", longest_source, " are read"));
  MOTLEY_TRY(Source text, Source::make(source, std::move(name)));
  Heap heap;
  MOTLEY_TRY(Block block, parse(text, heap));
  MOTLEY_TRY(Root root, resolve(text, block));
  return Template(std::move(text), std::move(heap), std::move(block), std::move(root));
}

Result<MarkedText> Template::render(Runtime& runtime, const Dict& context) const {
  auto text = Interpreter(*source_, runtime, context).run(block_, root_);
  if (!text.ok() && text.error().where().empty())
    return std::move(text).error().within(source_->name());
  return text;
}

Result<Value> from_json(Runtime& runtime, const json::Value& value, bool untrusted) {
  MOTLEY_TRY_VOID(runtime.step());
  MOTLEY_TRY(const auto level, runtime.deeper());
  switch (value.kind()) {
    case json::Kind::null:
      return Value::none();
    case json::Kind::boolean:
      return Value::boolean(*value.if_boolean());
    case json::Kind::integer:
      return Value::integer(*value.if_integer());
    case json::Kind::number:
      if (const std::string* const digits = value.if_big_integer())
        return integer_of_digits(runtime, *digits);
      return Value::number(*value.as_number("a number"));
    case json::Kind::string:
      return runtime.text(*value.if_string(), untrusted);
    case json::Kind::array: {
      std::vector<Value> items;
      items.reserve(value.if_array()->size());
      for (const json::Value& each : *value.if_array()) {
        MOTLEY_TRY(const Value item, from_json(runtime, each, untrusted));
        items.push_back(item);
      }
      return runtime.list(std::move(items));
    }
    case json::Kind::object: {
      auto& dict = runtime.heap().make<Dict>();
      for (const auto& [key, each] : value.if_object()->members()) {
        MOTLEY_TRY(const Value item, from_json(runtime, each, untrusted));
        MOTLEY_TRY_VOID(dict.set(runtime, runtime.text(key, untrusted), item));
      }
      return Value::object(Kind::dict, &dict);
    }
  }
  return Value::none();
}

}  // namespace motley::text::jinja
