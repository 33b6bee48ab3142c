#include "cli/client/api_client.h"

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::cli {

namespace asio = boost::asio;

asio::awaitable<Result<std::string>> ApiClient::ask(net::HttpClient::Request request, Take take) {
  if (!key_.empty()) request.headers.emplace_back("Authorization", cat("Bearer ", key_));
  auto answer = co_await http_.send(std::move(request), std::move(take));
  if (!answer.ok()) co_return std::move(answer).error();
  if (answer->status != 200)
    co_return Error(ErrorCode::unavailable,
                    cat("it answers ", answer->status, ": ", error_text(answer->body)),
                    http_.url().shown(), "see the server's log");
  co_return std::move(answer->body);
}

asio::awaitable<Result<std::string>> ApiClient::get(std::string path) {
  net::HttpClient::Request request{.path = std::move(path)};
  co_return co_await ask(std::move(request), {});
}

asio::awaitable<Result<void>> ApiClient::post(std::string path, std::string body, Take take) {
  net::HttpClient::Request request{
      .method = "POST", .path = std::move(path), .body = std::move(body)};
  request.headers.emplace_back("Content-Type", "application/json");
  auto answer = co_await ask(std::move(request), std::move(take));
  if (!answer.ok()) co_return std::move(answer).error();
  co_return Result<void>();
}

std::string error_text(std::string_view body) {
  constexpr std::size_t shown_bytes = 200;
  const auto value = json::parse(body, "an answer");
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  const json::Value* const error = object == nullptr ? nullptr : object->find("error");
  const json::Object* const fields = error == nullptr ? nullptr : error->if_object();
  const json::Value* const message = fields == nullptr ? nullptr : fields->find("message");
  if (message != nullptr && message->if_string() != nullptr) return *message->if_string();
  return quote(body.substr(0, shown_bytes));
}

}  // namespace motley::cli
