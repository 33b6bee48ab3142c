#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "base/result.h"
#include "engine/messages.h"
#include "engine/sampling/sampler.h"

namespace motley::engine {

// What callers have asked for and the engine's thread has not taken: messages, and requests whose
// sampler is being prepared; and whether more may come. Not thread-safe: the engine's lock guards
// it. Only what says so allocates, so that a request that was accepted can always be taken, and
// cancelled once. An abandon that a call returns is called without the lock.
class Inbox {
 private:
  struct Preparing {
    Messages cancels = {};  // that arrived meanwhile
    SamplerFactory::Abandon abandon = {};
  };
  using AllPreparing = std::map<RequestId, Preparing>;

 public:
  // What a request takes in here, allocated before it is accepted.
  class Place {
   public:
    Place();  // allocates

   private:
    friend class Inbox;
    AllPreparing::node_type preparing_;
    Messages cancel_ = Messages(1);
  };

  // An error says why no more requests, or no messages at all, are taken. Errors allocate.
  Result<void> takes_requests() const;
  Result<void> takes_messages() const;
  bool stopping() const { return stopping_; }
  const std::optional<Error>& broken() const { return broken_; }

  // A request whose sampler is prepared from now on.
  RequestId enter(Place& place);
  // How to abandon its preparation has become known. True: call it at once. Else it has been taken
  // if the preparation goes on.
  bool attach(RequestId request, SamplerFactory::Abandon& abandon);
  // Its preparation could not begin. False: it has ended nevertheless.
  bool withdraw(RequestId request);
  // The message is complete. False: the request was withdrawn.
  bool submit(RequestId request, Messages& message);
  // `message` has memory for one, or is empty: then the cancel takes the memory that a place
  // brought. If none is left it allocates, and does nothing if memory is short.
  [[nodiscard]] SamplerFactory::Abandon cancel(const CancelMessage& cancel, Messages& message);
  void post(Messages& message) { messages_.splice(messages_.end(), message); }
  // The adapter store or a sampler has news.
  void wake() { woken_ = true; }

  // No more requests. `cancels`: and those that are here end.
  void stop(bool cancels);
  // One of those that are being prepared, to be ended; null: there are no more.
  [[nodiscard]] SamplerFactory::Abandon next_abandon();
  // No more requests, because the device has failed. Allocates, if it can.
  void fail(const Error& error);
  // No more messages.
  void close() { closed_ = true; }

  bool cancels_all() const { return cancels_all_; }
  bool has_news() const { return woken_ || !messages_.empty(); }
  // The id of the next request to be accepted.
  RequestId next_id() const { return next_id_; }
  // Of the first request whose sampler is being prepared; next_id() if there is none.
  RequestId first_preparing() const {
    return preparing_.empty() ? next_id_ : preparing_.begin()->first;
  }
  // Stopping, and nothing is here or will come.
  bool finished() const { return stopping_ && messages_.empty() && preparing_.empty(); }
  // All messages, in their order; there is no news any more.
  Messages take();
  // Gives up memory for cancels that so many requests, and those in preparation, do not need.
  void trim_cancels(std::size_t requests);

 private:
  Messages messages_;
  Messages spare_cancels_;  // at least one for each request that has not ended
  AllPreparing preparing_;
  RequestId next_id_ = 1;
  bool woken_ = false;
  bool stopping_ = false;
  bool cancels_all_ = false;  // from now on
  bool closed_ = false;
  std::optional<Error> broken_;
};

}  // namespace motley::engine
