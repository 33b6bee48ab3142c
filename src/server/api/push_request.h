#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/requests/adapter_spec.h"
#include "server/http/messages/query.h"

namespace motley::server {

// A push of an adapter: where its files are, and what it asks for.
struct PushRequest {
  // Of its name, version and options; the path of a folder on the server as the client wrote it, or
  // none if the files are the body.
  engine::AdapterSpec spec;
  std::string operation_id = {};  // empty: none
};

inline constexpr std::size_t max_operation_id_bytes = 128;
inline constexpr std::size_t max_version_bytes = 128;

// Whether it can be the name of a version.
Result<void> check_version(std::string_view version, std::string_view field);

// Whether the body is JSON that names a path, and not the files.
bool is_json(std::string_view content_type);

Result<PushRequest> read_push_query(const Query& query);
Result<PushRequest> read_push_body(const json::Value& body);

}  // namespace motley::server
