// Decides which grammars are compiled when, and which helpers stay.

#include "grammar/service.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "base/queue_share.h"
#include "base/system/out_of_memory.h"
#include "grammar/check/check.h"
#include "grammar/service_entry.h"

namespace motley::grammar {
namespace {

using wire::Kind;

constexpr int busy_timeout_ms = 100;
constexpr std::uint64_t grammar_cost = 1024;  // of a client's turns: weights divide it
constexpr int idle_timeout_ms = 5000;
constexpr auto memory_pause = std::chrono::milliseconds(20);

std::string key_of(const Spec& spec) {
  return cat(static_cast<int>(spec.kind), spec.any_whitespace ? ' ' : ',', spec.text);
}

Error stopping() {
  return {ErrorCode::unavailable, "the server is shutting down", "grammar",
          "send the request to another one"};
}

}  // namespace

Service::Use::~Use() { service_->release(*entry_); }

Service::Service(Tokens tokens, const Options& options)
    : options_(options),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      process_({.tokens = tokens, .limits = options.limits}, options.start) {
  tokens_ = {.bytes = {}, .width = tokens.width, .end_ids = std::move(tokens.end_ids)};
  thread_ = std::thread([this] { run(); });
}

Service::~Service() {
  {
    const std::lock_guard lock(lock_);
    stopping_ = true;
  }
  stopped_.notify_all();
  wake_thread();
  thread_.join();
  for (const auto& [number, entry] : entries_) {
    for (const Waiter& waiter : entry->waiters) waiter.done(stopping());
  }
}

void Service::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(wake_lock_);
  wake_ = std::move(wake);
}

Stats Service::stats() const {
  const std::lock_guard lock(lock_);
  Stats stats = stats_;
  stats.queued = queued_;
  stats.helpers = static_cast<std::size_t>(std::ranges::count_if(
      entries_, [](const auto& each) { return static_cast<bool>(each.second->socket); }));
  return stats;
}

Service::Ticket Service::submit(const Spec& spec, const std::string& client, std::uint32_t weight,
                                Done done) {
  const auto answer = [&](Result<Ref> result) {
    done(std::move(result));
    return Ticket{0};
  };
  std::string key = key_of(spec);
  Lock lock(lock_);
  if (stopping_) {
    lock.unlock();
    return answer(stopping());
  }
  auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    // A known grammar has been checked already.
    lock.unlock();
    if (!spec.checked) {
      const Result<void> checked = check(spec);
      if (!checked.ok()) return answer(checked.error());
    }
    lock.lock();
    known = by_key_.find(key);
  }
  if (known != by_key_.end() && known->second->state == Entry::State::ready) {
    Ref use = known->second->use(*this);
    lock.unlock();
    return answer(std::move(use));
  }
  if (known == by_key_.end() && !has_place_in_queue(client)) {
    lock.unlock();
    return answer(Error(ErrorCode::busy, "too many grammars wait to be compiled", "grammar",
                        "try again in a few seconds"));
  }
  Entry& entry = known != by_key_.end() ? *known->second : enqueue(spec, std::move(key), client);
  clients_.of(client).weight = weight;
  entry.waiters.push_back({.ticket = ++tickets_, .done = std::move(done)});
  const Ticket ticket = tickets_;
  lock.unlock();
  wake_thread();
  return ticket;
}

// Each client has a share of the queue, as of the engine's queue of requests.
bool Service::has_place_in_queue(const std::string& client) const {
  const auto* const own = clients_.find(client);
  const bool waits = own != nullptr && !own->idle();
  const auto waiting =
      std::ranges::count_if(clients_.all(), [](const auto& each) { return !each.second.idle(); });
  return has_place({.places = static_cast<std::int64_t>(options_.max_queued),
                    .waiting = static_cast<std::int64_t>(queued_),
                    .own = waits ? std::ssize(own->entries) : 0,
                    .clients = waiting + (waits ? 0 : 1)});
}

// Allocates first.
Service::Entry& Service::enqueue(const Spec& spec, std::string key, const std::string& client) {
  auto kept = std::make_unique<Entry>(
      Entry{.number = ++numbers_, .spec = spec, .key = std::move(key), .client = client});
  Entry& entry = *kept;
  decltype(entries_) made;
  made.emplace(entry.number, std::move(kept));
  decltype(by_key_) named;
  named.emplace(entry.key, &entry);
  entry.waiters.reserve(1);
  by_key_.reserve(by_key_.size() + 1);
  clients_.of(client).entries.push_back(&entry);
  by_key_.merge(named);
  entries_.merge(made);
  ++queued_;
  return entry;
}

void Service::abandon(Ticket ticket) {
  Lock lock(lock_);
  for (const auto& [number, entry] : entries_) {
    const auto found = std::ranges::find(entry->waiters, ticket, &Waiter::ticket);
    if (found == entry->waiters.end()) continue;
    const Done done = std::move(found->done);
    entry->waiters.erase(found);
    if (entry->waiters.empty()) drop(*entry);
    lock.unlock();
    wake_thread();  // another grammar may take its place now
    done(Error(ErrorCode::cancelled, "the client went away"));
    return;
  }
}

