// The first byte says what the rest is: a JSON schema, a pattern or a grammar. It passes the checks
// that stand before the compiler, or is refused with a message of one line. Schemas are read: what
// can't be enforced of them is named by a few printable words.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cat.h"
#include "base/check.h"
#include "engine/grammar/check/check.h"
#include "engine/grammar/schema/schema.h"

namespace {

void expect_one_line(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using motley::engine::GrammarSpec;
  if (size == 0) return 0;
  constexpr GrammarSpec::Kind kinds[] = {GrammarSpec::Kind::json_schema, GrammarSpec::Kind::regex,
                                         GrammarSpec::Kind::ebnf,
                                         GrammarSpec::Kind::structural_tag};
  const GrammarSpec spec{.kind = kinds[data[0] % 4],
                         .text = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  const motley::Result<void> checked = motley::engine::check_grammar(spec);
  if (!checked.ok()) {
    expect_one_line(checked.error());
    return 0;
  }
  const motley::Result<motley::engine::ReadableSpec> read = motley::engine::read_schemas(spec);
  if (!read.ok()) {
    expect_one_line(read.error());
    return 0;
  }
  MOTLEY_CHECK(read->unenforced.size() <= 64, "few places");
  for (const std::string& place : read->unenforced) {
    const bool plain =
        std::ranges::all_of(place, [](char c) { return c > ' ' && c < 0x7F && c != ','; });
    MOTLEY_CHECK(plain && !place.empty() && place.size() < 1000, "a place that a header can hold");
  }
  return 0;
}
