#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "server/output/special_tokens.h"
#include "server/output/tool_form.h"

namespace motley::server {

// A function that an answer may call.
struct CallableFunction {
  std::string name;
  json::Value parameters;  // a schema of an object
  bool strict = false;
};

// Calls as a model writes them, for grammars: one form of a call, and which of its marks are
// special tokens, which nothing that a grammar says of text can write.
class WrittenCalls {
 public:
  // Nothing for forms that no grammar can hold to a schema.
  static std::optional<WrittenCalls> of(const ToolForm& form,
                                        std::span<const SpecialToken> special);

  // Arguments are JSON, and not between marks.
  bool in_json() const;
  // All that stands before the arguments of a single call. `index` is how many calls came before.
  std::string head_of(std::string_view name, std::size_t index) const;
  // The arguments of such a call and all that stands behind them.
  json::Object behind_head(const CallableFunction& function) const;
  // One call at least.
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
  // A call, behind the first `skipped` bytes of what stands before its name.
  json::Object call(const CallableFunction& function, std::size_t skipped,
                    std::string_view end) const;
  json::Object any_call(std::span<const CallableFunction> functions, std::size_t skipped,
                        std::string_view end) const;
  json::Object tag(std::string_view trigger, json::Object content, std::string_view end) const;
  const SpecialToken* special_at(std::string_view text) const;

  const Marks* marks_;
  std::span<const SpecialToken> special_;
};

}  // namespace motley::server
