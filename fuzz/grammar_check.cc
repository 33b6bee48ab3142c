// The first byte says what the rest is: a JSON schema, a pattern or a grammar. It passes the checks
// that stand before the compiler, or is refused with a message of one line. Schemas are read: what
// can't be enforced of them is named by a few printable words.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cat.h"
#include "base/check.h"
#include "grammar/check/check.h"
#include "grammar/schema/schema.h"

namespace {

void expect_one_line(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using motley::grammar::Spec;
  if (size == 0) return 0;
  constexpr Spec::Kind kinds[] = {Spec::Kind::json_schema, Spec::Kind::regex, Spec::Kind::ebnf,
                                  Spec::Kind::structural_tag};
  const Spec spec{.kind = kinds[data[0] % 4],
                  .text = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  const motley::Result<void> checked = motley::grammar::check(spec);
  if (!checked.ok()) {
    expect_one_line(checked.error());
    return 0;
  }
  const motley::Result<motley::grammar::ReadableSpec> read = motley::grammar::read_schemas(spec);
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