void Service::wake_thread() {
  const std::uint64_t one = 1;
  std::ignore = ::write(event_.get(), &one, sizeof one);
}

void Service::run() {
  Lock lock(lock_);
  if (const Result<void> started = process_.start(); !started.ok())
    log::warning("grammar.no_helper", {{"why", started.error().message()}});
  while (!stopping_) {
    const Result<void> turned = within_memory([&] {
      Calls calls;
      start_compiling(calls);
      make(calls, lock);
      handle_events(lock);
    });
    if (turned.ok()) continue;
    if (!lock.owns_lock()) lock.lock();
    // Others may free some meanwhile.
    stopped_.wait_for(lock, memory_pause, [this] { return stopping_; });
  }
}

// Without the lock, because destroying the calls' contents takes it.
void Service::make(Calls& calls, Lock& lock) {
  if (calls.empty()) return;
  lock.unlock();
  // If one of them runs out of memory, the others are still called.
  for (const auto& call : calls) std::ignore = within_memory(call);
  calls.clear();
  lock.lock();
}

// Waits for events and handles them.
void Service::handle_events(Lock& lock) {
  std::vector<pollfd> waits = {{.fd = event_.get(), .events = POLLIN, .revents = 0}};
  std::vector<std::uint64_t> numbers = {0};  // numbers of their entries
  for (const auto& [number, entry] : entries_) {
    if (!entry->socket && entry->state != Entry::State::compiling) continue;
    const auto events = static_cast<short>(POLLIN | (entry->out.empty() ? 0 : POLLOUT));
    // Negative descriptors are ignored.
    waits.push_back({.fd = entry->socket.get(), .events = events, .revents = 0});
    numbers.push_back(number);
  }
  const int timeout = timeout_ms();
  lock.unlock();
  ::poll(waits.data(), waits.size(), timeout);
  std::uint64_t woken = 0;
  std::ignore = ::read(event_.get(), &woken, sizeof woken);
  lock.lock();
  Calls calls;
  const TimePoint now = std::chrono::steady_clock::now();
  for (std::size_t i = 1; i < waits.size(); ++i) {
    // Handling one event may drop or restart other entries.
    const auto at = entries_.find(numbers[i]);
    if (at == entries_.end()) continue;
    Entry& entry = *at->second;
    const bool happened = waits[i].revents != 0 && entry.socket.get() == waits[i].fd;
    const Result<void> handled = within_memory([&] { handle(entry, happened, now, calls); });
    if (!handled.ok()) lose(numbers[i]);
  }
  std::ignore = within_memory([&] { trim_idle(now); });
  const bool came = std::exchange(masks_came_, false);
  make(calls, lock);
  lock.unlock();
  arrived_.notify_all();
  if (came) {
    const std::lock_guard waking(wake_lock_);
    if (wake_) wake_();
  }
  lock.lock();
}

void Service::handle(Entry& entry, bool happened, TimePoint now, Calls& calls) {
  if (happened) {
    flush(entry);
    receive(entry, calls);
  } else if (entry.socket) {
    note_slow(entry, now, calls);
  } else if (entry.state == Entry::State::compiling) {
    finish(entry, out_of_memory_error(), calls);  // lose() has been called
  }
}

// Memory ran out while an event of its helper was handled. Allocates nothing.
void Service::lose(std::uint64_t number) {
  const auto at = entries_.find(number);
  if (at == entries_.end()) return;
  Entry& entry = *at->second;
  entry.socket = {};
  entry.in_flight.clear();
  entry.in.clear();
  entry.out.clear();
  for (const auto& [id, session] : entry.sessions) {
    session->open = false;
    if (session->state == Session::State::asked) session->state = Session::State::failed;
  }
  masks_came_ = true;
}

int Service::timeout_ms() const {
  const bool busy =
      queued_ > 0 || std::ranges::any_of(entries_, [](const auto& each) {
        return !each.second->in_flight.empty() || each.second->state == Entry::State::compiling;
      });
  if (busy) return busy_timeout_ms;
  return entries_.empty() ? -1 : idle_timeout_ms;
}

// The next grammar of the client whose turn it is.
Service::Entry* Service::next_queued() {
  auto* const client = clients_.first([](const Queue& queue) { return !queue.idle(); });
  if (client == nullptr) return nullptr;
  clients_.begin(clients_.charge(*client, grammar_cost));
  Entry* const entry = client->entries.front();
  client->entries.pop_front();
  --queued_;
  return entry;
}

void Service::start_compiling(Calls& calls) {
  auto quick = std::ranges::count_if(entries_, [](const auto& each) {
    return each.second->state == Entry::State::compiling && !each.second->slow;
  });
  const TimePoint now = std::chrono::steady_clock::now();
  while (quick < options_.max_quick && queued_ > 0 && make_room_for_helper(now)) {
    Entry& entry = *next_queued();
    entry.state = Entry::State::compiling;
    ++quick;
    const Result<void> started = within_memory([&] { return start_helper(entry); });
    if (!started.ok()) finish(entry, started, calls);
  }
}

