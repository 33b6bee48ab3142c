#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <variant>

#include "engine/engine.h"
#include "engine/replica.h"
#include "engine/scheduling/scheduler.h"

// What callers ask of the engine's thread.
namespace motley::engine {

struct SubmitMessage {
  Scheduler::Arrival arrival;
  std::optional<Error> error = {};  // set if it could not be prepared
};
struct CancelMessage {
  RequestId request = 0;
  std::optional<int> choice = {};
  std::optional<std::int64_t> kept = {};
  FinishReason reason = FinishReason::cancelled;  // of a whole request it may be `aborted`
};
struct LoadMessage {
  AdapterSpec spec;
  bool replace = false;
  bool hold = false;
  Engine::Done done;
};
struct SettleMessage {
  std::string name;
  Replica::Hold hold = Replica::Hold::drop;
  Engine::Done done;
};
struct UnloadMessage {
  std::string name;
  Engine::Done done;
};
struct PauseMessage {
  Pause pause;
  Engine::Done done;
  RequestId accepted_before = 0;  // requests with smaller ids were accepted before the pause
};
struct ResumeMessage {
  std::string adapter;
  Engine::Done done;
};
struct ResetCacheMessage {
  bool preempts = false;
  Engine::Done done;
};
using Message = std::variant<CancelMessage, SubmitMessage, LoadMessage, SettleMessage,
                             UnloadMessage, PauseMessage, ResumeMessage, ResetCacheMessage>;
// A list, so that a message that has been allocated can be queued without failing.
using Messages = std::list<Message>;

}  // namespace motley::engine
