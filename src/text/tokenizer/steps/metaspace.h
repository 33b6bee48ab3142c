#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/tokenizer/component.h"

namespace motley::text {

// Which words get a leading replacement character: all, the first of a text, or none.
enum class PrependScheme : std::uint8_t { always, first, never };

// The component Metaspace, which is a pre-tokenizer and a decoder.
struct MetaspaceFields {
  char32_t replacement = U'\u2581';
  PrependScheme scheme = PrependScheme::always;
  bool split = true;

  static Result<MetaspaceFields> parse(const Component& component);
};

}  // namespace motley::text
