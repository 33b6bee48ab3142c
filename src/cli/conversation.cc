#include "cli/conversation.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/system/clock.h"
#include "engine/requests/event_queue.h"
#include "serving/answers/transcript.h"

namespace motley::cli {
namespace {

constexpr auto look_up = std::chrono::milliseconds(50);

// The engine's events, for a thread that waits for them.
class Inbox {
 public:
  std::shared_ptr<engine::EventSink> sink() { return queue_->sink_for(0); }

  // The events so far; waits briefly, and may return none.
  Result<std::vector<engine::EventQueue::Entry>> take() {
    {
      std::unique_lock lock(bell_->mutex);
      bell_->rung.wait_for(lock, look_up, [this] { return std::exchange(bell_->rings, false); });
    }
    return queue_->take();
  }

 private:
  // The engine may ring once more when the answer has ended.
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    bool rings = false;

    bool ring() {
      const std::lock_guard lock(mutex);
      rings = true;
      rung.notify_one();
      return true;
    }
  };

  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::shared_ptr<engine::EventQueue> queue_ =
      std::make_shared<engine::EventQueue>([bell = bell_] { return bell->ring(); });
};

json::Value message(std::string_view role, std::string_view content) {
  json::Object object;
  object.add("role", role);
  object.add("content", content);
  return object;
}

}  // namespace

Result<serving::ChatPlan> Conversation::plan(const json::Array& messages) const {
  const text::ModelText& text = planner_.text();
  serving::ChatRequest request{.inputs = {.messages = messages}};
  serving::GenerationSettings settings{
      .sampling = serving::default_sampling(text.generation(), text.tokenizer().size())};
  if (!adapter_.empty()) settings.adapters.push_back({.name = adapter_});
  serving::Notices notices;
  auto plan = planner_.chat(request, settings, planner_.bounds(nullptr), notices);
  if (!plan.ok() && plan.error().code() == ErrorCode::too_long)
    return Error(ErrorCode::too_long, "the conversation is as long as the model can follow", "",
                 "begin anew with /reset");
  return plan;
}

Result<Conversation::Answer> Conversation::say(std::string_view text, const Listener& listener,
                                               const Enough& enough) {
  json::Array messages = messages_;
  messages.push_back(message("user", text));
  MOTLEY_TRY(serving::ChatPlan planned, plan(messages));
  MOTLEY_TRY(serving::Transcript transcript,
             serving::Transcript::make(std::move(planned.rules), 1, 1));
  serving::OutputParser& parser = *planned.parsers.front();

  const SteadyClock clock;
  const TimePoint start = clock.now();
  Inbox inbox;
  MOTLEY_TRY(const engine::RequestId id, engine_.submit(std::move(planned.request), inbox.sink()));
  Answer answer;
  std::string content;
  bool interrupted = false;
  bool ended = false;
  const auto hear = [&](const serving::ParsedOutput& piece) {
    content += piece.content;
    if (!piece.empty()) listener(piece);
  };
  while (!transcript.done()) {
    MOTLEY_TRY(std::vector<engine::EventQueue::Entry> arrived, inbox.take());
    for (engine::EventQueue::Entry& each : arrived) {
      const auto update = transcript.take(std::move(each));
      if (!update) continue;
      if (answer.seconds_to_first == 0) answer.seconds_to_first = seconds(clock.now() - start);
      hear(parser.push(update->piece.text));
      if (!update->end) continue;
      ended = true;
      hear(parser.finish());
      if (update->end == engine::FinishReason::length) answer.cut_off = true;
    }
    if (!interrupted && enough()) {
      interrupted = answer.cut_off = true;
      engine_.cancel(id);
    }
  }
  if (transcript.failure() && !interrupted) return *transcript.failure();
  if (!ended) hear(parser.finish());
  answer.tokens = transcript.usage().completion_tokens;
  answer.seconds = seconds(clock.now() - start);
  messages.push_back(message("assistant", content));
  messages_ = std::move(messages);
  return answer;
}

}  // namespace motley::cli
