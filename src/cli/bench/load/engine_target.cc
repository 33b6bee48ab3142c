#include "cli/bench/load/engine_target.h"

#include <memory>
#include <utility>

namespace motley::cli {
namespace {

class Sink final : public engine::RequestSink {
 public:
  explicit Sink(FlightObserver& observer) : observer_(&observer) {}

  void started(const engine::StartEvent&) override {}
  void prompt_scored(const engine::PromptEvent&) override {}
  void token(const engine::TokenEvent&) override { observer_->token(); }
  void choice_finished(const engine::ChoiceEvent&) override {}
  void finished(const engine::Usage&) override { observer_->ended({}); }
  void failed(const Error& error) override { observer_->ended(error); }

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
