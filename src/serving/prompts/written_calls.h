#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "serving/forms/special_tokens.h"
#include "serving/forms/tool_form.h"

namespace motley::serving {

// A function that an answer may call.
struct CallableFunction {
  std::string name;
  json::Value parameters;  // a schema of an object
  bool strict = false;
};

// Calls in the form that a model writes, for grammars. Knows which of the form's marks are special
// tokens, which a grammar's text cannot produce.
class WrittenCalls {
 public:
  // Nothing for forms that no grammar can constrain to a schema.
  static std::optional<WrittenCalls> of(const ToolForm& form,
                                        std::span<const SpecialToken> special);

  // Whether arguments are JSON, and not between marks.
  bool in_json() const;
  // Everything before the arguments of a single call. `index`: the number of earlier calls.
  std::string head_of(std::string_view name, std::size_t index) const;
  // The arguments of such a call and everything after them.
  json::Object after_head(const CallableFunction& function) const;
  // At least one call.
  json::Object calls(std::span<const CallableFunction> functions, bool several) const;
  // Calls in text that is free up to the first mark.
  json::Object calls_in_text(std::span<const CallableFunction> functions, bool several) const;

 private:
  struct Marks;

  WrittenCalls(const Marks& marks, std::span<const SpecialToken> special)
      : marks_(&marks), special_(special) {}

  static const Marks* find(std::string_view form);
  void append(json::Array& parts, std::string_view text) const;
  void append_calls(json::Array& parts, std::span<const CallableFunction> functions,
                    bool several) const;
  // A call without the first `skipped` bytes of what precedes its name.
  json::Object call(const CallableFunction& function, std::size_t skipped,
                    std::string_view end) const;
  json::Object any_call(std::span<const CallableFunction> functions, std::size_t skipped,
                        std::string_view end) const;
  json::Object tag(std::string_view trigger, json::Object content, std::string_view end) const;
  const SpecialToken* special_at(std::string_view text) const;

  const Marks* marks_;
  std::span<const SpecialToken> special_;
};

}  // namespace motley::serving
