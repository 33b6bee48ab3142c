#include "server/http/messages/message.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::server {

HttpResponse json_response(std::string body) { return {.body = std::move(body)}; }

HttpResponse text_response(std::string_view content_type, std::string body) {
  return {.content_type = cat("text/", content_type, "; charset=utf-8"), .body = std::move(body)};
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= max_request_id_bytes &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.' || c == ':';
         });
}

}  // namespace motley::server
