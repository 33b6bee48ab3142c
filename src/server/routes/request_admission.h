#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/api_keys.h"
#include "server/http/messages/message.h"
#include "server/routes/origin_policy.h"
#include "server/routes/route_table.h"

namespace motley::server {

// Decides by a request's head, and by the route that it leads to, whether it is answered.
// Thread-safe.
class RequestAdmission {
 public:
  struct Options {
    ApiKeys keys = {};
    ApiKeys admin_keys = {};  // if there are some, routes for operators take no others
    OriginPolicy::Options origins = {};
    bool adapter_loading = false;
  };
  // The table must outlive it.
  RequestAdmission(const RouteTable& routes, Options options);

  HeadVerdict admit(const HttpHead& head, const RouteTable::Match& match) const;
  // For an answer to a request that was admitted: which other servers' pages may read it.
  std::vector<std::pair<std::string, std::string>> page_headers(
      const HttpHead& head, const RouteTable::Match& match) const;
  // The answer to a browser that asks what a page may send to this path (OPTIONS).
  HttpResponse preflight(const HttpHead& head, const RouteTable::Match& match) const;

  // Later requests need one of these keys. Whether any is needed stays as it was.
  void set_keys(ApiKeys keys) { keys_.replace(std::move(keys)); }
  void set_admin_keys(ApiKeys keys) { admin_keys_.replace(std::move(keys)); }
  // Later requests get 503.
  void shut_down() { shutting_down_ = true; }
  bool shutting_down() const { return shutting_down_; }

 private:
  // What the keys of a request are good for.
  struct Rights {
    bool has_key = false;            // one of either kind
    bool may_change_server = false;  // routes for operators are open to it
  };
  std::optional<HttpResponse> refusal(const HttpHead& head, const RouteTable::Match& match,
                                      const Rights& rights) const;
  HttpResponse wrong_method(const HttpHead& head, const Route& path) const;
  std::optional<Error> access_refusal(const Route& route, const HttpHead& head,
                                      const Rights& rights) const;
  Error no_operator(const HttpHead& head) const;

  const RouteTable& routes_;
  CurrentApiKeys keys_;
  bool keys_required_;
  CurrentApiKeys admin_keys_;
  bool has_admin_keys_;
  OriginPolicy origins_;
  bool adapter_loading_;
  std::atomic<bool> shutting_down_{false};
};

}  // namespace motley::server
