#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fair_flows.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "grammar/cursor.h"
#include "grammar/helper_process.h"
#include "grammar/spec.h"
#include "grammar/stats.h"
#include "grammar/wire.h"

namespace motley::grammar {

// Compiles grammars and follows texts through them, each grammar in a helper process of its own. If
// a helper crashes or exceeds Limits, only the request that it worked for fails; other
// requests with the same grammar continue in a new helper. Must outlive its grammars and cursors.
//
// Thread-safe: the service's own thread has the queue, the helpers and the positions of texts;
// other threads put messages into its inbox.
class Service {
 public:
  struct Options {
    StartHelper start = start_own_program;
    Limits limits = {};
    // Concurrent compilations. One that takes longer than `quick` gives up its place to the next,
    // and continues beside at most `max_slow` others.
    int max_quick = 2;
    int max_slow = 4;
    Duration quick = std::chrono::seconds(1);
    std::size_t max_queued = 1024;
    // Limits of helpers and of the memory of their grammars. Beyond them, helpers that have been
    // idle for `rest` are stopped, and started again when needed.
    std::size_t max_helpers = 256;
    std::uint64_t max_bytes = std::uint64_t{4} << 30;
    Duration rest = std::chrono::seconds(1);
    // Idle helpers that are kept for further requests with their grammar.
    std::size_t idle_helpers = 16;
    std::uint64_t idle_bytes = std::uint64_t{256} << 20;
    Duration idle_time = std::chrono::seconds(60);
    // Wall-clock limit of one compilation or mask, however much processor time it gets.
    Duration wall_time = std::chrono::seconds(20) * build_slowness;
  };

  // A compiled grammar. Its helper is kept as long as a Ref exists.
  struct Entry;
  using Ref = std::shared_ptr<Entry>;
  // Called once, from submit() or the service's thread, without locks; must not block.
  using Done = std::function<void(Result<Ref>)>;
  using Ticket = std::uint64_t;

  Service(Tokens tokens, const Options& options);
  // Waiting requests get `unavailable`.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Called on the service's thread when masks have arrived, or will never arrive.
  void set_wake(std::function<void()> wake);

  // `invalid_argument` if check() or the library refuses it or it exceeds a limit; `busy`
  // if the queue is full. Clients take turns, by their weights. Quick if the spec is marked as
  // checked.
  Ticket submit(const Spec& spec, const std::string& client, std::uint32_t weight, Done done);
  // Ends the submission as `cancelled` unless it has ended; a compilation for nothing else is
  // stopped.
  void abandon(Ticket ticket);

  // `end_ids` may end the text where the grammar may end; empty: those of the vocabulary.
  std::unique_ptr<Cursor> begin_text(const Ref& grammar, std::vector<std::int32_t> end_ids);

  Stats stats() const;

 private:
  struct Session;
  class SessionCursor;
  struct Submission {
    Ticket ticket = 0;
    Spec spec;
    std::string client;
    std::uint32_t weight = 1;
    Done done;
  };
  struct Inbox {
    std::list<Submission> submitted;
    std::vector<Ticket> abandoned;
    std::vector<std::shared_ptr<Session>> mask_requests;
  };
  // What the service's thread and the others share. `lock` guards the inbox, the numbers, and the
  // changes of a session's state; it is held for moments only.
  struct Shared {
    mutable std::mutex lock;
    std::condition_variable arrived;  // masks
    Inbox inbox;
    Stats stats;
    // Without the lock:
    std::atomic<Ticket> tickets = 0;
    std::atomic<bool> stopping = false;
    std::atomic<bool> sessions_released = false;
  };
  struct Queue {  // of one client
    std::size_t waiting = 0;
    bool idle() const { return waiting == 0; }
  };

  // Called on any thread.
  void request_mask(const std::shared_ptr<Session>& session);
  void wake_thread();
  void count(std::uint64_t Stats::* number, int change = 1);

  // All other members are called on the service's thread.
  void run();
  void handle_events();
  void handle_messages();
  int timeout_ms() const;

  // Submissions. `one` is a list of one, which moves into another list without an allocation.
  Result<void> admit(std::list<Submission>& one);
  bool has_place_in_queue(const std::string& client) const;
  void enqueue(std::list<Submission>& one);
  void leave_queue(Entry& entry);
  void cancel(Ticket ticket);
  static void answer_all(std::list<Submission>& waiters, const Result<Ref>& outcome);
  Result<Ref> use(Entry& entry);

  // Compilations and helpers.
  void start_compiling();
  bool make_room_for_helper(TimePoint now);
  Result<void> start_helper(Entry& entry);
  void close_helper(Entry& entry);
  void note_slow(Entry& entry, TimePoint now);
  void finish(Entry& entry, const Result<void>& outcome);
  void drop(Entry& entry);
  void remove_unused(TimePoint now);
  void trim_idle(TimePoint now);

  // Messages of helpers, and their ends.
  void receive(Entry& entry);
  void take(Entry& entry, const wire::Frame& frame);
  void take_refusal(Entry& entry, wire::Reader& reader);
  void take_mask(Entry& entry, Session& session, const wire::Frame& frame);
  void died(Entry& entry, std::optional<wire::Limit> limit);
  void lose(Entry& entry);
  Error failure_of(std::optional<wire::Limit> limit, bool compiling);

  // Sessions.
  void handle_request(const std::shared_ptr<Session>& session);
  void ask_helper(Session& session);
  void fail(Session& session, const std::optional<Error>& error);
  void fail_asked(Entry& entry, const std::optional<Error>& error);
  static void remove_released_sessions(Entry& entry);

  Tokens tokens_;  // without their bytes
  Options options_;
  Descriptor event_;  // wakes the thread

  // Held while wake_ is called, so that it is not called after it has been reset.
  std::mutex wake_lock_;
  std::function<void()> wake_;

  // Used by the service's thread alone.
  HelperProcess process_;
  std::list<Entry> entries_;  // in order of arrival
  FairFlows<Queue> clients_;
  std::uint64_t sessions_ = 0;
  bool masks_came_ = false;
  Inbox taken_;  // its messages are being handled

  Shared shared_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley::grammar
