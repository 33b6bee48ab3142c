// The first byte says what the rest is: a JSON schema, a pattern or a grammar. It passes the checks
// that stand before the compiler, or is refused with a message of one line.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cat.h"
#include "base/check.h"
#include "engine/grammar/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using motley::engine::GrammarSpec;
  if (size == 0) return 0;
  constexpr GrammarSpec::Kind kinds[] = {GrammarSpec::Kind::json_schema, GrammarSpec::Kind::regex,
                                         GrammarSpec::Kind::ebnf,
                                         GrammarSpec::Kind::structural_tag};
  const GrammarSpec spec{.kind = kinds[data[0] % 4],
                         .text = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  const motley::Result<void> checked = motley::engine::check_grammar(spec);
  if (checked.ok()) return 0;
  const std::string message = checked.error().message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
  return 0;
}
