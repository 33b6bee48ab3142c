#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sequences/clients.h"
#include "engine/sequences/sequence.h"

namespace motley::engine {

// The requests that have not ended, and what their clients are charged for them.
class Jobs {
 public:
  bool empty() const { return jobs_.empty(); }
  std::size_t size() const { return jobs_.size(); }
  const std::map<RequestId, std::shared_ptr<Job>>& all() const { return jobs_; }
  const Clients& clients() const { return clients_; }
  // Null: it has ended.
  std::shared_ptr<Job> find(RequestId request) const;

  // Gives the job its client, and its order among that client's requests. If memory runs out, the
  // request must not be added.
  void charge(Job& job, const Request& request);
  void add(const std::shared_ptr<Job>& job);
  // The first of its sequences begins: its client's turn is over.
  void start(Job& job);
  // Gives back what the client was charged in excess. False: the job was removed before.
  bool remove(const Job& job);
  // Calls visit(job) for each, which may remove it and no other.
  template <class Visit>
  void each(Visit visit) {
    for (auto at = jobs_.begin(); at != jobs_.end();) visit(std::shared_ptr<Job>((at++)->second));
  }

  // The job is to fail, as soon as what goes on allows it.
  void mark(Job& job, Error error);
  // Whether some job was marked since the last call.
  bool take_marked() { return std::exchange(marked_, false); }

 private:
  std::map<RequestId, std::shared_ptr<Job>> jobs_;
  Clients clients_;
  bool marked_ = false;
};

}  // namespace motley::engine
