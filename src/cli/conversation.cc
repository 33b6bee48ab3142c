#include "cli/conversation.h"

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/system/clock.h"
#include "server/output/transcript.h"

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
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, look_up, [this] { return woken_; });
      woken_ = false;
    }
    return queue_->take();
  }

 private:
  bool wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::shared_ptr<engine::EventQueue> queue_ =
      std::make_shared<engine::EventQueue>([this] { return wake(); });
};

json::Value message(std::string_view role, std::string_view content) {
  json::Object object;
  object.add("role", role);
  object.add("content", content);
  return object;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace

Conversation::Conversation(engine::Engine& engine, const text::ModelText& text,
                           bool special_in_untrusted)
    : engine_(engine),
      text_(text),
      special_in_untrusted_(special_in_untrusted),
      format_(server::find_chat_format(text)),
      special_(server::special_tokens(text.tokenizer())) {
  for (const std::string& adapter : text.adapters_with_templates())
    adapter_formats_[adapter] = server::find_chat_format(text, {}, adapter);
}

engine::Request Conversation::request_for(std::vector<std::int32_t> tokens) const {
  const text::GenerationConfig& defaults = text_.generation();
  const auto room = engine_.max_sequence_tokens() - static_cast<std::int64_t>(tokens.size());
  engine::SamplingParams sampling;
  sampling.temperature = static_cast<float>(defaults.temperature.value_or(1));
  sampling.top_k = static_cast<std::int32_t>(defaults.top_k.value_or(0));
  sampling.top_p = static_cast<float>(defaults.top_p.value_or(1));
  sampling.min_p = static_cast<float>(defaults.min_p.value_or(0));
  sampling.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1));
  engine::Request request{.tokens = std::move(tokens),
                          .sampling = std::move(sampling),
                          .max_tokens = room,
                          .end_ids = defaults.end_tokens};
  if (!adapter_.empty()) request.adapters.push_back({.name = adapter_});
  return request;
}

Result<Conversation::Answer> Conversation::say(std::string_view text, const Listener& listener,
                                               const Enough& enough) {
  json::Array messages = messages_;
  messages.push_back(message("user", text));
  MOTLEY_TRY(text::ModelText::Chat chat,
             text_.chat({.messages = messages, .now = local_time(), .adapter = adapter_},
                        special_in_untrusted_));
  if (static_cast<std::int64_t>(chat.ids.size()) >= engine_.max_sequence_tokens())
    return Error(ErrorCode::too_long, "the conversation is as long as the model can follow", "",
                 "begin anew with /reset");
  server::TextRules rules{.tokenizer = &text_.tokenizer()};
  const auto& ends = text_.generation().end_tokens;
  rules.ends.insert(ends.begin(), ends.end());
  const auto own = adapter_formats_.find(adapter_);
  const server::ChatFormat format = server::format_for_prompt(
      own == adapter_formats_.end() ? format_ : own->second, chat.text.text);
  const auto visible = format.visible_tokens(special_);
  rules.visible.insert(visible.begin(), visible.end());
  MOTLEY_TRY(server::Transcript transcript, server::Transcript::make(std::move(rules), 1, 1));
  const auto parser = server::make_output_parser(format, chat.text.text, {});

  const SteadyClock clock;
  const TimePoint start = clock.now();
  const auto inbox = std::make_shared<Inbox>();
  MOTLEY_TRY(const engine::RequestId id,
             engine_.submit(request_for(std::move(chat.ids)), inbox->sink()));
  Answer answer;
  std::string content;
  bool interrupted = false;
  bool ended = false;
  const auto hear = [&](const server::ParsedOutput& piece) {
    content += piece.content;
    if (!piece.empty()) listener(piece);
  };
  while (!transcript.done()) {
    MOTLEY_TRY(std::vector<engine::EventQueue::Entry> arrived, inbox->take());
    for (engine::EventQueue::Entry& each : arrived) {
      const auto update = transcript.take(std::move(each));
      if (!update) continue;
      if (answer.seconds_to_first == 0) answer.seconds_to_first = seconds(clock.now() - start);
      hear(parser->push(update->piece.text));
      if (!update->end) continue;
      ended = true;
      hear(parser->finish());
      if (update->end == engine::FinishReason::length) answer.cut_off = true;
    }
    if (!interrupted && enough()) {
      interrupted = answer.cut_off = true;
      engine_.cancel(id);
    }
  }
  if (transcript.failure() && !interrupted) return *transcript.failure();
  if (!ended) hear(parser->finish());
  answer.tokens = transcript.usage().completion_tokens;
  answer.seconds = seconds(clock.now() - start);
  messages.push_back(message("assistant", content));
  messages_ = std::move(messages);
  return answer;
}

}  // namespace motley::cli
