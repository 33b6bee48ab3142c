// The service's thread, and the messages that others send to it.

#include "grammar/service.h"

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "grammar/check/check.h"
#include "grammar/service_entry.h"

namespace motley::grammar {
namespace {

constexpr int busy_timeout_ms = 100;
constexpr int idle_timeout_ms = 5000;
constexpr auto memory_pause = std::chrono::milliseconds(20);

Error stopping() {
  return {ErrorCode::unavailable, "the server is shutting down", "grammar",
          "send the request to another one"};
}

}  // namespace

Service::Service(Tokens tokens, const Options& options)
    : options_(options),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      process_({.tokens = tokens, .limits = options.limits}, options.start) {
  tokens_ = {.bytes = {}, .width = tokens.width, .end_ids = std::move(tokens.end_ids)};
  thread_ = std::thread([this] { run(); });
}

Service::~Service() {
  shared_.stopping = true;
  wake_thread();
  thread_.join();
  for (Entry& entry : entries_) answer_all(entry.waiters, stopping());
  answer_all(shared_.inbox.submitted, stopping());
}

void Service::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(wake_lock_);
  wake_ = std::move(wake);
}

Stats Service::stats() const {
  const std::lock_guard lock(shared_.lock);
  return shared_.stats;
}

void Service::count(std::uint64_t Stats::* number, int change) {
  const std::lock_guard lock(shared_.lock);
  shared_.stats.*number += static_cast<std::uint64_t>(change);
}

Service::Ticket Service::submit(const Spec& spec, const std::string& client, std::uint32_t weight,
                                Done done) {
  if (!spec.checked) {
    const Result<void> checked = check(spec);
    if (!checked.ok()) {
      done(checked.error());
      return 0;
    }
  }
  const Ticket ticket = ++shared_.tickets;
  std::list<Submission> made;
  made.push_back({.ticket = ticket,
                  .spec = spec,
                  .client = client,
                  .weight = weight,
                  .done = std::move(done)});
  {
    const std::lock_guard lock(shared_.lock);
    shared_.inbox.submitted.splice(shared_.inbox.submitted.end(), made);
    ++shared_.stats.queued;
  }
  wake_thread();
  return ticket;
}

void Service::abandon(Ticket ticket) {
  {
    const std::lock_guard lock(shared_.lock);
    // If there is no memory for it, the submission is answered as if it had not been abandoned.
    std::ignore = within_memory([&] { shared_.inbox.abandoned.push_back(ticket); });
  }
  wake_thread();
}

// If there is no memory for the message, the session has failed.
void Service::request_mask(const std::shared_ptr<Session>& session) {
  {
    const std::lock_guard lock(shared_.lock);
    const Result<void> asked =
        within_memory([&] { shared_.inbox.mask_requests.push_back(session); });
    session->state = asked.ok() ? Session::State::asked : Session::State::failed;
  }
  wake_thread();
}

void Service::wake_thread() {
  const std::uint64_t one = 1;
  std::ignore = ::write(event_.get(), &one, sizeof one);
}

void Service::run() {
  if (const Result<void> started = process_.start(); !started.ok())
    log::warning("grammar.no_helper", {{"why", started.error().message()}});
  while (!shared_.stopping) {
    const Result<void> turned = within_memory([&] {
      start_compiling();
      handle_events();
    });
    // Others may free some memory meanwhile.
    if (!turned.ok()) std::this_thread::sleep_for(memory_pause);
  }
}

// Waits for events, handles them, and announces the masks that have arrived.
void Service::handle_events() {
  std::vector<pollfd> waits = {{.fd = event_.get(), .events = POLLIN, .revents = 0}};
  std::vector<Entry*> waiting = {nullptr};
  for (Entry& entry : entries_) {
    if (!entry.helper) continue;
    const auto events = static_cast<short>(POLLIN | (entry.helper.has_unsent() ? POLLOUT : 0));
    waits.push_back({.fd = entry.helper.socket(), .events = events, .revents = 0});
    waiting.push_back(&entry);
  }
  ::poll(waits.data(), waits.size(), timeout_ms());
  std::uint64_t woken = 0;
  std::ignore = ::read(event_.get(), &woken, sizeof woken);
  handle_messages();
  const TimePoint now = std::chrono::steady_clock::now();
  for (std::size_t i = 1; i < waits.size(); ++i) {
    Entry& entry = *waiting[i];
    // Handling one event may stop or restart the helpers of other entries.
    const bool happened = waits[i].revents != 0 && entry.helper.socket() == waits[i].fd;
    const Result<void> handled =
        within_memory([&] { return happened ? receive(entry) : note_slow(entry, now); });
    if (!handled.ok()) lose(entry);
  }
  remove_unused(now);
  if (!std::exchange(masks_came_, false)) return;
  shared_.arrived.notify_all();
  const std::lock_guard waking(wake_lock_);
  if (wake_) wake_();
}

int Service::timeout_ms() const {
  const bool busy = std::ranges::any_of(entries_, [](const Entry& entry) {
    return entry.state == Entry::State::queued || entry.helper.current();
  });
  if (busy) return busy_timeout_ms;
  return entries_.empty() ? -1 : idle_timeout_ms;
}

void Service::handle_messages() {
  {
    const std::lock_guard lock(shared_.lock);
    std::swap(shared_.inbox, taken_);
  }
  // First, because an engine step may wait for them.
  for (const std::shared_ptr<Session>& session : taken_.mask_requests) handle_request(session);
  taken_.mask_requests.clear();
  for (const Ticket ticket : taken_.abandoned) cancel(ticket);
  taken_.abandoned.clear();
  while (!taken_.submitted.empty()) {
    std::list<Submission> one;
    one.splice(one.begin(), taken_.submitted, taken_.submitted.begin());
    const Result<void> admitted = within_memory([&] { return admit(one); });
    if (admitted.ok()) continue;
    count(&Stats::queued, -1);
    answer_all(one, within_memory([&] { return Result<Ref>(admitted.error()); }));
  }
}

}  // namespace motley::grammar