// False if all helpers are busy.
bool Service::make_room_for_helper(TimePoint now) {
  while (true) {
    std::size_t helpers = 0;
    std::uint64_t bytes = 0;
    Entry* oldest = nullptr;
    for (const auto& [number, entry] : entries_) {
      if (!entry->socket) continue;
      ++helpers;
      bytes += entry->bytes;
      const bool rests = entry->state == Entry::State::ready && entry->in_flight.empty() &&
                         (entry->uses == 0 || now - entry->began >= options_.rest);
      if (rests && (oldest == nullptr || entry->began < oldest->began)) oldest = entry.get();
    }
    if (helpers < options_.max_helpers && bytes < options_.max_bytes) return true;
    if (oldest == nullptr) return false;
    put_to_rest(*oldest);
  }
}

// If its texts are requested again, another helper compiles the grammar.
void Service::put_to_rest(Entry& entry) {
  if (entry.uses == 0) return drop(entry);
  entry.socket = {};
  entry.in.clear();
  entry.out.clear();
  for (const auto& [id, session] : entry.sessions) session->open = false;
}

Result<void> Service::start_helper(Entry& entry) {
  MOTLEY_TRY(entry.socket, process_.fork());
  ++stats_.started;
  wire::Writer body;
  body.number(entry.spec.kind);
  body.number(entry.spec.any_whitespace);
  body.text(entry.spec.text);
  send(entry, Kind::compile, 0, std::move(body).take());
  return {};
}

// A long compilation gives up its place to others, and is stopped if there are too many: first one
// of the client that has the most.
void Service::note_slow(Entry& entry, TimePoint now, Calls& calls) {
  if (entry.in_flight.empty()) return;
  if (now - entry.began >= options_.wall_time) return died(entry, wire::Limit::time, calls);
  const bool turns_slow =
      entry.state == Entry::State::compiling && !entry.slow && now - entry.began >= options_.quick;
  if (!turns_slow) return;
  entry.slow = true;
  std::map<std::string_view, std::vector<Entry*>> by_client;
  int slow = 0;
  for (const auto& [number, each] : entries_) {
    if (each->state != Entry::State::compiling || !each->slow) continue;
    by_client[each->client].push_back(each.get());
    ++slow;
  }
  if (slow <= options_.max_slow) return;
  std::vector<Entry*>* most = &by_client[entry.client];
  for (auto& [client, slow_ones] : by_client) {
    if (slow_ones.size() > most->size()) most = &slow_ones;
  }
  Entry& victim = most == &by_client[entry.client] ? entry : *most->front();
  finish(victim,
         Error(ErrorCode::busy, "too many large grammars are being compiled", "grammar",
               "try again in a few seconds, or make it smaller"),
         calls);
}

void Service::trim_idle(TimePoint now) {
  std::vector<const Entry*> idle;
  std::uint64_t bytes = 0;
  for (const auto& [number, entry] : entries_) {
    if (!entry->idle()) continue;
    idle.push_back(entry.get());
    bytes += entry->bytes;
  }
  std::ranges::sort(idle, {}, &Entry::idle_since);
  std::size_t left = idle.size();
  for (const Entry* const entry : idle) {
    const bool stays = left <= options_.idle_helpers && bytes <= options_.idle_bytes &&
                       now - entry->idle_since < options_.idle_time;
    if (stays) return;
    bytes -= entry->bytes;
    --left;
    drop(*entry);
  }
}

// Finishes a compilation: all waiting submissions are answered. Allocates first.
void Service::finish(Entry& entry, const Result<void>& outcome, Calls& calls) {
  Calls made;
  made.reserve(entry.waiters.size());
  calls.reserve(calls.size() + entry.waiters.size());
  for (const Waiter& waiter : entry.waiters) {
    if (outcome.ok())
      made.emplace_back([done = waiter.done, use = entry.use(*this)] { done(use); });
    else
      made.emplace_back([done = waiter.done, error = outcome.error()] { done(error); });
  }
  std::ranges::move(made, std::back_inserter(calls));
  entry.waiters.clear();
  if (!outcome.ok()) {
    ++stats_.refused;
    return drop(entry);
  }
  ++stats_.compiled;
  entry.state = Entry::State::ready;
  entry.slow = false;
}

// The helper notices that the socket is closed, and exits.
void Service::drop(const Entry& entry) {
  if (entry.state == Entry::State::queued) {
    --queued_;
    std::erase(clients_.of(entry.client).entries, &entry);
  }
  by_key_.erase(entry.key);
  entries_.erase(entry.number);
}

// Allocates nothing.
void Service::release(Entry& entry) {
  const std::lock_guard lock(lock_);
  if (--entry.uses > 0) return;
  entry.idle_since = std::chrono::steady_clock::now();
  wake_thread();
}

}  // namespace motley::grammar
