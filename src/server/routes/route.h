#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "server/api/api_error.h"
#include "server/http/messages/exchange.h"

namespace motley::server {

// A class derives from it whose member functions answer requests.
class RouteHandlers {};
using RouteHandler = boost::asio::awaitable<void> (*)(RouteHandlers&, Exchange&);

template <auto member>
struct CallOfMember;
template <class Handlers, boost::asio::awaitable<void> (Handlers::*member)(Exchange&)>
struct CallOfMember<member> {
  static boost::asio::awaitable<void> call(RouteHandlers& handlers, Exchange& exchange) {
    return (static_cast<Handlers&>(handlers).*member)(exchange);
  }
};
// handler<&Service::health> is that member function.
template <auto member>
inline constexpr RouteHandler handler = CallOfMember<member>::call;

// Who may ask.
enum class Access : std::uint8_t {
  anyone,     // without a key, until the end of shutdown
  clients,    // with a key, if the server has keys
  operators,  // the same, with --allow-adapter-loading; or with a key of --admin-key-file
};

// Which web pages may ask, from the browsers of their visitors.
enum class Pages : std::uint8_t {
  none,
  allowed,  // the server's own, and those of --cors-origin
  any,      // pages that may not read the answer too, because it changes nothing
};

// What the handler does with a request's body.
enum class Body : std::uint8_t {
  none,      // leaves it: it may have a few bytes, of any coding
  whole,     // has all of it, decoded, before it is called
  streamed,  // reads it piece by piece, as it comes
};

// A method and a path, what is done there, and for whom.
struct Route {
  // That may come to a route which reads none.
  static constexpr std::size_t unread_body_bytes = 4 << 10;
  // No limit but the server's own.
  static constexpr std::size_t any_body_bytes = static_cast<std::size_t>(-1);

  std::string_view method;  // GET is HEAD, too
  // "/v1/models", or "/v1/models/{model}": the rest of the path, slashes included and decoded once,
  // is HttpRequest::parameter.
  std::string_view path;
  RouteHandler answer = nullptr;
  Body body = Body::none;
  std::size_t max_read_bytes = any_body_bytes;  // of a body that is read
  Access access = Access::clients;
  Pages pages = Pages::allowed;
  // No alternative spellings, so that a proxy can block it by its path.
  bool exact_path = false;
  ErrorWriter write_error = openai_error;

  static constexpr Route get(std::string_view path, RouteHandler answer) {
    return {.method = "GET", .path = path, .answer = answer, .pages = Pages::any};
  }
  static constexpr Route post(std::string_view path, RouteHandler answer) {
    return {.method = "POST", .path = path, .answer = answer, .body = Body::whole};
  }
  static constexpr Route put(std::string_view path, RouteHandler answer) {
    return {.method = "PUT", .path = path, .answer = answer, .body = Body::whole};
  }
  static constexpr Route remove(std::string_view path, RouteHandler answer) {
    return {.method = "DELETE", .path = path, .answer = answer};
  }

  constexpr Route for_anyone() const {
    Route route = *this;
    route.access = Access::anyone;
    route.pages = Pages::any;
    return route;
  }
  constexpr Route for_operators() const {
    Route route = with_exact_path();
    route.access = Access::operators;
    route.pages = Pages::none;
    return route;
  }
  constexpr Route with_exact_path() const {
    Route route = *this;
    route.exact_path = true;
    return route;
  }
  constexpr Route with_body(std::size_t max_bytes) const {
    Route route = *this;
    route.body = Body::whole;
    route.max_read_bytes = max_bytes;
    return route;
  }
  constexpr Route with_streamed_body(std::size_t max_bytes) const {
    Route route = with_body(max_bytes);
    route.body = Body::streamed;
    return route;
  }
  constexpr Route without_body() const {
    Route route = *this;
    route.body = Body::none;
    return route;
  }
  constexpr Route with_errors(ErrorWriter writer) const {
    Route route = *this;
    route.write_error = writer;
    return route;
  }

  constexpr bool has_parameter() const { return path.ends_with('}'); }
  // The path without its parameter; by it answers are counted.
  constexpr std::string_view fixed_path() const { return path.substr(0, path.find('{')); }
  constexpr std::size_t max_body_bytes() const {
    return body == Body::none ? unread_body_bytes : max_read_bytes;
  }
};

}  // namespace motley::server
