#include "cli/http_peer.h"

#include <cerrno>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cat.h"
#include "base/json.h"

namespace motley::cli {
namespace {

std::string shown(const ServerUrl& server) { return cat(server.host, ":", server.port); }

Result<int> connect_to(const ServerUrl& server) {
  const addrinfo wanted{.ai_flags = 0,
                        .ai_family = AF_UNSPEC,
                        .ai_socktype = SOCK_STREAM,
                        .ai_protocol = 0,
                        .ai_addrlen = 0,
                        .ai_addr = nullptr,
                        .ai_canonname = nullptr,
                        .ai_next = nullptr};
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(server.host.c_str(), server.port.c_str(), &wanted, &found);
  if (failed != 0)
    return Error(ErrorCode::not_found, cat("no such host: ", ::gai_strerror(failed)), shown(server),
                 "check the URL");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    if (::connect(socket, each->ai_addr, each->ai_addrlen) == 0) return socket;
    ::close(socket);
  }
  return Error(ErrorCode::io, "nobody listens", shown(server),
               "start motley serve there, or check the URL");
}

}  // namespace

Result<HttpPeer> HttpPeer::ask(const ServerUrl& server, std::string_view path,
                               std::string_view body) {
  MOTLEY_TRY(const int socket, connect_to(server));
  HttpPeer peer(socket);
  const std::string text =
      body.empty() ? cat("GET ", server.prefix, path, " HTTP/1.1\r\nHost: ", server.host,
                         "\r\nConnection: close\r\n\r\n")
                   : cat("POST ", server.prefix, path, " HTTP/1.1\r\nHost: ", server.host,
                         "\r\nConnection: close\r\nContent-Type: application/json\r\n"
                         "Content-Length: ",
                         body.size(), "\r\n\r\n", body);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t sent = ::send(socket, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0)
      return Error(ErrorCode::io, "the server hangs up", shown(server), "see what it says there");
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
  return peer;
}

HttpPeer& HttpPeer::operator=(HttpPeer&& other) noexcept {
  std::swap(socket_, other.socket_);
  answer_ = std::move(other.answer_);
  return *this;
}

HttpPeer::~HttpPeer() {
  if (socket_ >= 0) ::close(socket_);
}

Result<void> HttpPeer::take_some() {
  char piece[16'384];
  ssize_t got = 0;
  do {
    got = ::recv(socket_, piece, sizeof piece, 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return answer_.end();
  return answer_.take(std::string_view(piece, static_cast<std::size_t>(got)));
}

Result<std::string> fetch(const ServerUrl& server, std::string_view path) {
  MOTLEY_TRY(HttpPeer peer, HttpPeer::ask(server, path));
  while (!peer.answer().complete()) MOTLEY_TRY_VOID(peer.take_some());
  std::string body = peer.answer().take_body();
  if (peer.answer().status() != 200) return refusal(peer.answer().status(), body).within(path);
  return body;
}

Error refusal(int status, std::string_view body) {
  std::string message = cat("the server answers with status ", status);
  const auto value = json::parse(body, "error");
  const json::Object* const object = value.ok() ? value->if_object() : nullptr;
  const json::Value* const error = object != nullptr ? object->find("error") : nullptr;
  const json::Object* const fields = error != nullptr ? error->if_object() : nullptr;
  const json::Value* const said = fields != nullptr ? fields->find("message") : nullptr;
  if (said != nullptr && said->if_string() != nullptr) message = *said->if_string();
  return {ErrorCode::unavailable, std::move(message)};
}

}  // namespace motley::cli
