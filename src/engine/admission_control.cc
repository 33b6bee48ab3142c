#include "engine/admission_control.h"

#include <vector>

#include "base/cat.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {
namespace {

// 'a' (16) and 'b' (8).
std::string ranks_of(const Request& request, const AdapterDirectory& adapters) {
  std::vector<std::string> each;
  for (const lora::ScaledAdapter& adapter : request.adapters)
    each.push_back(cat(quote(adapter.name), " (", adapters.find(adapter.name)->info.rank, ")"));
  return join(each, " and ");
}

}  // namespace

Result<void> AdmissionControl::admit(const Request& request, const AdapterDirectory& adapters) {
  MOTLEY_TRY_VOID(check_adapters(request, adapters));
  const QueueAtArrival queue = queue_for(request.client);
  if (!has_place(queue)) {
    ++refused_;
    return Error(ErrorCode::busy,
                 cat(queue.waiting, " requests wait already, ", queue.own, " of them yours"), {},
                 "try again later");
  }
  ++arriving_by_client_[request.client];
  ++arriving_;
  return {};
}

Result<void> AdmissionControl::check_adapters(const Request& request,
                                              const AdapterDirectory& adapters) const {
  int ranks = 0;
  for (const lora::ScaledAdapter& each : request.adapters) {
    const AdapterDirectory::Shared known = adapters.find(each.name);
    if (known == nullptr)
      return Error(ErrorCode::not_found, cat("no adapter ", quote(each.name)), "adapters",
                   "name one that is loaded");
    ranks += known->info.rank;
    const std::string& exclusive = known->exclusive;
    if (exclusive.empty() || (request.adapters.size() == 1 && each.scale == 1)) continue;
    return Error(ErrorCode::invalid_argument,
                 cat(quote(each.name), " can't be mixed or scaled: ", exclusive), "adapters",
                 "use it alone, with the scale 1");
  }
  if (limits_.ranks == 0 || ranks <= limits_.ranks) return {};
  return Error(ErrorCode::invalid_argument,
               cat("the ranks of ", ranks_of(request, adapters), " add up to ", ranks,
                   ", and steps have room for ", limits_.ranks),
               "adapters", "use fewer or smaller ones at once");
}

// Looks at clients only if the queue is full.
QueueAtArrival AdmissionControl::queue_for(const std::string& client) const {
  QueueAtArrival queue{
      .places = limits_.queue, .free = free_places(), .waiting = waiting_ + arriving_};
  if (queue.waiting < queue.places + queue.free) return queue;
  const auto count_of = [&](const Counts& counts) {
    const auto found = counts.find(client);
    return found == counts.end() ? 0 : found->second;
  };
  queue.own = count_of(waiting_by_client_) + count_of(arriving_by_client_);
  queue.clients = static_cast<std::int64_t>(waiting_by_client_.size()) + (queue.own == 0 ? 1 : 0);
  for (const auto& [name, count] : arriving_by_client_)
    if (!waiting_by_client_.contains(name)) ++queue.clients;
  return queue;
}

// Free places in the batch for new requests: none if others wait already. Requests that were just
// taken still count as waiting, and may begin.
std::int64_t AdmissionControl::free_places() const {
  return waiting_ > taken_ ? 0 : limits_.sequences - running_;
}

void AdmissionControl::withdraw(const std::string& client) { leave_arriving(client); }

void AdmissionControl::take(const std::string& client) {
  leave_arriving(client);
  ++waiting_;
  ++taken_;
  std::ignore = within_memory([&] { ++waiting_by_client_[client]; });
  changes_.reset();
}

void AdmissionControl::publish(const Scheduled& scheduled) {
  running_ = scheduled.running;
  waiting_ = scheduled.waiting;
  taken_ = 0;
  if (changes_ == scheduled.changes) return;
  changes_ = scheduled.changes;
  if (!within_memory([&] { waiting_by_client_ = *scheduled.waiting_by_client; }).ok())
    changes_.reset();
}

void AdmissionControl::leave_arriving(const std::string& client) {
  const auto arriving = arriving_by_client_.find(client);
  if (--arriving->second == 0) arriving_by_client_.erase(arriving);
  --arriving_;
}

}  // namespace motley::engine
