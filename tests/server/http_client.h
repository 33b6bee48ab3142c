#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"

namespace motley::server {

// What a client got.
struct Received {
  int status = 0;                              // 0: the connection ended without an answer
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;                            // chunks put together

  json::Value json() const;
  // {"error": {FIELD}} as text, "null" where it is null.
  std::string error(std::string_view field) const;
  // The data of server-sent events, the last [DONE] left out.
  std::vector<json::Value> events() const;
  bool done() const { return body.ends_with("data: [DONE]\n\n"); }
};

// A connection that sends exactly the given bytes: for well-behaved and for hostile clients.
class Client {
 public:
  explicit Client(std::uint16_t port) : Client(port, {}, 0) {}
  // From that address of this machine.
  Client(std::uint16_t port, const std::string& from) : Client(port, from, 0) {}
  // Whose system takes only about so many bytes that are not received yet; 0: as many as it likes.
  Client(std::uint16_t port, int receive_buffer_bytes) : Client(port, {}, receive_buffer_bytes) {}
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False where the server has closed meanwhile.
  bool send(std::string_view bytes);
  // The next answer; `to_head` if it has no body whatever it says.
  Received receive(bool to_head = false);
  // The next bytes, as they come; empty at the end.
  std::string receive_some();
  bool at_end();
  // Says nothing more, but listens.
  void half_close();
  void close();
  // Ends with a reset, as a client that crashes does.
  void reset();

 private:
  Client(std::uint16_t port, const std::string& from, int receive_buffer_bytes);

  bool fill();

  int socket_ = -1;
  std::string buffer_;
};

std::string get(std::string_view path, std::string_view headers = {});
std::string post(std::string_view path, std::string_view body, std::string_view headers = {});

// On a connection of its own.
Received ask(std::uint16_t port, std::string_view request);

}  // namespace motley::server
