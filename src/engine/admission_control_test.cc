#include "engine/admission_control.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

AdapterDirectory directory_of(const std::vector<AdapterDirectory::Named>& adapters) {
  AdapterDirectory::Changes changes;
  for (const AdapterDirectory::Named& each : adapters)
    changes.emplace(each.info.name, std::make_shared<const AdapterDirectory::Named>(each));
  AdapterDirectory directory;
  std::ignore = directory.apply(std::move(changes));
  return directory;
}

const AdapterDirectory adapters =
    directory_of({{.info = {.name = "small", .rank = 8}},
                  {.info = {.name = "large", .rank = 16}},
                  {.info = {.name = "alone", .rank = 8}, .exclusive = "it has DoRA"},
                  {.info = {.name = "leaving", .state = AdapterState::closing, .rank = 8}}});

TEST(AdmissionControl, NamesKnownAdaptersThatFitAStepTogether) {
  struct Row {
    std::vector<lora::ScaledAdapter> asked;
    int ranks = 0;  // the limit
    std::string error = {};
  };
  const std::vector<Row> rows = {
      {.asked = {}},
      {.asked = {{"small", 1}, {"large", 0.5F}}},
      {.asked = {{"small", 1}, {"large", 1}}, .ranks = 24},
      {.asked = {{"small", 1}, {"large", 1}},
       .ranks = 23,
       .error =
           "the ranks of 'small' (8) and 'large' (16) add up to 24, and steps have room for 23"},
      {.asked = {{"none", 1}}, .error = "no adapter 'none'"},
      {.asked = {{"leaving", 1}}, .error = "no adapter 'leaving'"},
      {.asked = {{"alone", 1}}},
      {.asked = {{"alone", 2}}, .error = "'alone' can't be mixed or scaled: it has DoRA"},
      {.asked = {{"small", 1}, {"alone", 1}},
       .error = "'alone' can't be mixed or scaled: it has DoRA"},
  };
  for (const Row& row : rows) {
    AdmissionControl admission({.queue = 8, .sequences = 8, .ranks = row.ranks});
    const Result<void> admitted = admission.admit({.adapters = row.asked}, adapters);
    EXPECT_EQ(admitted.ok() ? "" : admitted.error().what(), row.error);
    EXPECT_EQ(admission.sequences(), row.error.empty() ? 1 : 0);
    EXPECT_EQ(admission.refused(), 0U);  // by the queue
  }
}

// Each letter is a request, or a sequence, of the client of that name.
struct Queue {
  std::string running = {};
  std::string waiting = {};
  std::string taken = {};     // by the engine's thread, since the scheduler published the above
  std::string arriving = {};  // accepted, and not taken
};

using Counts = std::unordered_map<std::string, std::int64_t>;

Counts count(const std::string& letters) {
  Counts by_client;
  for (const char letter : letters) ++by_client[{letter}];
  return by_client;
}

void publish(AdmissionControl& admission, const Queue& queue, std::uint64_t changes) {
  const Counts waiting = count(queue.waiting);
  admission.publish({.running = std::ssize(queue.running),
                     .waiting = std::ssize(queue.waiting),
                     .waiting_by_client = &waiting,
                     .changes = changes});
}

Result<void> ask(AdmissionControl& admission, char client) {
  return admission.admit({.client = {client}}, adapters);
}

AdmissionControl admission_with(std::int64_t places, const Queue& queue) {
  AdmissionControl admission({.queue = places, .sequences = 2});
  for (const char client : queue.taken + queue.arriving) EXPECT_TRUE(ask(admission, client).ok());
  publish(admission, queue, 1);
  for (const char client : queue.taken) admission.take({client});
  return admission;
}

TEST(AdmissionControl, TheQueueHasPlacesNextToFreeOnesInTheBatch) {
  struct Row {
    std::int64_t places = 0;
    Queue queue;
    bool accepted = false;
  };
  const std::vector<Row> rows = {
      {0, {}, true},
      {0, {.running = "a"}, true},
      {0, {.running = "aa"}, false},
      {0, {.running = "a", .arriving = "a"}, false},
      {0, {.taken = "a"}, true},
      {0, {.running = "a", .taken = "a"}, false},
      // What waits in the scheduler has found no room, so the batch has none.
      {1, {.running = "a", .waiting = "a"}, false},
      {2, {.running = "a", .waiting = "a"}, true},
      {2, {.waiting = "a", .taken = "a"}, false},
      {4, {.running = "aa", .waiting = "aa", .arriving = "a"}, true},
      {4, {.running = "aa", .waiting = "aa", .taken = "a", .arriving = "a"}, false},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    AdmissionControl admission = admission_with(rows[i].places, rows[i].queue);
    EXPECT_EQ(ask(admission, 'a').ok(), rows[i].accepted);
    EXPECT_EQ(admission.refused(), rows[i].accepted ? 0U : 1U);
  }
}

TEST(AdmissionControl, EachOfSeveralClientsHasItsShareOfAFullQueue) {
  struct Row {
    Queue queue;
    char client = 'a';
    bool accepted = false;
  };
  const std::vector<Row> rows = {
      // Four places.
      {{.running = "aa", .waiting = "aaaa"}, 'a', false},
      {{.running = "aa", .waiting = "aaaa"}, 'b', true},
      {{.running = "aa", .waiting = "aaaab"}, 'b', true},
      {{.running = "aa", .waiting = "aaaa", .arriving = "b"}, 'b', true},
      {{.running = "aa", .waiting = "aaaab", .arriving = "b"}, 'b', false},
      {{.running = "aa", .waiting = "aaaa", .taken = "b", .arriving = "b"}, 'b', false},
      {{.running = "aa", .waiting = "aaaa", .arriving = "bb"}, 'c', true},
      {{.running = "aa", .waiting = "aaaa", .arriving = "bc"}, 'c', false},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    AdmissionControl admission = admission_with(4, rows[i].queue);
    EXPECT_EQ(ask(admission, rows[i].client).ok(), rows[i].accepted);
  }
}

TEST(AdmissionControl, ARequestIsCountedOnceOnItsWay) {
  AdmissionControl admission({.queue = 2, .sequences = 2});
  ASSERT_TRUE(ask(admission, 'a').ok());
  ASSERT_TRUE(ask(admission, 'b').ok());
  EXPECT_EQ(admission.sequences(), 2);
  EXPECT_EQ(admission.waiting(), 0);
  admission.take("a");
  EXPECT_EQ(admission.sequences(), 2);
  EXPECT_EQ(admission.waiting(), 1);
  publish(admission, {.running = "a"}, 0);
  EXPECT_EQ(admission.sequences(), 2);
  EXPECT_EQ(admission.waiting(), 0);
  admission.withdraw("b");
  EXPECT_EQ(admission.sequences(), 1);
}

// The scheduler's own counts by client replace those of requests that were taken, even where its
// own have not changed.
TEST(AdmissionControl, CountsByClientAreThoseThatWerePublishedLast) {
  AdmissionControl admission({.queue = 2, .sequences = 2});
  publish(admission, {.running = "aa", .waiting = "a"}, 7);
  ASSERT_TRUE(ask(admission, 'b').ok());
  admission.take("b");
  EXPECT_FALSE(ask(admission, 'b').ok());
  // The request of b has failed at once.
  publish(admission, {.running = "aa", .waiting = "aa"}, 7);
  EXPECT_TRUE(ask(admission, 'b').ok());
}

}  // namespace
}  // namespace motley::engine
