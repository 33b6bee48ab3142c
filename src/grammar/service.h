#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
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

  // A compiled grammar. Its helper is kept as long as this exists.
  class Use;
  using Ref = std::shared_ptr<const Use>;
  // Called once, from submit(), abandon() or the service's thread, without locks; must not block.
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
  // if the queue is full. Clients take turns, by their weights. Thread-safe. Quick if the spec is
  // marked as checked.
  Ticket submit(const Spec& spec, const std::string& client, std::uint32_t weight, Done done);
  // Ends the submission as `cancelled` unless it has ended; a compilation for nothing else is
  // stopped.
  void abandon(Ticket ticket);

  // `end_ids` may end the text where the grammar may end; empty: those of the vocabulary.
  std::unique_ptr<Cursor> begin_text(const Ref& grammar, std::vector<std::int32_t> end_ids);

  Stats stats() const;

 private:
  struct Entry;
  struct Session;
  class SessionCursor;
  struct Waiter {
    Ticket ticket = 0;
    Done done;
  };
  // Calls that are made once no lock is held.
  using Calls = std::vector<std::function<void()>>;

  void run();
  using Lock = std::unique_lock<std::recursive_mutex>;
  void handle_events(Lock& lock);
  void handle(Entry& entry, bool happened, TimePoint now, Calls& calls);
  void lose(std::uint64_t number);
  static void make(Calls& calls, Lock& lock);
  int timeout_ms() const;
  void wake_thread();

  // Queue and helpers.
  void start_compiling(Calls& calls);
  bool has_place_in_queue(const std::string& client) const;
  Entry& enqueue(const Spec& spec, std::string key, const std::string& client);
  Entry* next_queued();
  Result<void> start_helper(Entry& entry);
  bool make_room_for_helper(TimePoint now);
  void put_to_rest(Entry& entry);
  void note_slow(Entry& entry, TimePoint now, Calls& calls);
  void trim_idle(TimePoint now);
  void finish(Entry& entry, const Result<void>& outcome, Calls& calls);
  void drop(const Entry& entry);
  void release(Entry& entry);

  // Frames.
  void send(Entry& entry, wire::Kind kind, std::uint64_t session, std::string_view body);
  void flush(Entry& entry);
  void receive(Entry& entry, Calls& calls);
  bool take(Entry& entry, const wire::Frame& frame, Calls& calls);
  void died(Entry& entry, std::optional<wire::Limit> limit, Calls& calls);
  Error failure_of(std::optional<wire::Limit> limit, bool compiling);

  // Sessions.
  void add(Session& session);
  void open(Session& session);
  void fail(Session& session, const Error& error);
  void fail_pending(Entry& entry, const Error& error);

  Tokens tokens_;  // without their bytes
  Options options_;
  Descriptor event_;

  // Held while wake_ is called, so that it is not called after it has been reset.
  std::mutex wake_lock_;
  std::function<void()> wake_;
  // Uses and Sessions are released under this lock, on any thread.
  mutable std::recursive_mutex lock_;
  std::condition_variable_any arrived_;
  std::condition_variable_any stopped_;
  bool stopping_ = false;
  bool masks_came_ = false;
  HelperProcess process_;
  std::map<std::uint64_t, std::unique_ptr<Entry>> entries_;
  std::unordered_map<std::string_view, Entry*> by_key_;  // keys point into the entries
  struct Queue {
    std::deque<Entry*> entries;
    bool idle() const { return entries.empty(); }
  };
  FairFlows<Queue> clients_;
  std::size_t queued_ = 0;
  std::uint64_t numbers_ = 0;  // of entries
  Ticket tickets_ = 0;
  std::uint64_t sessions_ = 0;
  Stats stats_;
  std::thread thread_;
};

}  // namespace motley::grammar
