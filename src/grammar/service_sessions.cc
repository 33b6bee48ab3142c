// The answers of helpers, and the cursors that steps use.

#include <algorithm>
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
    count(&Stats::failed_time);
  } else if (limit == wire::Limit::memory) {
    what = cat(doing, " takes more than ", limits.memory >> 20, " MiB");
    count(&Stats::failed_memory);
  } else {
    count(&Stats::failed_crash);
  }
  return {ErrorCode::invalid_argument, std::move(what), "grammar",
          "make it smaller: nested repetitions, long counts and many alternatives cost most"};
}

void Service::receive(Entry& entry) {
  entry.helper.flush();
  // The entry's helper may end, or be replaced, with each of them.
  while (const auto frame = entry.helper.receive()) take(entry, *frame);
  if (entry.helper.broken()) died(entry, std::nullopt);
}

void Service::take(Entry& entry, const wire::Frame& frame) {
  wire::Reader reader(frame.body);
  if (frame.kind == Kind::exceeded) return died(entry, reader.number<wire::Limit>());
  if (frame.kind == Kind::refused) return take_refusal(entry, reader);
  if (frame.kind == Kind::compiled) {
    entry.bytes = reader.number<std::uint64_t>();
    if (entry.state == Entry::State::compiling) finish(entry, {});
    return;
  }
  const auto found = entry.sessions.find(frame.session);
  if (found == entry.sessions.end()) return;  // its request has ended
  take_mask(entry, *found->second, frame);
}

void Service::take_refusal(Entry& entry, wire::Reader& reader) {
  const auto code = reader.number<ErrorCode>();
  const std::string what = reader.text();
  const std::string where = reader.text();
  Error error(code, what, where, reader.text());
  if (code == ErrorCode::out_of_memory) error = failure_of(wire::Limit::memory, true);
  if (entry.state == Entry::State::compiling) return finish(entry, std::move(error));
  close_helper(entry);
  fail_asked(entry, error);
}

void Service::take_mask(Entry& entry, Session& session, const wire::Frame& frame) {
  const auto words = static_cast<std::size_t>(tokens_.mask_words());
  if (frame.kind != Kind::mask || frame.body.size() != words * sizeof(std::uint32_t)) {
    count(&Stats::failed_rejected);
    log::error("grammar.rejected", {{"tokens", session.tokens.size()}});
    return fail(session,
                Error(ErrorCode::internal, "the grammar refuses a token that its mask allows",
                      "grammar", "send the request again, or without a grammar"));
  }
  session.mask.resize(words);
  std::memcpy(session.mask.data(), frame.body.data(), frame.body.size());
  if (++entry.answered == answers_of_good_helper) entry.restarts = 0;
  session.taken = false;
  const std::lock_guard lock(shared_.lock);
  session.state = Session::State::ready;
  masks_came_ = true;
}

// Fails the request that the helper worked on; everything else continues in a new helper.
void Service::died(Entry& entry, std::optional<wire::Limit> limit) {
  log::warning("grammar.helper_ended", {{"why", reason_of(limit)},
                                        {"bytes", entry.spec.text.size()},
                                        {"compiling", entry.state == Entry::State::compiling}});
  const auto request = entry.helper.current();
  close_helper(entry);
  if (entry.state == Entry::State::compiling) {
    // Without a reason the cause may be external, such as lack of memory.
    if (!limit && !std::exchange(entry.compiled_again, true) && start_helper(entry).ok()) return;
    return finish(entry, failure_of(limit, true));
  }
  if (!request) return;
  const bool compiling = request->kind == Kind::compile;
  const Error error = failure_of(limit, compiling);
  const auto culprit = entry.sessions.find(request->session);
  if (culprit != entry.sessions.end()) fail(*culprit->second, error);
  entry.answered = 0;
  if (compiling || ++entry.restarts > max_restarts) return fail_asked(entry, error);
  for (const auto& [id, session] : entry.sessions) {
    if (session->taken && session->cursors > 0) ask_helper(*session);
  }
}

// Memory ran out while an event of its helper was handled. Allocates nothing.
void Service::lose(Entry& entry) {
  close_helper(entry);
  if (entry.state == Entry::State::compiling) return finish(entry, out_of_memory_error());
  fail_asked(entry, std::nullopt);
}

