#include "cli/bench/load/engine_target.h"

#include <memory>
#include <utility>

namespace motley::cli {
namespace {

// Observes events when they are made, as no queue would show them.
class Sink final : public engine::EventSink {
 public:
  explicit Sink(FlightObserver& observer) : observer_(&observer) {}

  void take(engine::Event event) override {
    if (std::holds_alternative<engine::TokenEvent>(event)) return observer_->token();
    if (const auto* const error = std::get_if<Error>(&event)) return observer_->ended(*error);
    if (engine::is_last(event)) observer_->ended({});
  }

 private:
  FlightObserver* observer_;
};

}  // namespace

void EngineTarget::send(PlannedRequest request, FlightObserver& observer) {
  engine::Request asked{.tokens = std::move(request.tokens),
                        .sampling = {.temperature = 0, .ignore_eos = true},
                        .max_tokens = request.max_tokens};
  if (request.adapter) asked.adapters = {{.name = adapters_[*request.adapter]}};
  const auto sent = engine_->submit(std::move(asked), std::make_shared<Sink>(observer));
  if (!sent.ok()) observer.ended(sent.error());
}

}  // namespace motley::cli
