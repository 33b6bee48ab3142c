#pragma once

#include "grammar/service.h"

namespace motley::grammar {

// A grammar and its helper.
struct Service::Entry {
  enum class State : std::uint8_t { queued, compiling, ready };
  // Requests that the helper has not answered; it works on the first.
  struct Asked {
    wire::Kind kind = wire::Kind::compile;
    std::uint64_t session = 0;
  };

  std::uint64_t number = 0;
  Spec spec;
  std::string key;
  std::string client;  // that submitted it first
  State state = State::queued;
  bool slow = false;  // to compile
  std::vector<Waiter> waiters = {};

  Descriptor socket = {};
  std::string out = {};  // not sent yet
  std::string in = {};   // a partly received frame
  std::deque<Asked> in_flight = {};
  TimePoint began = {};         // when the first of these was sent, or the last was answered
  bool compiled_again = false;  // because the first helper ended without a reason
  int restarts = 0;             // recent restarts of the helper because of texts
  int answered = 0;             // since the last restart

  std::uint64_t bytes = 0;  // of the compiled grammar
  int uses = 0;
  TimePoint idle_since = {};
  std::unordered_map<std::uint64_t, Session*> sessions = {};

  bool idle() const { return state == State::ready && uses == 0; }
  Ref use(Service& service);
};

class Service::Use {
 public:
  Use(Service& service, Entry& entry) : service_(&service), entry_(&entry) {}
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Service& service() const { return *service_; }
  Entry& entry() const { return *entry_; }

 private:
  Service* service_;
  Entry* entry_;
};

// With the lock held.
inline Service::Ref Service::Entry::use(Service& service) {
  ++uses;
  return std::make_shared<const Use>(service, *this);
}

// A position in a text, and the mask that follows it. Cursors at the same position share it until
// they diverge.
struct Service::Session {
  enum class State : std::uint8_t { idle, asked, ready, failed };

  Session(Ref held, std::shared_ptr<const std::vector<std::int32_t>> ends)
      : grammar(std::move(held)), end_ids(std::move(ends)) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Ref grammar;
  std::shared_ptr<const std::vector<std::int32_t>> end_ids;
  std::vector<std::int32_t> tokens;
  std::uint64_t id = 0;
  bool open = false;  // the helper has it
  std::atomic<State> state = State::idle;
  std::vector<std::uint32_t> mask;
  std::optional<Error> error;
};

}  // namespace motley::grammar
