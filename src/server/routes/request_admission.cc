#include "server/routes/request_admission.h"

#include <iterator>

#include "base/cat.h"
#include "server/http/wire/body_coding.h"

namespace motley::server {
namespace {

std::optional<Error> wrong_target(const HttpHead& head, const RouteTable::Match& match) {
  const auto wrong = [](std::string_view what, std::string_view fix) {
    return Error(ErrorCode::invalid_argument, std::string(what), std::string(target_place),
                 std::string(fix));
  };
  constexpr std::string_view escape = "write % itself as %25";
  // Of these paths there is one spelling.
  if (match.route->exact_path && !match.parameter.well_formed)
    return wrong("a path with a % that begins no escape", escape);
  if (!is_text(match.parameter.text))
    return wrong("a path that is no UTF-8, or holds NUL", "code it as UTF-8");
  if (!head.query.well_formed()) return wrong("a query with a % that begins no escape", escape);
  return std::nullopt;
}

// A body that is streamed is read as it comes.
std::optional<HttpResponse> wrong_coding(const Route& route, const HttpHead& head) {
  if (route.body == Body::none) return std::nullopt;
  const bool streamed = route.body == Body::streamed;
  const std::optional<BodyCoding> coding = body_coding(head.content_encoding);
  if (streamed ? coding == BodyCoding::none : coding.has_value()) return std::nullopt;
  const std::string_view codings = streamed ? "identity" : body_codings;
  HttpResponse response = route.write_error(
      {ErrorCode::unsupported, cat("a body that is coded as ", quote(head.content_encoding)), "",
       streamed ? std::string("send it as it is")
                : cat("send it as it is, or as one of ", codings)},
      head.id);
  response.status = 415;
  response.headers.emplace_back("Accept-Encoding", codings);
  return response;
}

}  // namespace

RequestAdmission::RequestAdmission(const RouteTable& routes, Options options)
    : routes_(routes),
      keys_(std::move(options.keys)),
      keys_required_(keys_.get()->required()),
      admin_keys_(std::move(options.admin_keys)),
      has_admin_keys_(admin_keys_.get()->required()),
      origins_(std::move(options.origins)),
      adapter_loading_(options.adapter_loading) {}

HeadVerdict RequestAdmission::admit(const HttpHead& head, const RouteTable::Match& match) const {
  // Of one reading of the files.
  const std::shared_ptr<const ApiKeys> keys = keys_.get();
  const ApiKeys::Key* const key = keys->find(head.authorization, head.api_key);
  const bool is_admin = admin_keys_.get()->find(head.authorization, head.api_key) != nullptr;
  const Rights rights{.has_key = key != nullptr || is_admin,
                      .may_change_server = has_admin_keys_ ? is_admin : adapter_loading_};
  HeadVerdict verdict{.refusal = refusal(head, match, rights)};
  if (verdict.refusal) {
    std::ranges::move(page_headers(head, match), std::back_inserter(verdict.refusal->headers));
    return verdict;
  }
  verdict.max_body_bytes =
      match.route == nullptr ? Route::unread_body_bytes : match.route->max_body_bytes();
  verdict.streams_body = match.route != nullptr && match.route->body == Body::streamed;
  verdict.parameter = match.parameter.text;
  verdict.authorized = rights.has_key;
  verdict.may_change_server = rights.may_change_server;
  if (key != nullptr) verdict.holder = key->holder;
  return verdict;
}

std::vector<std::pair<std::string, std::string>> RequestAdmission::page_headers(
    const HttpHead& head, const RouteTable::Match& match) const {
  const bool for_pages = match.route != nullptr  ? match.route->pages != Pages::none
                         : match.path != nullptr ? routes_.is_for_pages(*match.path)
                                                 : false;
  if (!for_pages) return {};
  return origins_.headers(head);
}

HttpResponse RequestAdmission::preflight(const HttpHead& head,
                                         const RouteTable::Match& match) const {
  HttpResponse response{.status = 204, .content_type = ""};
  if (!origins_.is_allowed(head.origin)) return response;
  const std::string methods = cat(routes_.methods_for_pages(*match.path), ", OPTIONS");
  response.headers = {{"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", "*, Authorization"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

// The answer if the body need not be read.
std::optional<HttpResponse> RequestAdmission::refusal(const HttpHead& head,
                                                      const RouteTable::Match& match,
                                                      const Rights& rights) const {
  const auto refused = [&](const Error& error) {
    return routes_.error_writer(head.path)(error, head.id);
  };
  if (const auto wrong = origins_.check_host(head)) return refused(*wrong);
  if (match.path == nullptr) return refused(routes_.no_route(head.path));
  if (head.method == "OPTIONS" && routes_.is_for_pages(*match.path)) return std::nullopt;
  if (match.route == nullptr) return wrong_method(head, *match.path);
  const Route& route = *match.route;
  if (const auto denied = access_refusal(route, head, rights)) return refused(*denied);
  if (const auto wrong = wrong_target(head, match)) return refused(*wrong);
  return wrong_coding(route, head);
}

HttpResponse RequestAdmission::wrong_method(const HttpHead& head, const Route& path) const {
  const std::string allowed = routes_.methods(path);
  HttpResponse response = path.write_error(
      {ErrorCode::invalid_argument, cat(quote(head.method), " is not for this route"), "",
       cat("use ", allowed)},
      head.id);
  response.status = 405;
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Error RequestAdmission::no_operator(const HttpHead& head) const {
  if (!has_admin_keys_)
    return {ErrorCode::forbidden, "adapters can't be loaded here, nor the server changed", "",
            "start the server with --allow-adapter-loading or --admin-key-file"};
  const bool sent = !head.authorization.empty() || !head.api_key.empty();
  return {sent ? ErrorCode::forbidden : ErrorCode::unauthorized,
          "this route takes a key of --admin-key-file alone", "",
          "send Authorization: Bearer KEY, or X-Api-Key: KEY"};
}

std::optional<Error> RequestAdmission::access_refusal(const Route& route, const HttpHead& head,
                                                      const Rights& rights) const {
  if (route.access != Access::anyone && keys_required_ && !rights.has_key)
    return Error(ErrorCode::unauthorized, "no key, or a wrong one", "",
                 "send Authorization: Bearer KEY, or X-Api-Key: KEY");
  if (route.access == Access::operators && !rights.may_change_server) return no_operator(head);
  // A web page in a browser on this machine must not use routes without keys.
  if (route.pages == Pages::none && !head.origin.empty())
    return Error(ErrorCode::forbidden, "a web page can't change the server", "",
                 "send the request without Origin, from a program");
  // Pages have no key; and a gateway in front of a server with keys may use another Host.
  if (!keys_required_ && route.pages != Pages::any && origins_.is_foreign(head))
    return Error(ErrorCode::forbidden,
                 cat("web pages of ", quote(head.origin), " may not use this server"), "",
                 "start it with --cors-origin and their origin");
  if (shutting_down_ && route.access != Access::anyone)
    return Error(ErrorCode::unavailable, "the server is shutting down", "", "ask another");
  return std::nullopt;
}

}  // namespace motley::server
