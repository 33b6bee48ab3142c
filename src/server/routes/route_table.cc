#include "server/routes/route_table.h"

#include <utility>
#include <vector>

#include "base/cat.h"
#include "server/api/suggestions.h"
#include "server/routes/plain_path.h"

namespace motley::server {
namespace {

template <class Condition>
std::string joined_methods(std::span<const Route> routes, Condition condition) {
  std::string list;
  for (const Route& route : routes) {
    if (!condition(route)) continue;
    list += cat(list.empty() ? "" : ", ", route.method, route.method == "GET" ? ", HEAD" : "");
  }
  return list;
}

}  // namespace

RouteTable::Match RouteTable::find(std::string_view path, std::string_view method) const {
  const std::string plain = plain_path(path);
  const auto spelled = [&](const Route& route) {
    return route.exact_path ? path : std::string_view(plain);
  };
  const auto leads_to = [&](const Route& route) {
    const std::string_view fixed = route.fixed_path();
    const std::string_view asked = spelled(route);
    return route.has_parameter() ? asked.size() > fixed.size() && asked.starts_with(fixed)
                                 : asked == fixed;
  };
  const auto first = std::ranges::find_if(routes_, leads_to);
  if (first == routes_.end()) return {};
  Match match{.path = &*first};
  if (first->has_parameter())
    match.parameter = percent_decoded(spelled(*first).substr(first->fixed_path().size()));
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  const auto found = std::ranges::find_if(routes_, [&](const Route& route) {
    return route.path == first->path && route.method == wanted;
  });
  if (found != routes_.end()) match.route = &*found;
  return match;
}

std::string RouteTable::methods(const Route& path) const {
  return joined_methods(routes_, [&](const Route& route) { return route.path == path.path; });
}

std::string RouteTable::methods_for_pages(const Route& path) const {
  return joined_methods(routes_, [&](const Route& route) {
    return route.path == path.path && route.pages != Pages::none;
  });
}

Error RouteTable::no_route(std::string_view path) const {
  std::vector<std::string_view> paths;
  for (const Route& route : routes_)
    if (!route.has_parameter()) paths.push_back(route.path);
  return {ErrorCode::not_found, cat("no route ", quote(path)), "",
          path_advice(plain_path(path), paths)};
}

ErrorWriter RouteTable::error_writer(std::string_view path) const {
  if (const Match match = find(path, ""); match.path != nullptr) return match.path->write_error;
  const bool below = !errors_.prefix.empty() && plain_path(path).starts_with(errors_.prefix);
  return below ? errors_.write_error : openai_error;
}

}  // namespace motley::server
