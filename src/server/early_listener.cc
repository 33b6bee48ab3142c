#include "server/early_listener.h"

#include <utility>

#include "server/service.h"

namespace motley::server {

namespace asio = boost::asio;

Result<std::unique_ptr<EarlyListener>> EarlyListener::open(const HttpServer::Options& options) {
  std::unique_ptr<EarlyListener> listener(new EarlyListener);
  EarlyListener* const self = listener.get();
  HttpHooks hooks{.handler = [self](Exchange& exchange) { return self->answer(exchange); },
                  .admit = [self](const HttpHead& head) { return self->admit(head); },
                  .refuse = [self](const Error& error,
                                   const HttpHead& head) { return self->refuse(error, head); }};
  MOTLEY_TRY(listener->http_, HttpServer::listen(options, std::move(hooks)));
  listener->http_->start();
  return listener;
}

asio::awaitable<void> EarlyListener::answer(Exchange& exchange) {
  if (Service* const service = service_) return service->answer(exchange);
  exchange.log_quietly();
  return exchange.send(Service::live_response());
}

HeadVerdict EarlyListener::admit(const HttpHead& head) {
  if (Service* const service = service_) return service->admit(head);
  if (Service::asks_for_life(head)) return {};
  const Error loading(ErrorCode::unavailable, "the model is being loaded", "",
                      "try again in a moment");
  return {.refusal = refuse(loading, head)};
}

HttpResponse EarlyListener::refuse(const Error& error, const HttpHead& head) {
  if (Service* const service = service_) return service->refuse(error, head);
  return Service::error_writer(head.path)(error, head.id);
}

}  // namespace motley::server