void Service::fail(Session& session, const std::optional<Error>& error) {
  session.error = error;
  session.taken = false;
  const std::lock_guard lock(shared_.lock);
  session.state = Session::State::failed;
  masks_came_ = true;
}

void Service::fail_asked(Entry& entry, const std::optional<Error>& error) {
  for (const auto& [id, session] : entry.sessions) {
    if (session->taken) fail(*session, error);
  }
}

void Service::handle_request(const std::shared_ptr<Session>& session) {
  if (session->cursors == 0) return;
  session->taken = true;
  const Result<void> asked = within_memory([&] {
    if (session->id == 0) {
      session->grammar->sessions.emplace(sessions_ + 1, session);
      session->id = ++sessions_;
    }
    ask_helper(*session);
  });
  if (!asked.ok()) fail(*session, std::nullopt);
}

// Asks for the next mask. A helper that does not know the text follows it from its beginning.
void Service::ask_helper(Session& session) {
  Entry& entry = *session.grammar;
  wire::Writer body;
  if (session.open) {
    body.number(session.tokens.back());
    return entry.helper.send(Kind::advance, session.id, std::move(body).take());
  }
  if (!entry.helper) {
    const Result<void> started = start_helper(entry);
    if (!started.ok()) return fail(session, started.error());
  }
  body.list(std::span<const std::int32_t>(*session.end_ids));
  body.list(std::span<const std::int32_t>(session.tokens));
  entry.helper.send(Kind::open, session.id, std::move(body).take());
  session.open = true;
}

void Service::remove_released_sessions(Entry& entry) {
  std::erase_if(entry.sessions, [&](const auto& each) {
    const Session& session = *each.second;
    if (session.cursors > 0) return false;
    if (session.open) entry.helper.send(Kind::close, session.id, {});
    return true;
  });
}

class Service::SessionCursor final : public Cursor {
 public:
  SessionCursor(Service& service, std::shared_ptr<Session> session)
      : service_(&service), session_(std::move(session)) {
    ++session_->cursors;
  }
  ~SessionCursor() override { leave(); }
  SessionCursor(const SessionCursor&) = delete;
  SessionCursor& operator=(const SessionCursor&) = delete;

  std::unique_ptr<Cursor> fork() const override {
    return std::make_unique<SessionCursor>(*service_, session_);
  }

  void request_mask() override {
    if (session_->state == Session::State::idle) service_->request_mask(session_);
  }

  bool ready() const override {
    const Session::State state = session_->state;
    return state == Session::State::ready || state == Session::State::failed;
  }

  void wait(TimePoint until) const override {
    if (ready()) return;
    std::unique_lock lock(service_->shared_.lock);
    service_->shared_.arrived.wait_until(lock, until, [this] { return ready(); });
  }

  std::optional<Error> failure() const override {
    if (session_->state != Session::State::failed) return std::nullopt;
    return session_->error ? *session_->error : out_of_memory_error();
  }

  void copy_mask(std::span<std::uint32_t> words) const override {
    MOTLEY_CHECK(session_->state == Session::State::ready, "a mask that has come");
    std::ranges::copy(session_->mask, words.begin());
  }

  bool accept(std::int32_t token) override {
    if (std::ranges::find(*session_->end_ids, token) != session_->end_ids->end()) return true;
    if (session_->cursors > 1 || session_->state == Session::State::asked) diverge();
    session_->tokens.push_back(token);
    service_->request_mask(session_);
    return false;
  }

 private:
  // Continues with a session of its own.
  void diverge() {
    auto own = std::make_shared<Session>(session_->grammar, session_->end_ids);
    own->tokens = session_->tokens;
    ++own->cursors;
    leave();
    session_ = std::move(own);
  }

  // The service still has the session if it ever was asked.
  void leave() {
    if (--session_->cursors > 0) return;
    service_->shared_.sessions_released = true;
    service_->wake_thread();
  }

  Service* service_;
  std::shared_ptr<Session> session_;
};

std::unique_ptr<Cursor> Service::begin_text(const Ref& grammar, std::vector<std::int32_t> end_ids) {
  if (end_ids.empty()) end_ids = tokens_.end_ids;
  return std::make_unique<SessionCursor>(
      *this, std::make_shared<Session>(
                 grammar, std::make_shared<const std::vector<std::int32_t>>(std::move(end_ids))));
}

}  // namespace motley::grammar
