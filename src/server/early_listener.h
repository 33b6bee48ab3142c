#pragma once

#include <atomic>
#include <memory>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "server/http/http_server.h"
#include "server/http/messages/exchange.h"

namespace motley::server {

class Service;

// Listens before the model is loaded, so that a port in use is detected at once. Until a service is
// attached, questions whether the process lives are answered, and other requests get 503.
class EarlyListener {
 public:
  // Answers from now on.
  static Result<std::unique_ptr<EarlyListener>> open(const HttpServer::Options& options);

  // Later requests go to the service, which must outlive the last handler: call http().stop()
  // before it is destroyed.
  void attach(Service& service) { service_ = &service; }
  HttpServer& http() { return *http_; }

 private:
  EarlyListener() = default;

  boost::asio::awaitable<void> answer(Exchange& exchange);
  HeadVerdict admit(const HttpHead& head);
  HttpResponse refuse(const Error& error, const HttpHead& head);

  std::atomic<Service*> service_{nullptr};
  std::unique_ptr<HttpServer> http_;
};

}  // namespace motley::server
