#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/jinja/runtime.h"
#include "text/jinja/scopes.h"
#include "text/jinja/syntax/source.h"
#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// A compiled template; can be rendered concurrently.
class Template {
 public:
  // `name` is used in messages.
  static Result<Template> compile(std::string_view source, std::string name);

  // `context` has the template's inputs, including the functions of globals.h. Its values belong to
  // the runtime.
  Result<MarkedText> render(Runtime& runtime, const Dict& context) const;

  const std::string& name() const { return source_->name(); }

 private:
  Template(Source source, Heap heap, Block block, Root root);

  // On the heap: the tree points into them.
  std::unique_ptr<Source> source_;
  std::unique_ptr<Heap> heap_;
  Block block_;
  Root root_;
};

// Converts JSON to a value; `untrusted` applies to its strings.
Result<Value> from_json(Runtime& runtime, const json::Value& value, bool untrusted);

}  // namespace motley::text::jinja
