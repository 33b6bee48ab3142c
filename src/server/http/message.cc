#include "server/http/message.h"

#include <algorithm>
#include <random>

#include "base/cat.h"

namespace motley::server {

HttpResponse json_response(std::string body) { return {.body = std::move(body)}; }

HttpResponse text_response(std::string_view content_type, std::string body) {
  return {.content_type = cat("text/", content_type, "; charset=utf-8"), .body = std::move(body)};
}

bool is_request_id(std::string_view text) {
  constexpr std::size_t longest = 128;
  return !text.empty() && text.size() <= longest && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

std::string new_request_id() {
  constexpr std::string_view digits = "0123456789abcdef";
  thread_local std::mt19937_64 random([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  std::string id;
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += digits[bits & 15];
  }
  return id;
}

}  // namespace motley::server
