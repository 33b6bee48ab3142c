#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/system/clock.h"
#include "engine/admission_control.h"
#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/messages.h"
#include "engine/residency/adapter_directory.h"
#include "engine/scheduling/scheduler.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// What the engine's thread and its callers share. `lock` guards all of it. The adapter store and
// the samplers take it when they wake the thread; their counts are read under it, and may not wait
// for a lock that they hold then.
struct EngineShared {
  explicit EngineShared(const AdmissionControl::Limits& limits) : admission(limits) {}

  mutable std::mutex lock;
  std::condition_variable woken;  // the thread
  std::condition_variable ended_now;
  Inbox inbox;
  AdmissionControl admission;
  Pauses pauses;  // for new requests; the scheduler has its copy
  // As published last:
  Stats stats;
  AdapterDirectory directory;
  bool ended = false;  // the thread does nothing more
};

// The thread on which a scheduler runs: takes messages between its steps, and publishes what came
// of them. Ends once the inbox is stopped and all requests have ended.
class EngineThread {
 public:
  // `shared` must outlive it.
  EngineThread(const Engine::Collaborators& collaborators, const Engine::Options& options,
               EngineShared* shared);
  // Waits for the thread's end.
  ~EngineThread() { thread_.join(); }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();
  // Waits while there is nothing to do. False: everything is done, and no more messages will come.
  bool take_messages(bool idle);
  bool finished_locked() const;
  // Returns whether there is nothing to do for now.
  bool run_once();
  bool works_ahead();

  void handle(SubmitMessage& message);
  void handle(const CancelMessage& message);
  void handle(LoadMessage& message);
  void handle(SettleMessage& message);
  void handle(UnloadMessage& message);
  void handle(PauseMessage& message);
  void handle(ResumeMessage& message);
  void handle(const ResetCacheMessage& message);
  // Answers pauses whose requests have ended or stand still.
  void settle_pauses();
  bool is_settled(const PauseMessage& each) const;
  // Answers those of this adapter, or of all, that have not come to that.
  void break_off_pauses(std::string_view adapter);
  // Publishes adapters first, so that a client that learns of a load can name the adapter at once.
  Engine::Done announcing(Engine::Done done);
  void die(const Error& error);
  // Answers all calls that wait for something with this error.
  void give_up(const Error& error);

  void publish(bool idle);
  void publish_adapters();
  // Only what has changed: there may be thousands of names.
  void describe_adapters();

  Engine::Collaborators collaborators_;
  Engine::Options options_;
  EngineShared* shared_;
  Scheduler scheduler_;
  Messages taken_;
  bool cancels_now_ = false;
  bool stopping_now_ = false;
  RequestId arrived_before_ = 0;  // all requests with smaller ids have arrived
  Messages pausing_;              // pauses that are not answered yet
  std::optional<Error> dead_;
  TimePoint described_;
  bool unpublished_ = false;  // memory was too short for the list of adapters
  std::thread thread_;        // last: it uses all of the above
};

}  // namespace motley::engine
