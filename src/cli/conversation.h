#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/output/chat_format.h"
#include "text/model_text.h"

namespace motley::cli {

// A chat: its messages so far, and the adapter that answers next.
class Conversation {
 public:
  // Engine and text must outlive it.
  Conversation(engine::Engine& engine, const text::ModelText& text, bool special_in_untrusted);

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
  using Listener = std::function<void(const server::ParsedOutput& piece)>;
  // Polled several times a second; true ends the answer.
  using Enough = std::function<bool()>;

  // Adds the message and its answer to the conversation, unless it fails.
  Result<Answer> say(std::string_view text, const Listener& listener, const Enough& enough);

 private:
  engine::Request request_for(std::vector<std::int32_t> tokens) const;

  engine::Engine& engine_;
  const text::ModelText& text_;
  bool special_in_untrusted_;
  server::ChatFormat format_;
  std::map<std::string, server::ChatFormat> adapter_formats_;  // with templates of their own
  std::vector<server::SpecialToken> special_;
  std::string adapter_;
  json::Array messages_;
};

}  // namespace motley::cli
