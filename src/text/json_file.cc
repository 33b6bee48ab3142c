#include "text/json_file.h"

#include "base/cat.h"
#include "base/system/files.h"

namespace motley::text {

// The largest known tokenizer.json has 34 MB.
constexpr std::size_t longest_file = std::size_t{256} << 20;

Result<std::optional<json::Value>> read_json_file(const std::filesystem::path& path) {
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return std::optional<json::Value>();
  auto text = read_text(path, longest_file);
  if (!text.ok()) return inside_folder(std::move(text).error());
  auto value = json::parse(*text, printable(path.string()));
  if (!value.ok()) return std::move(value).error().as(ErrorCode::bad_file);
  return std::optional<json::Value>(*std::move(value));
}

}  // namespace motley::text
