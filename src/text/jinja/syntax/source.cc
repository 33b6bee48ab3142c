#include "text/jinja/syntax/source.h"

#include <algorithm>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/values/characters.h"

namespace motley::text::jinja {

Result<Source> Source::make(std::string_view text, std::string name) {
  if (!utf8::valid(text))
    return Error(ErrorCode::bad_file, "a chat template that is not UTF-8", std::move(name),
                 "save it as UTF-8");
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      lines += text[i];
      continue;
    }
    lines += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  // Jinja removes one line end at the end.
  if (lines.ends_with('\n')) lines.pop_back();
  return Source(std::move(lines), std::move(name));
}

Position Source::position(std::size_t byte) const {
  const std::string_view before = std::string_view(text_).substr(0, byte);
  const std::size_t last_end = before.rfind('\n');
  const std::string_view line =
      last_end == std::string_view::npos ? before : before.substr(last_end + 1);
  return {.line = 1 + static_cast<int>(std::ranges::count(before, '\n')),
          .column = 1 + static_cast<int>(utf8::count(line))};
}

std::string Source::where(Position position) const {
  return cat(name_, ", line ", position.line, ", column ", position.column);
}

Error Source::malformed(std::string what, std::size_t byte) const {
  return Error(ErrorCode::bad_file, std::move(what), where(position(byte)),
               "mend the chat template");
}

Error Source::refused(std::string what, std::size_t byte) const {
  return Error(ErrorCode::unsupported, std::move(what), where(position(byte)),
               "mend the chat template");
}

}  // namespace motley::text::jinja
