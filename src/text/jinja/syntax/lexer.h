#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/jinja/syntax/source.h"

namespace motley::text::jinja {

enum class TokenKind : std::uint8_t {
  data,            // text between the tags, with white space trimmed
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,
  integer,
  number,
  symbol,  // an operator or bracket, which is in `text`
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::size_t at = 0;  // byte in the source
  std::string text;    // of strings the decoded contents
  std::int64_t integer = 0;
  double number = 0;
};

// The tokens of a template; the last one is `end`. White space is trimmed as by Jinja's trim_blocks
// and lstrip_blocks; comments are removed, and raw blocks are data.
Result<std::vector<Token>> tokenize(const Source& source);

}  // namespace motley::text::jinja
