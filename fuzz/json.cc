// Whatever is parsed is written, parsed and written again without a change; whatever is refused is
// refused with a message of one line.

#include "base/json/json.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/check.h"

namespace json = motley::json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = json::parse(text, "input");
  if (!value.ok()) {
    const std::string message = value.error().message();
    MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
    return 0;
  }
  const std::string compact = json::write(*value);
  const auto again = json::parse(compact, "compact text");
  MOTLEY_CHECK(again.ok(), again.error().message());
  MOTLEY_CHECK(json::write(*again) == compact, "writing is stable");
  const auto pretty = json::parse(json::write_pretty(*value), "pretty text");
  MOTLEY_CHECK(pretty.ok(), pretty.error().message());
  MOTLEY_CHECK(json::write(*pretty) == compact, "pretty text holds the same value");
  return 0;
}
