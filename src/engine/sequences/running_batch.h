#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/memory/kv_pages.h"
#include "engine/sequences/admission.h"
#include "engine/sequences/clients.h"
#include "engine/sequences/sequence.h"

namespace motley::engine {

// The sequences that run, how they share a step's rows, and how far they may grow. In order they
// stand by their rank within their client, divided by its weight: each client's first, each one's
// second, and so on. So the last, which is preempted for lack of pages, is one of a client that
// runs many, and the first of all always continues.
class RunningBatch {
 public:
  struct Limits {
    std::int64_t sequences = 0;
    std::int64_t longest = 0;  // tokens of a sequence
  };
  RunningBatch(const KvPages& pages, const Limits& limits);
  RunningBatch(const RunningBatch&) = delete;
  RunningBatch& operator=(const RunningBatch&) = delete;

  bool empty() const { return running_.empty(); }
  std::size_t size() const { return running_.size(); }
  std::span<const std::unique_ptr<RunningSequence>> all() const { return running_; }
  RunningSequence& operator[](std::size_t at) const { return *running_[at]; }
  RunningSequence& last() const { return *running_.back(); }

  void add(std::unique_ptr<RunningSequence> running);
  std::unique_ptr<RunningSequence> take(std::size_t at);
  template <class Predicate>
  void remove_if(Predicate predicate) {
    changed_ = true;
    std::erase_if(running_, [&](const auto& each) { return predicate(*each); });
  }

  // Call when RunningSequence::paused has changed.
  void note_pauses() { changed_ = true; }
  // Whether a sequence could be in a step; paused ones are last in the order.
  bool none_goes_on() const {
    return std::ranges::all_of(running_, [](const auto& each) { return each->paused; });
  }

  // After this all() stands in order.
  void order();
  // The client's running sequences, as of the last order().
  std::int64_t running_of(const Client& client) const {
    return client.ordering == ordering_ ? client.running : 0;
  }
  // Nothing was added since order(), and yet they stand otherwise.
  bool is_out_of_order() const;

  // A client that was denied a right of way for lack of pages gets none in the same admission,
  // whose number Client::denied has then.
  void start_admission() { ++admission_; }
  std::uint64_t admission() const { return admission_; }
  bool denies(const Client& client) const { return client.denied == admission_; }

  // Fills Client::rows: clients with prompts in the step get rows by their weights; those that one
  // does not need go to the others.
  void share_rows(std::int64_t rows, FunctionRef<std::int64_t(const RunningSequence&)> rows_wanted);

  // The pages provided ahead for a sequence, and for all that run.
  std::int64_t growth_of(const Sequence& sequence) const;
  std::int64_t growth() const;
  // Call after every step.
  void learn(bool preempted) { growth_reserve_.learn(preempted); }

 private:
  static bool stands_before(const RunningSequence& a, const RunningSequence& b);

  const KvPages* pages_;
  std::int64_t longest_;
  std::vector<std::unique_ptr<RunningSequence>> running_;
  bool changed_ = false;            // since order()
  std::uint64_t ordering_ = 0;      // the number of changes that order() has seen
  std::uint64_t admission_ = 0;     // the number of start_admission()
  std::vector<Client*> prompting_;  // in the current step
  GrowthReserve growth_reserve_;
};

}  // namespace motley::engine
