#include "grammar/check/check.h"

#include "base/cat.h"

namespace motley::grammar {

Result<void> check_repeats(std::int64_t count, std::string_view where) {
  if (count >= 0 && count <= grammar_limits::repeats) return {};
  return Error(ErrorCode::invalid_argument, cat("repeats something ", count, " times"),
               std::string(where), cat("use counts from 0 to ", grammar_limits::repeats));
}

Result<void> check(const Spec& spec) {
  if (spec.text.size() > grammar_limits::text_bytes) {
    return Error(ErrorCode::invalid_argument,
                 cat("the grammar has ", spec.text.size(), " bytes, the most are ",
                     grammar_limits::text_bytes),
                 "grammar", "send a shorter one");
  }
  switch (spec.kind) {
    case Spec::Kind::json_object:
      return {};
    case Spec::Kind::json_schema:
      return check_schema(spec.text, "JSON schema");
    case Spec::Kind::regex:
      return check_regex(spec.text, "regex");
    case Spec::Kind::structural_tag:
      return check_structural_tag(spec.text, "tools");
    case Spec::Kind::ebnf:
      break;
  }
  return check_ebnf(spec.text, "grammar");
}

}  // namespace motley::grammar
