// Any text as a Python literal: what is one becomes JSON that is a literal of the same value, and
// ends where LiteralExtent says; which says the same however the text is cut. The first byte says
// where to cut.

#include "serving/forms/readers/python_literal.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json/json.h"
#include "base/utf8.h"

namespace json = motley::json;
namespace serving = motley::serving;

namespace {

struct Extent {
  std::size_t bytes = 0;
  bool ended = false;

  bool operator==(const Extent&) const = default;
};

Extent extent_of(std::string_view text, std::size_t piece) {
  serving::LiteralExtent extent;
  Extent all;
  for (std::size_t at = 0; at < text.size(); at += piece)
    all.bytes += extent.take(text.substr(at, piece));
  all.ended = extent.ended();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = 1 + data[0] % 16;
  const Extent extent = extent_of(text, text.size() + 1);
  MOTLEY_CHECK(extent == extent_of(text, piece), "the same extent however it comes");
  MOTLEY_CHECK(extent.ended == (extent.bytes < text.size()), "an end is before some byte");

  const auto written = serving::python_literal_to_json(text);
  if (!written) return 0;
  const std::string followed = text + ",";
  MOTLEY_CHECK((extent_of(followed, piece) == Extent{.bytes = text.size(), .ended = true}),
               "a literal ends where it does");
  MOTLEY_CHECK(motley::utf8::valid(*written), "valid UTF-8");
  const auto value = json::parse(*written, "written");
  MOTLEY_CHECK(value.ok(), value.error().message());
  MOTLEY_CHECK(serving::python_literal_to_json(*written) == written, "JSON of its own stays");
  return 0;
}
