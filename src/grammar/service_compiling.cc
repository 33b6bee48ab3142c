// Decides which grammars are compiled when, and which helpers stay.

#include <algorithm>
#include <string>
#include <utility>

#include "base/queue_share.h"
#include "base/system/out_of_memory.h"
#include "grammar/service_entry.h"

namespace motley::grammar {
namespace {

constexpr std::uint64_t grammar_cost = 1024;  // of a client's turns: weights divide it
// Masks and errors are the longest messages of a helper.
constexpr std::size_t max_message_bytes = std::size_t{64} << 10;

}  // namespace

// Adds a submission to the entry of its grammar. Fails before it takes it.
Result<void> Service::admit(std::list<Submission>& one) {
  Submission& submission = one.front();
  const auto known = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.is_for(submission.spec); });
  if (known == entries_.end()) {
    if (!has_place_in_queue(submission.client))
      return Error(ErrorCode::busy, "too many grammars wait to be compiled", "grammar",
                   "try again in a few seconds");
    enqueue(one);
    return {};
  }
  clients_.of(submission.client).weight = submission.weight;
  known->waiters.splice(known->waiters.end(), one);
  count(&Stats::queued, -1);
  if (known->state == Entry::State::ready) answer_all(known->waiters, use(*known));
  return {};
}

// Each client has a share of the queue, as of the engine's queue of requests.
bool Service::has_place_in_queue(const std::string& client) const {
  const auto* const known = clients_.find(client);
  const std::size_t own = known != nullptr ? known->waiting : 0;
  std::size_t waiting = 0;
  std::int64_t clients = own == 0 ? 1 : 0;
  for (const auto& [name, queue] : clients_.all()) {
    waiting += queue.waiting;
    clients += queue.idle() ? 0 : 1;
  }
  return has_place({.places = static_cast<std::int64_t>(options_.max_queued),
                    .waiting = static_cast<std::int64_t>(waiting),
                    .own = static_cast<std::int64_t>(own),
                    .clients = clients});
}

// Allocates first.
void Service::enqueue(std::list<Submission>& one) {
  Submission& submission = one.front();
  std::list<Entry> made(1);
  Entry& entry = made.front();
  entry.client = submission.client;
  entry.queue = &clients_.of(submission.client);
  entry.queue->weight = submission.weight;
  ++entry.queue->waiting;
  entry.spec = std::move(submission.spec);
  entry.waiters.splice(entry.waiters.end(), one);
  entries_.splice(entries_.end(), made);
}

void Service::leave_queue(Entry& entry) {
  --entry.queue->waiting;
  count(&Stats::queued, -1);
}

void Service::cancel(Ticket ticket) {
  std::list<Submission> one;
  const auto take_from = [&](std::list<Submission>& waiting) {
    const auto found = std::ranges::find(waiting, ticket, &Submission::ticket);
    if (found == waiting.end()) return false;
    one.splice(one.end(), waiting, found);
    return true;
  };
  if (take_from(taken_.submitted)) {
    count(&Stats::queued, -1);
  } else {
    const auto entry =
        std::ranges::find_if(entries_, [&](Entry& each) { return take_from(each.waiters); });
    if (entry == entries_.end()) return;
    if (entry->waiters.empty()) drop(*entry);
  }
  const Result<Ref> outcome = within_memory(
      [] { return Result<Ref>(Error(ErrorCode::cancelled, "the client went away")); });
  answer_all(one, outcome);
}

// If one of them runs out of memory, the others are still answered.
void Service::answer_all(std::list<Submission>& waiters, const Result<Ref>& outcome) {
  std::list<Submission> answered;
  answered.swap(waiters);
  for (const Submission& each : answered) {
    Result<Ref> copied = within_memory([&] { return outcome; });
    const Result<void> done = within_memory([&] { each.done(std::move(copied)); });
    if (!done.ok()) std::ignore = within_memory([&] { each.done(out_of_memory_error()); });
  }
}

// The entry may be removed as soon as it has no use.
Result<Service::Ref> Service::use(Entry& entry) {
  const auto release = [this](Entry* used) {
    if (--used->uses == 0) wake_thread();
  };
  ++entry.uses;
  entry.idle_since = TimePoint::max();
  return within_memory([&] { return Ref(&entry, release); });  // which it calls if it fails
}

void Service::start_compiling() {
  auto quick = std::ranges::count_if(entries_, [](const Entry& entry) {
    return entry.state == Entry::State::compiling && !entry.slow;
  });
  const TimePoint now = std::chrono::steady_clock::now();
  for (; quick < options_.max_quick; ++quick) {
    // The next grammar of the client whose turn it is.
    auto* const client = clients_.first([](const Queue& queue) { return !queue.idle(); });
    if (client == nullptr || !make_room_for_helper(now)) return;
    clients_.begin(clients_.charge(*client, grammar_cost));
    Entry& entry = *std::ranges::find_if(entries_, [&](const Entry& each) {
      return each.state == Entry::State::queued && each.queue == client;
    });
    leave_queue(entry);
    entry.state = Entry::State::compiling;
    const Result<void> started = within_memory([&] { return start_helper(entry); });
    if (!started.ok()) finish(entry, started);
  }
}

