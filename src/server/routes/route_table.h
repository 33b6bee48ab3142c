#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/wire/percent_encoding.h"
#include "server/routes/route.h"

namespace motley::server {

// How errors are written for paths without a route that begin with the prefix.
struct ErrorsBelow {
  std::string_view prefix = {};
  ErrorWriter write_error = openai_error;
};

// All routes of a server. Of two that a path leads to, the first one counts.
class RouteTable {
 public:
  // `routes` must outlive the table. A constexpr table whose routes are wrong does not compile.
  constexpr explicit RouteTable(std::span<const Route> routes, ErrorsBelow errors = {})
      : routes_(routes), errors_(errors) {
    for (const Route& route : routes) {
      MOTLEY_CHECK(is_well_formed(route), "a parameter is what follows the last slash of a path");
      for (const Route& other : routes)
        MOTLEY_CHECK(agree(route, other), "routes of one path have its spellings and errors");
    }
  }

  // What a request leads to.
  struct Match {
    const Route* route = nullptr;  // of its path and its method
    const Route* path = nullptr;   // the first one of its path, whatever the method
    PercentDecoded parameter = {};
  };
  Match find(std::string_view path, std::string_view method) const;

  // The methods of the path of a route, "GET, HEAD, PUT"; or of those that web pages may use.
  std::string methods(const Route& path) const;
  std::string methods_for_pages(const Route& path) const;
  bool is_for_pages(const Route& path) const { return !methods_for_pages(path).empty(); }

  // The error about a path without a route.
  Error no_route(std::string_view path) const;
  // Whether the path has a route or not.
  ErrorWriter error_writer(std::string_view path) const;

 private:
  static constexpr bool is_well_formed(const Route& route) {
    const std::string_view fixed = route.fixed_path();
    const std::string_view rest = route.path.substr(fixed.size());
    if (!route.path.starts_with('/') || route.answer == nullptr) return false;
    return rest.empty() || (fixed.ends_with('/') && rest.find_first_of("/}") == rest.size() - 1);
  }
  static constexpr bool agree(const Route& one, const Route& other) {
    return one.path != other.path ||
           (one.exact_path == other.exact_path && one.write_error == other.write_error);
  }

  std::span<const Route> routes_;
  ErrorsBelow errors_;
};

}  // namespace motley::server
