#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/helper_connection.h"
#include "grammar/service.h"

namespace motley::grammar {

// A grammar and its helper. Of the service's thread alone, except `uses`.
struct Service::Entry {
  // `ended` ones are removed at the end of a round, so that pointers to them stay valid until then.
  enum class State : std::uint8_t { queued, compiling, ready, ended };

  Spec spec;
  std::string client;                       // that submitted it first
  FairFlows<Queue>::Flow* queue = nullptr;  // while it is queued
  State state = State::queued;
  bool slow = false;                   // to compile
  std::list<Submission> waiters = {};  // for it to be compiled
  HelperConnection helper = {};        // closed while it is queued, or rests
  bool compiled_again = false;         // because the first helper ended without a reason
  int restarts = 0;                    // recent restarts of the helper because of texts
  int answered = 0;                    // since the last restart
  std::uint64_t bytes = 0;             // of the compiled grammar
  std::atomic<int> uses = 0;           // Refs; only the service's thread makes the first one
  TimePoint idle_since = TimePoint::max();
  std::unordered_map<std::uint64_t, std::shared_ptr<Session>> sessions = {};  // by id

  bool idle() const { return state == State::ready && uses == 0; }
  bool is_for(const Spec& other) const {
    return state != State::ended && spec.kind == other.kind &&
           spec.any_whitespace == other.any_whitespace && spec.text == other.text;
  }
};

// A position in a text, and the mask that follows it. Cursors at the same position share it until
// they diverge. While it is `asked`, the service's thread may read its tokens and writes its mask
// or error; in the other states its cursors own these.
struct Service::Session {
  enum class State : std::uint8_t { idle, asked, ready, failed };

  Session(Ref held, std::shared_ptr<const std::vector<std::int32_t>> ends)
      : grammar(std::move(held)), end_ids(std::move(ends)) {}

  Ref grammar;
  std::shared_ptr<const std::vector<std::int32_t>> end_ids;
  std::atomic<int> cursors = 0;
  std::atomic<State> state = State::idle;  // written under the service's lock
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> mask;
  std::optional<Error> error;

  // Of the service's thread:
  std::uint64_t id = 0;  // once it has asked
  bool open = false;     // the helper follows it
  bool taken = false;    // its request was taken from the inbox, and is not answered
};

}  // namespace motley::grammar
