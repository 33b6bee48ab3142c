#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "serving/forms/output_parser.h"
#include "serving/prompts/planner.h"

namespace motley::cli {

// For a chat on this engine. The text must outlive it.
serving::Planner make_chat_planner(const engine::Engine& engine, const text::ModelText& text,
                                   bool special_in_untrusted);

// A chat: its messages so far, and the adapter that answers next.
class Conversation {
 public:
  // Both must outlive it.
  Conversation(engine::Engine& engine, const serving::Planner& planner)
      : engine_(engine), planner_(planner) {}

  // "" is the base.
  void speak_as(std::string adapter) { adapter_ = std::move(adapter); }
  const std::string& adapter() const { return adapter_; }
  void forget() { messages_.clear(); }

  struct Answer {
    std::int64_t tokens = 0;
    double seconds_to_first = 0;
    double seconds = 0;
    bool cut_off = false;  // by `enough`, or by its length
  };
  // Receives pieces of the answer as they arrive, on this thread.
  using Listener = std::function<void(const serving::ParsedOutput& piece)>;
  // Polled several times a second; true ends the answer.
  using Enough = std::function<bool()>;

  // Adds the message and its answer to the conversation, unless it fails.
  Result<Answer> say(std::string_view text, const Listener& listener, const Enough& enough);

 private:
  Result<serving::ChatPlan> plan(const json::Array& messages) const;

  engine::Engine& engine_;
  const serving::Planner& planner_;
  std::string adapter_;
  json::Array messages_;
};

}  // namespace motley::cli
