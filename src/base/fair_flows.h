#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace motley {

// Flows of work that take turns, by start-time fair queueing: each gets as much as the others,
// times its weight, and one without work saves up nothing. Costs are in any unit. `State` is what
// the user keeps of a flow; state.idle() says whether it can be forgotten.
template <class State>
class FairFlows {
 public:
  struct Flow : State {
    std::uint64_t number = 0;  // in order of arrival
    std::uint64_t next = 0;    // the turn of its next work
    std::uint32_t weight = 1;
  };

  // The flow of that name, which is made if there is none. Its address stays.
  Flow& of(const std::string& name) {
    if (flows_.size() >= sweep_at_) sweep();
    Flow& flow = flows_[name];
    if (flow.number == 0) flow.number = ++arrived_;
    return flow;
  }
  const Flow* find(const std::string& name) const {
    const auto at = flows_.find(name);
    return at == flows_.end() ? nullptr : &at->second;
  }

  // Of work that would come now.
  std::uint64_t turn_of(const Flow& flow) const { return std::max(now_, flow.next); }
  // The turn of what comes after work with this turn and cost.
  static std::uint64_t after(const Flow& flow, std::uint64_t turn, std::uint64_t cost) {
    return turn + (cost * unit + flow.weight - 1) / flow.weight;
  }

  // Charges the flow for its next work, and returns that work's turn.
  std::uint64_t charge(Flow& flow, std::uint64_t cost) {
    const std::uint64_t turn = turn_of(flow);
    flow.next = after(flow, turn, cost);
    return turn;
  }
  // Work of that turn begins: what comes later gets no earlier turn.
  void begin(std::uint64_t turn) { now_ = std::max(now_, turn); }
  // Work cost less than it was charged for.
  void refund(Flow& flow, std::uint64_t unused) {
    flow.next -= std::min(flow.next, after(flow, 0, unused));
  }

  // The flow with the first turn of those for which has_work(flow); null: there is none.
  template <class HasWork>
  Flow* first(const HasWork& has_work) {
    Flow* first = nullptr;
    for (auto& [name, flow] : flows_) {
      const auto stands_before = [this](const Flow& a, const Flow& b) {
        return turn_of(a) != turn_of(b) ? turn_of(a) < turn_of(b) : a.number < b.number;
      };
      if ((first == nullptr || stands_before(flow, *first)) && has_work(flow)) first = &flow;
    }
    return first;
  }

  std::size_t size() const { return flows_.size(); }
  const std::unordered_map<std::string, Flow>& all() const { return flows_; }

 private:
  // Weights divide costs: a unit of turns is so much smaller that little is lost.
  static constexpr std::uint64_t unit = 1024;
  static constexpr std::size_t least_swept = 1024;
  static constexpr std::size_t most_idle = 8192;

  // Forgets idle flows that are not ahead of the others; of too many also those that are.
  void sweep() {
    const bool too_many = flows_.size() >= most_idle;
    std::erase_if(flows_, [&](const auto& each) {
      return each.second.idle() && (too_many || each.second.next <= now_);
    });
    sweep_at_ = std::max<std::size_t>(least_swept, 2 * flows_.size());
  }

  std::unordered_map<std::string, Flow> flows_;
  std::uint64_t now_ = 0;
  std::uint64_t arrived_ = 0;
  std::size_t sweep_at_ = least_swept;
};

}  // namespace motley
