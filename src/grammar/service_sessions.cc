// The messages between the service and its helpers, and the cursors that steps use.

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "grammar/service_entry.h"

namespace motley::grammar {
namespace {

using wire::Kind;

// Restarts of one grammar's helper; at the next failure all its texts end.
constexpr int max_restarts = 2;
// After this many masks the count of restarts is reset.
constexpr int answers_of_good_helper = 1000;
// Masks and errors are the longest messages of a helper.
constexpr std::size_t max_message_bytes = std::size_t{64} << 10;

constexpr std::string_view reason_of(std::optional<wire::Limit> limit) {
  if (!limit) return "crash";
  return *limit == wire::Limit::time ? "time" : "memory";
}

}  // namespace

Error Service::failure_of(std::optional<wire::Limit> limit, bool compiling) {
  const Limits& limits = options_.limits;
  const std::string_view doing = compiling ? "compiling it" : "following it";
  std::string what = cat(doing, " ended unexpectedly");
  if (limit == wire::Limit::time) {
    what = compiling
               ? cat(doing, " takes more than ", limits.compile_time.count(), " ms")
               : cat(doing, " takes more than ", limits.mask_time.count(), " ms for a token, or ",
                     limits.excess_time.count(), " ms too much for all of them");
    ++stats_.failed_time;
  } else if (limit == wire::Limit::memory) {
    what = cat(doing, " takes more than ", limits.memory >> 20, " MiB");
    ++stats_.failed_memory;
  } else {
    ++stats_.failed_crash;
  }
  return {ErrorCode::invalid_argument, std::move(what), "grammar",
          "make it smaller: nested repetitions, long counts and many alternatives cost most"};
}

void Service::send(Entry& entry, Kind kind, std::uint64_t session, std::string_view body) {
  if (entry.in_flight.empty()) entry.began = std::chrono::steady_clock::now();
  const Result<void> written = within_memory([&] {
    if (kind != Kind::close) entry.in_flight.push_back({.kind = kind, .session = session});
    entry.out += wire::frame(kind, session, body);
  });
  if (!written.ok()) return lose(entry.number);
  flush(entry);
  // While requests are pending the thread waits with a timeout, and writes the rest.
  if (!entry.out.empty() || entry.in_flight.size() == 1) wake_thread();
}

void Service::flush(Entry& entry) {
  while (!entry.out.empty()) {
    const ssize_t bytes =
        ::send(entry.socket.get(), entry.out.data(), entry.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    // Errors are noticed when reading.
    if (bytes <= 0) return;
    entry.out.erase(0, static_cast<std::size_t>(bytes));
  }
}

void Service::receive(Entry& entry, Calls& calls) {
  std::array<char, 65536> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  while (true) {
    const ssize_t bytes = ::recv(entry.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes <= 0) return died(entry, std::nullopt, calls);
    entry.in.append(piece.data(), static_cast<std::size_t>(bytes));
    while (const auto frame = wire::take_frame(entry.in)) {
      // The entry may have been dropped then.
      if (!take(entry, *frame, calls)) return;
    }
    const std::size_t mask_bytes = static_cast<std::size_t>(tokens_.mask_words()) * 4;
    if (entry.in.size() > sizeof(wire::Head) + std::max(max_message_bytes, mask_bytes))
      return died(entry, std::nullopt, calls);
  }
}

// False if the entry has been dropped.
bool Service::take(Entry& entry, const wire::Frame& frame, Calls& calls) {
  if (frame.kind == Kind::exceeded) {
    died(entry, wire::Reader(frame.body).number<wire::Limit>(), calls);
    return false;
  }
  const bool expected = !entry.in_flight.empty() &&
                        entry.in_flight.front().session == frame.session &&
                        (entry.in_flight.front().kind == Kind::compile) ==
                            (frame.kind == Kind::compiled || frame.kind == Kind::refused);
  if (!expected) {
    died(entry, std::nullopt, calls);
    return false;
  }
  entry.in_flight.pop_front();
  entry.began = std::chrono::steady_clock::now();
  wire::Reader reader(frame.body);
  if (frame.kind == Kind::compiled) {
    entry.bytes = reader.number<std::uint64_t>();
    if (entry.state == Entry::State::compiling) finish(entry, {}, calls);
    return true;
  }
  if (frame.kind == Kind::refused) {
    const auto code = reader.number<ErrorCode>();
    const std::string what = reader.text();
    const std::string where = reader.text();
    Error error(code, what, where, reader.text());
    if (code == ErrorCode::out_of_memory) error = failure_of(wire::Limit::memory, true);
    const bool compiling = entry.state == Entry::State::compiling;
    if (compiling) {
      finish(entry, std::move(error), calls);
      return false;
    }
    entry.socket = {};
    fail_pending(entry, error);
    return false;
  }
  const auto found = entry.sessions.find(frame.session);
  if (found == entry.sessions.end()) return true;  // its request has ended
  Session& session = *found->second;
  const std::size_t bytes = static_cast<std::size_t>(tokens_.mask_words()) * sizeof(std::uint32_t);
  if (frame.kind != Kind::mask || frame.body.size() != bytes) {
    ++stats_.failed_rejected;
    log::error("grammar.rejected", {{"tokens", session.tokens.size()}});
    fail(session, Error(ErrorCode::internal, "the grammar refuses a token that its mask allows",
                        "grammar", "send the request again, or without a grammar"));
    return true;
  }
  if (++entry.answered == answers_of_good_helper) entry.restarts = 0;
  session.mask.resize(static_cast<std::size_t>(tokens_.mask_words()));
  std::memcpy(session.mask.data(), frame.body.data(), bytes);
  session.state = Session::State::ready;
  masks_came_ = true;
  return true;
}

// Fails the request that the helper worked on; everything else continues in a new helper.
void Service::died(Entry& entry, std::optional<wire::Limit> limit, Calls& calls) {
  log::warning("grammar.helper_ended", {{"why", reason_of(limit)},
                                        {"bytes", entry.spec.text.size()},
                                        {"compiling", entry.state == Entry::State::compiling}});
  const std::deque<Entry::Asked> asked = std::exchange(entry.in_flight, {});
  entry.socket = {};
  entry.in.clear();
  entry.out.clear();
  for (const auto& [id, session] : entry.sessions) session->open = false;
  const bool compiling = asked.empty() || asked.front().kind == Kind::compile;
  if (entry.state == Entry::State::compiling) {
    // Without a reason the cause may be external, such as lack of memory.
    if (!limit && !std::exchange(entry.compiled_again, true)) {
      const Result<void> again = start_helper(entry);
      if (again.ok()) return;
    }
    return finish(entry, failure_of(limit, true), calls);
  }
  if (asked.empty()) return;
  const Error error = failure_of(limit, compiling);
  const auto culprit = entry.sessions.find(asked.front().session);
  if (!compiling && culprit != entry.sessions.end()) fail(*culprit->second, error);
  entry.answered = 0;
  if (compiling || ++entry.restarts > max_restarts) return fail_pending(entry, error);
  for (const auto& [id, session] : entry.sessions) {
    if (session->state == Session::State::asked) open(*session);
  }
}

void Service::fail(Session& session, const Error& error) {
  session.error = error;
  session.state = Session::State::failed;
  masks_came_ = true;
}

void Service::fail_pending(Entry& entry, const Error& error) {
  entry.in_flight.clear();
  for (const auto& [id, session] : entry.sessions) {
    session->open = false;
    if (session->state == Session::State::asked) fail(*session, error);
  }
}

// Makes a helper follow a session's text from its beginning.
void Service::open(Session& session) {
  Entry& entry = session.grammar->entry();
  session.state = Session::State::asked;
  if (!entry.socket) {
    entry.in_flight.clear();
    if (const Result<void> started = start_helper(entry); !started.ok())
      return fail(session, started.error());
  }
  wire::Writer body;
  body.list(std::span<const std::int32_t>(*session.end_ids));
  body.list(std::span<const std::int32_t>(session.tokens));
  session.open = true;
  send(entry, Kind::open, session.id, std::move(body).take());
}

Service::Session::~Session() {
  Service& service = grammar->service();
  const std::lock_guard lock(service.lock_);
  Entry& entry = grammar->entry();
  entry.sessions.erase(id);
  if (open && entry.socket) service.send(entry, Kind::close, id, {});
}

class Service::SessionCursor final : public Cursor {
 public:
  SessionCursor(Service& service, std::shared_ptr<Session> session)
      : service_(&service), session_(std::move(session)) {}

  std::unique_ptr<Cursor> fork() const override {
    return std::make_unique<SessionCursor>(*service_, session_);
  }

  void request_mask() override {
    if (session_->state != Session::State::idle) return;
    const std::lock_guard lock(service_->lock_);
    service_->open(*session_);
  }

  bool ready() const override {
    const Session::State state = session_->state;
    return state == Session::State::ready || state == Session::State::failed;
  }

  void wait(TimePoint until) const override {
    if (ready()) return;
    Lock lock(service_->lock_);
    service_->arrived_.wait_until(lock, until, [this] { return ready(); });
  }

  std::optional<Error> failure() const override {
    if (session_->state != Session::State::failed) return std::nullopt;
    const std::lock_guard lock(service_->lock_);
    return session_->error ? *session_->error : out_of_memory_error();
  }

  void copy_mask(std::span<std::uint32_t> words) const override {
    MOTLEY_CHECK(session_->state == Session::State::ready, "a mask that has come");
    std::ranges::copy(session_->mask, words.begin());
  }

  bool accept(std::int32_t token) override {
    if (std::ranges::find(*session_->end_ids, token) != session_->end_ids->end()) return true;
    if (session_.use_count() > 1) leave_shared();
    const std::lock_guard lock(service_->lock_);
    Session& session = *session_;
    session.tokens.push_back(token);
    Entry& entry = session.grammar->entry();
    if (!session.open || !entry.socket) {
      service_->open(session);
      return false;
    }
    wire::Writer body;
    body.number(token);
    session.state = Session::State::asked;
    service_->send(entry, Kind::advance, session.id, std::move(body).take());
    return false;
  }

 private:
  // Other cursors keep the shared session.
  void leave_shared() {
    auto own = std::make_shared<Session>(session_->grammar, session_->end_ids);
    own->tokens = session_->tokens;
    {
      const std::lock_guard lock(service_->lock_);
      service_->add(*own);
    }
    session_ = std::move(own);
  }

  Service* service_;
  std::shared_ptr<Session> session_;
};

void Service::add(Session& session) {
  session.id = ++sessions_;
  session.grammar->entry().sessions.emplace(session.id, &session);
}

std::unique_ptr<Cursor> Service::begin_text(const Ref& grammar, std::vector<std::int32_t> end_ids) {
  if (end_ids.empty()) end_ids = tokens_.end_ids;
  auto session = std::make_shared<Session>(
      grammar, std::make_shared<const std::vector<std::int32_t>>(std::move(end_ids)));
  {
    const std::lock_guard lock(lock_);
    add(*session);
  }
  return std::make_unique<SessionCursor>(*this, std::move(session));
}

}  // namespace motley::grammar
