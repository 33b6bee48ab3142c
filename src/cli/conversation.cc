#include "cli/conversation.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/system/clock.h"
#include "engine/requests/waiting_reader.h"
#include "serving/answers/transcript.h"

namespace motley::cli {
namespace {

constexpr auto look_up = std::chrono::milliseconds(50);

// Cancels a request at its end, unless that has ended.
class CancelAtEnd {
 public:
  CancelAtEnd(engine::Engine& engine, engine::RequestId request)
      : engine_(engine), request_(request) {}
  CancelAtEnd(const CancelAtEnd&) = delete;
  CancelAtEnd& operator=(const CancelAtEnd&) = delete;
  ~CancelAtEnd() { engine_.cancel(request_); }

 private:
  engine::Engine& engine_;
  engine::RequestId request_;
};

json::Value message(std::string_view role, std::string_view content) {
  json::Object object;
  object.add("role", role);
  object.add("content", content);
  return object;
}

}  // namespace

serving::Planner make_chat_planner(const engine::Engine& engine, const text::ModelText& text,
                                   bool special_in_untrusted) {
  return {text,
          {.max_sequence_tokens = engine.max_sequence_tokens(),
           .keeps_states = engine.keeps_states(),
           .special_in_untrusted = special_in_untrusted}};
}

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
  engine::WaitingReader reader;
  MOTLEY_TRY(const engine::RequestId id, engine_.submit(std::move(planned.request), reader.sink()));
  const CancelAtEnd cancel(engine_, id);
  Answer answer;
  std::string content;
  bool interrupted = false;
  bool ended = false;
  const auto show = [&](const serving::ParsedOutput& piece) {
    content += piece.content;
    if (!piece.empty()) listener(piece);
  };
  while (!transcript.done()) {
    MOTLEY_TRY(std::vector<engine::EventQueue::Entry> arrived, reader.take(look_up));
    for (engine::EventQueue::Entry& each : arrived) {
      const auto update = transcript.take(std::move(each));
      if (!update) continue;
      if (answer.seconds_to_first == 0) answer.seconds_to_first = seconds(clock.now() - start);
      show(parser.push(update->piece.text));
      if (!update->end) continue;
      ended = true;
      show(parser.finish());
      if (update->end != engine::FinishReason::stop) answer.cut_off = true;
    }
    if (!interrupted && enough()) {
      interrupted = answer.cut_off = true;
      engine_.cancel(id);
    }
  }
  if (transcript.failure() && !interrupted) return *transcript.failure();
  if (!ended) show(parser.finish());
  answer.tokens = transcript.usage().completion_tokens;
  answer.seconds = seconds(clock.now() - start);
  messages.push_back(message("assistant", content));
  messages_ = std::move(messages);
  return answer;
}

}  // namespace motley::cli
