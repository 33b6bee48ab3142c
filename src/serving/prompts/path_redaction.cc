#include "serving/prompts/path_redaction.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/cat.h"

namespace motley::serving {
namespace {

// Replaces absolute paths in a message: `known`, and paths inside it, by `shown`; others by their
// last component. A quoted path ends with its quote, others where the message's next part begins.
std::string without_folders(std::string_view text, std::string_view known, std::string_view shown) {
  constexpr std::string_view before = " '\"(,:=";
  std::string cleaned;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins =
        text[at] == '/' && (at == 0 || before.find(text[at - 1]) != std::string_view::npos);
    if (!begins) {
      cleaned += text[at++];
      continue;
    }
    const bool quoted = at > 0 && text[at - 1] == '\'';
    const std::size_t end = std::min(text.find_first_of(quoted ? "'" : ",:;)'", at), text.size());
    const std::string_view path = text.substr(at, end - at);
    const std::string_view rest = path.starts_with(known) ? path.substr(known.size()) : "";
    if (!known.empty() && (path == known || rest.starts_with('/'))) {
      cleaned += cat(shown, rest);
    } else if (!shown.empty() && (path == shown || path.starts_with(cat(shown, "/")))) {
      cleaned += path;
    } else {
      cleaned += path.substr(path.rfind('/') + 1);
    }
    at = end;
  }
  return cleaned;
}

}  // namespace

Error without_server_paths(const Error& error, const std::filesystem::path& resolved,
                           const std::filesystem::path& sent) {
  const std::string known = printable(resolved.string());
  const std::string shown = printable(sent.string());
  const auto clean = [&](const std::string& text) { return without_folders(text, known, shown); };
  return {error.code(), clean(error.what()), clean(error.where()), clean(error.fix())};
}

Error without_server_paths(const Error& error) {
  return {error.code(), error.what(), without_folders(error.where(), {}, {}), error.fix()};
}

}  // namespace motley::serving
