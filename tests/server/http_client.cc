#include "server/http_client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cat.h"
#include "base/check.h"

namespace motley::server {

json::Value Received::json() const { return json::parse(body, "reply").value(); }

std::string Received::error(std::string_view field) const {
  const json::Value value = json();
  const json::Value* const error = value.if_object()->find("error");
  const json::Value* const found = error->if_object()->find(field);
  if (found == nullptr) return "(absent)";
  return found->if_string() != nullptr ? *found->if_string() : json::write(*found);
}

std::vector<json::Value> Received::events() const {
  std::vector<json::Value> list;
  std::size_t begin = 0;
  while (begin < body.size()) {
    const std::size_t end = body.find("\n\n", begin);
    MOTLEY_CHECK(end != std::string::npos, "an event without its end");
    const std::string_view line = std::string_view(body).substr(begin, end - begin);
    MOTLEY_CHECK(line.starts_with("data: "), "an event without data");
    if (line != "data: [DONE]") list.push_back(json::parse(line.substr(6), "event").value());
    begin = end + 2;
  }
  return list;
}

Client::Client(std::uint16_t port, const std::string& from, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // A test that waits for what never arrives ends with a message.
  const timeval minute{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  if (receive_buffer_bytes > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                 sizeof receive_buffer_bytes);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  if (!from.empty())
    MOTLEY_CHECK(::inet_pton(AF_INET, from.c_str(), &own.sin_addr) == 1 &&
                     ::bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0,
                 "an address of this machine");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  MOTLEY_CHECK(socket_ >= 0 &&
                   ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
               "a server that no client can connect to");
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool Client::fill() {
  char piece[4096];
  const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
  MOTLEY_CHECK(got >= 0 || errno != EAGAIN, "a server that has sent nothing for a minute");
  if (got <= 0) return false;
  buffer_.append(piece, static_cast<std::size_t>(got));
  return true;
}

std::string Client::receive_some() {
  if (buffer_.empty()) fill();
  return std::exchange(buffer_, {});
}

bool Client::at_end() { return buffer_.empty() && !fill(); }

Received Client::receive(bool to_head) {
  Received reply;
  std::size_t head = 0;
  while ((head = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!fill()) return reply;
  reply.status = std::stoi(buffer_.substr(9, 3));
  std::size_t line = buffer_.find("\r\n") + 2;
  while (line < head + 2) {
    const std::size_t end = buffer_.find("\r\n", line);
    const std::size_t colon = buffer_.find(": ", line);
    std::string name = buffer_.substr(line, colon - line);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    reply.headers[name] = buffer_.substr(colon + 2, end - colon - 2);
    line = end + 2;
  }
  buffer_.erase(0, head + 4);
  if (reply.status == 100) return receive(to_head);
  if (to_head || reply.status == 204) return reply;
  if (reply.headers.contains("content-length")) {
    const std::size_t bytes = std::stoul(reply.headers["content-length"]);
    while (buffer_.size() < bytes)
      if (!fill()) return reply;
    reply.body = buffer_.substr(0, bytes);
    buffer_.erase(0, bytes);
  } else if (reply.headers.contains("transfer-encoding")) {
    while (true) {
      std::size_t end = 0;
      while ((end = buffer_.find("\r\n")) == std::string::npos)
        if (!fill()) return reply;
      const std::size_t bytes = std::stoul(buffer_.substr(0, end), nullptr, 16);
      while (buffer_.size() < end + 2 + bytes + 2)
        if (!fill()) return reply;
      reply.body += buffer_.substr(end + 2, bytes);
      buffer_.erase(0, end + 2 + bytes + 2);
      if (bytes == 0) break;
    }
  } else {
    while (fill()) {
    }
    reply.body = std::exchange(buffer_, {});
  }
  return reply;
}

void Client::half_close() { ::shutdown(socket_, SHUT_WR); }

void Client::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void Client::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

std::string get(std::string_view path, std::string_view headers) {
  return cat("GET ", path, " HTTP/1.1\r\nHost: test\r\n", headers, "\r\n");
}

std::string post(std::string_view path, std::string_view body, std::string_view headers) {
  return cat("POST ", path, " HTTP/1.1\r\nHost: test\r\nContent-Length: ", body.size(), "\r\n",
             headers, "\r\n", body);
}

Received ask(std::uint16_t port, std::string_view request) {
  Client client(port);
  client.send(request);
  return client.receive(request.starts_with("HEAD"));
}

}  // namespace motley::server
