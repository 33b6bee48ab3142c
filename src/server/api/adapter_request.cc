#include "server/api/adapter_request.h"

#include <algorithm>
#include <system_error>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/files.h"
#include "engine/adapter_name.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/generation_fields.h"
#include "serving/prompts/path_redaction.h"

namespace motley::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view path_field = "lora_path";

Result<std::string> read_name(Fields& fields) {
  MOTLEY_TRY(auto name, fields.string("lora_name"));
  if (!name || !engine::is_adapter_name(*name))
    return Error(ErrorCode::invalid_argument,
                 name ? cat("not an adapter's name: ", quote(*name)) : "no name", "lora_name",
                 cat("use ", engine::adapter_name_rule));
  return *std::move(name);
}

// Reads a field in either spelling, this API's or that of the command line's option.
Result<std::optional<std::string>> read_either(Fields& fields, std::string_view one,
                                               std::string_view other) {
  MOTLEY_TRY(auto first, fields.string(one));
  MOTLEY_TRY(auto second, fields.string(other));
  return first ? std::move(first) : std::move(second);
}

template <class T>
Result<T> at(std::string_view field, Result<T> read) {
  if (!read.ok()) return std::move(read).error().within(field);
  return read;
}

// `sent` is the path as the client wrote it.
Result<fs::path> follow(const fs::path& path, const fs::path& sent) {
  std::error_code failure;
  fs::path found = fs::canonical(path, failure);
  if (failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory)
    return Error(ErrorCode::not_found, cat("no such folder ", quote(sent.string())),
                 std::string(path_field), "give the path of an adapter's folder");
  if (failure)
    return Error(ErrorCode::invalid_argument,
                 cat("can't follow ", quote(sent.string()), ": ", failure.message()),
                 std::string(path_field), "give the path of an adapter's folder");
  return found;
}

bool lies_in(const fs::path& path, const fs::path& root) {
  const auto [root_end, path_end] = std::ranges::mismatch(root, path);
  return root_end == root.end();
}

// Without links.
Result<fs::path> whole_root(const fs::path& root) {
  std::error_code failure;
  fs::path whole = fs::canonical(root, failure);
  if (!failure) return whole;
  log::error("serve.adapter_root", {{"path", root.native()}, {"reason", failure.message()}});
  return Error(ErrorCode::unavailable, "the folder of --adapter-root can't be read", "",
               "the server's log says why");
}

Error outside(const fs::path& path) {
  return {ErrorCode::invalid_argument, cat(quote(path.string()), " lies outside --adapter-root"),
          std::string(path_field), "move it inside, or start the server with another root"};
}

}  // namespace

Result<bool> read_on_replace(const std::optional<std::string>& text) {
  if (!text || *text == "finish") return false;
  if (*text == "switch") return true;
  return Error(
      ErrorCode::invalid_argument, cat("unknown: ", quote(*text)), "on_replace",
      "use finish, the default: requests that run end with the content they began with; or "
      "switch: they go on with the new one");
}

Result<LoadAdapterRequest> read_load_adapter_request(const json::Value& body) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  LoadAdapterRequest request;
  MOTLEY_TRY(request.spec.name, read_name(fields));
  MOTLEY_TRY(const auto path, fields.string(path_field));
  if (!path || path->empty() || path->size() > field_limits::lora_path.most ||
      path->find('\0') != std::string::npos)
    return Error(ErrorCode::invalid_argument, "not a path", std::string(path_field),
                 "give the path of an adapter's folder");
  request.spec.path = *path;
  MOTLEY_TRY(const auto replace, fields.boolean("load_inplace"));
  request.replace = replace.value_or(false);
  MOTLEY_TRY(const auto pinned, fields.boolean("pinned"));
  request.spec.pinned = pinned.value_or(false);
  MOTLEY_TRY(const auto partial, fields.boolean("partial"));
  request.spec.load.partial = partial.value_or(false);
  MOTLEY_TRY(const auto columns, read_either(fields, "b-columns", "b_columns"));
  if (columns) {
    MOTLEY_TRY(request.spec.load.b_columns, at("b_columns", lora::parse_b_columns(*columns)));
  }
  MOTLEY_TRY(const auto orientation, fields.string("orientation"));
  if (orientation) {
    MOTLEY_TRY(request.spec.load.orientation,
               at("orientation", lora::parse_orientation(*orientation)));
  }
  MOTLEY_TRY(const auto on_replace, fields.string("on_replace"));
  MOTLEY_TRY(request.spec.switches, read_on_replace(on_replace));
  MOTLEY_TRY(const auto stacked, fields.boolean("is_3d_lora_weight"));
  static_cast<void>(stacked);                         // the files show it
  fields.accept({"lora_int_id", "base_model_name"});  // sent by vLLM's clients
  MOTLEY_TRY_VOID(fields.finish());
  return request;
}

Result<std::string> read_unload_adapter_request(const json::Value& body) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  MOTLEY_TRY(std::string name, read_name(fields));
  fields.accept({"lora_int_id"});
  MOTLEY_TRY_VOID(fields.finish());
  return name;
}

Result<void> place_adapter(engine::AdapterSpec& spec, const std::optional<fs::path>& root) {
  MOTLEY_TRY(spec.path, resolve_adapter_path(spec.path, root));
  if (!root) return {};
  MOTLEY_TRY(spec.load.beneath, whole_root(*root));
  return {};
}

Result<fs::path> resolve_adapter_path(const fs::path& path, const std::optional<fs::path>& root) {
  if (!root) return follow(path, path);
  MOTLEY_TRY(const fs::path base, whole_root(*root));
  // An absolute path replaces the root here. A path outside the root is refused, whether it exists
  // or not.
  const fs::path wanted = base / path;
  std::error_code ignored;
  if (!lies_in(fs::weakly_canonical(wanted, ignored), base)) return outside(path);
  MOTLEY_TRY(const fs::path folder, follow(wanted, path));
  if (!lies_in(folder, base)) return outside(path);
  const auto as_sent = [&](const Error& error) {
    return serving::without_server_paths(error, folder, path);
  };
  const auto kind = path_kind(folder);
  if (!kind.ok()) return as_sent(kind.error());
  if (*kind != PathKind::folder) return folder;
  const auto names = list_folder(folder);
  if (!names.ok()) return as_sent(names.error());
  for (const std::string& name : *names) {
    MOTLEY_TRY(const fs::path file, follow(folder / name, path / name));
    if (!lies_in(file, base)) return outside(path / name);
  }
  return folder;
}

}  // namespace motley::server