// False if all helpers are busy.
bool Service::make_room_for_helper(TimePoint now) {
  while (true) {
    std::size_t helpers = 0;
    std::uint64_t bytes = 0;
    Entry* oldest = nullptr;
    for (Entry& entry : entries_) {
      if (!entry.helper) continue;
      ++helpers;
      bytes += entry.bytes;
      const bool rests = entry.state == Entry::State::ready && !entry.helper.current() &&
                         (entry.uses == 0 || now - entry.helper.since() >= options_.rest);
      if (rests && (oldest == nullptr || entry.helper.since() < oldest->helper.since()))
        oldest = &entry;
    }
    if (helpers < options_.max_helpers && bytes < options_.max_bytes) return true;
    if (oldest == nullptr) return false;
    // If texts of it go on, another helper compiles the grammar.
    if (oldest->uses > 0)
      close_helper(*oldest);
    else
      drop(*oldest);
  }
}

Result<void> Service::start_helper(Entry& entry) {
  wire::Writer body;
  body.number(entry.spec.kind);
  body.number(entry.spec.any_whitespace);
  body.text(entry.spec.text);
  MOTLEY_TRY(Descriptor socket, process_.fork());
  const std::size_t mask_bytes = static_cast<std::size_t>(tokens_.mask_words()) * 4;
  HelperConnection started(std::move(socket), std::max(max_message_bytes, mask_bytes));
  started.send(wire::Kind::compile, 0, std::move(body).take());
  entry.helper = std::move(started);
  count(&Stats::started);
  count(&Stats::helpers);
  return {};
}

// The helper notices that the socket is closed, and exits.
void Service::close_helper(Entry& entry) {
  if (!entry.helper) return;
  entry.helper.close();
  for (const auto& [id, session] : entry.sessions) session->open = false;
  count(&Stats::helpers, -1);
}

// A long compilation gives up its place to others, and is stopped if there are too many: first one
// of the client that has the most.
void Service::note_slow(Entry& entry, TimePoint now) {
  if (!entry.helper.current()) return;
  const Duration taken = now - entry.helper.since();
  if (taken >= options_.wall_time) return died(entry, wire::Limit::time);
  if (entry.state != Entry::State::compiling || entry.slow || taken < options_.quick) return;
  entry.slow = true;
  const auto is_slow = [](const Entry& each) {
    return each.state == Entry::State::compiling && each.slow;
  };
  const auto slow_of = [&](const std::string& client) {
    return std::ranges::count_if(
        entries_, [&](const Entry& each) { return is_slow(each) && each.client == client; });
  };
  if (std::ranges::count_if(entries_, is_slow) <= options_.max_slow) return;
  Entry* victim = &entry;
  for (Entry& each : entries_) {
    if (is_slow(each) && slow_of(each.client) > slow_of(victim->client)) victim = &each;
  }
  finish(*victim, Error(ErrorCode::busy, "too many large grammars are being compiled", "grammar",
                        "try again in a few seconds, or make it smaller"));
}

// Finishes a compilation: all waiting submissions are answered.
void Service::finish(Entry& entry, const Result<void>& outcome) {
  if (!outcome.ok()) {
    count(&Stats::refused);
    drop(entry);
    return answer_all(entry.waiters, within_memory([&] { return Result<Ref>(outcome.error()); }));
  }
  count(&Stats::compiled);
  entry.state = Entry::State::ready;
  entry.slow = false;
  answer_all(entry.waiters, use(entry));
}

void Service::drop(Entry& entry) {
  if (entry.state == Entry::State::queued) leave_queue(entry);
  close_helper(entry);
  entry.state = Entry::State::ended;
}

// What other threads have released.
void Service::remove_unused(TimePoint now) {
  if (shared_.sessions_released.exchange(false)) {
    const Result<void> removed = within_memory([&] {
      for (Entry& entry : entries_) remove_released_sessions(entry);
    });
    if (!removed.ok()) shared_.sessions_released = true;
  }
  std::ignore = within_memory([&] { trim_idle(now); });
  entries_.remove_if([](const Entry& entry) { return entry.state == Entry::State::ended; });
}

void Service::trim_idle(TimePoint now) {
  std::vector<Entry*> idle;
  std::uint64_t bytes = 0;
  for (Entry& entry : entries_) {
    if (!entry.idle()) continue;
    entry.idle_since = std::min(entry.idle_since, now);
    idle.push_back(&entry);
    bytes += entry.bytes;
  }
  std::ranges::sort(idle, {}, &Entry::idle_since);
  std::size_t left = idle.size();
  for (Entry* const entry : idle) {
    const bool stays = left <= options_.idle_helpers && bytes <= options_.idle_bytes &&
                       now - entry->idle_since < options_.idle_time;
    if (stays) return;
    bytes -= entry->bytes;
    --left;
    drop(*entry);
  }
}

}  // namespace motley::grammar
