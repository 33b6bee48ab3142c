#include "grammar/service.h"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "grammar/check/check.h"
#include "grammar/forked_helper.h"

namespace motley::grammar {
namespace {

using testing::HasSubstr;
using Kind = Spec::Kind;

constexpr std::int32_t end_id = 256;
constexpr std::int64_t width = 257;

Tokens bytes() {
  Tokens tokens{.bytes = {}, .width = width, .end_ids = {end_id}};
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.emplace_back();
  return tokens;
}

Spec regex(std::string text) { return {.kind = Kind::regex, .text = std::move(text)}; }
Spec ebnf(std::string text) { return {.kind = Kind::ebnf, .text = std::move(text)}; }

// Processor time as a test says, in this process and in the helpers that it forks: each look at the
// clock adds a time to it.
class ScriptedClock {
 public:
  static std::int64_t look() {
    Times& times = shared();
    return times.now_ns.fetch_add(times.step_ns) + times.step_ns;
  }
  static void each_look_takes(std::chrono::nanoseconds time) { shared().step_ns = time.count(); }

 private:
  struct Times {
    std::atomic<std::int64_t> now_ns{0};
    std::atomic<std::int64_t> step_ns{0};
  };

  static Times& shared() {
    static Times* const times = [] {
      void* const memory =
          ::mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      return new (memory) Times;
    }();
    return *times;
  }
};

Result<pid_t> fork_helper_with_script(int socket, int input) {
  return fork_helper_with_clock(socket, input, ScriptedClock::look);
}

// The bound of all waits.
constexpr auto max_wait = std::chrono::seconds(60);

// Takes many seconds and hundreds of megabytes, although its parts are within the limits.
Spec endless(int number = 0) {
  std::string schema = cat(R"({"type": "object", "title": ")", number, R"(", "properties": {)");
  for (int i = 0; i < 12'000; ++i) schema += cat(i == 0 ? "" : ",", "\"", i, R"(": {})");
  return {.kind = Kind::json_schema, .text = schema + R"(}, "additionalProperties": false})"};
}

class Grammars : public testing::Test {
 protected:
  using Answer = Result<Service::Ref>;

  void start(Service::Options options) {
    options.start = fork_helper;
    service_ = std::make_unique<Service>(bytes(), options);
  }
  // Helpers that use no time until the test says so.
  void start_with_script(const Limits& limits) {
    ScriptedClock::each_look_takes(std::chrono::nanoseconds(0));
    service_ = std::make_unique<Service>(
        bytes(), Service::Options{.start = fork_helper_with_script, .limits = limits});
  }
  // Compilations that only the test ends.
  static Service::Options patient() {
    return {.limits = {.compile_time = std::chrono::hours(1)},
            .max_quick = 1,
            .quick = std::chrono::hours(1),
            .wall_time = std::chrono::hours(1)};
  }
  // No compilation is ended by the time that a busy machine takes for it.
  void SetUp() override { start({.wall_time = std::chrono::hours(1)}); }

  std::future<Answer> submit(const Spec& spec, const std::string& client = {}) {
    auto answer = std::make_shared<std::promise<Answer>>();
    ticket_ = service_->submit(spec, client, 1,
                               [answer](Answer result) { answer->set_value(std::move(result)); });
    return answer->get_future();
  }
  static Answer get(std::future<Answer> answer) {
    if (answer.wait_for(max_wait) == std::future_status::ready) return answer.get();
    ADD_FAILURE() << "a submitted grammar was not answered";
    return Error(ErrorCode::internal, "not answered");
  }
  Service::Ref compiled(const Spec& spec) { return get(submit(spec)).value(); }
  Error refused(const Spec& spec) { return get(submit(spec)).error(); }

  // Waits until the service's statistics are as `holds` says.
  template <class Holds>
  void wait_for(const char* what, Holds holds) {
    const auto end = std::chrono::steady_clock::now() + max_wait;
    while (!holds(service_->stats())) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited for " << what;
      std::this_thread::yield();
    }
  }
  void wait_for_queued(std::size_t count) {
    wait_for("compilations to begin",
             [count](const Stats& stats) { return stats.queued <= count; });
  }

  // Whether a token is allowed next, once the mask has arrived.
  static bool may(Cursor& cursor, char token) {
    cursor.request_mask();
    cursor.wait(std::chrono::steady_clock::now() + max_wait);
    if (!cursor.ready()) ADD_FAILURE() << "a mask did not arrive";
    if (!cursor.ready() || cursor.failure()) return false;
    std::array<std::uint32_t, (width + 31) / 32> mask{};
    cursor.copy_mask(mask);
    return ((mask[static_cast<unsigned char>(token) / 32] >> (token % 32)) & 1U) != 0;
  }
  // Whether a text is accepted, mask by mask.
  static bool takes(Cursor& cursor, std::string_view text) {
    for (const char each : text) {
      if (!may(cursor, each)) return false;
      cursor.accept(each);
    }
    return true;
  }

  std::unique_ptr<Service> service_;
  Service::Ticket ticket_ = 0;
};

TEST_F(Grammars, AreFollowedInAProcessOfTheirOwn) {
  const Service::Ref grammar = compiled(regex("(yes|no)!"));
  const auto cursor = service_->begin_text(grammar, {});
  EXPECT_FALSE(cursor->ready()) << "nothing has asked";
  EXPECT_FALSE(may(*cursor, 'x'));
  EXPECT_TRUE(takes(*cursor, "ye"));
  const auto other = cursor->fork();
  EXPECT_TRUE(takes(*cursor, "s!"));
  EXPECT_FALSE(may(*cursor, '!'));
  EXPECT_TRUE(cursor->accept(end_id)) << "nothing follows";
  EXPECT_TRUE(takes(*other, "s")) << "a fork stands where it was made";
  EXPECT_EQ(service_->stats().helpers, 1U);
}

TEST_F(Grammars, AreCompiledOnceForAllRequests) {
  const Service::Ref first = compiled(regex("a"));
  const Service::Ref second = compiled(regex("a"));
  const Service::Ref other = compiled(regex("b"));
  EXPECT_EQ(service_->stats().compiled, 2U);
  EXPECT_EQ(service_->stats().helpers, 2U);
}

TEST_F(Grammars, AreRefusedWithWhatIsWrong) {
  EXPECT_EQ(refused(regex("a{999999999}")).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(service_->stats().started, 0U) << "before any helper sees them";
  EXPECT_EQ(refused(regex("(a")).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(service_->stats().refused, 1U);
  EXPECT_EQ(service_->stats().helpers, 0U);
}

// The library recurses without end on these.
TEST_F(Grammars, ThatCrashTheLibraryEndTheirOwnRequestAlone) {
  const Service::Ref good = compiled(regex("ab"));
  const auto cursor = service_->begin_text(good, {});
  for (const char* const text :
       {"root ::= (root){2}", "root ::= (root){0,3}", "root ::= \"a\"\nunused ::= (unused){2}",
        "root ::= (other){2}\nother ::= (root){2}"}) {
    const Answer answer = get(submit(ebnf(text)));
    ASSERT_FALSE(answer.ok()) << text;
    EXPECT_EQ(answer.error().code(), ErrorCode::invalid_argument)
        << text << answer.error().message();
  }
  EXPECT_TRUE(takes(*cursor, "ab"));
}

// A server checks them once for all choices and prompts of a request.
TEST_F(Grammars, ThatAreMarkedAsCheckedAreNotCheckedAgain) {
  Spec spec = regex(cat("[a-z]{", grammar_limits::class_characters + 1, "}"));
  EXPECT_EQ(refused(spec).code(), ErrorCode::invalid_argument);
  spec.checked = true;
  EXPECT_TRUE(get(submit(spec)).ok());
}

TEST_F(Grammars, ThatTakeLongToCompileAreEnded) {
  start_with_script({.compile_time = std::chrono::milliseconds(300)});
  compiled(regex("a"));
  ScriptedClock::each_look_takes(std::chrono::milliseconds(300));
  const Error error = refused(regex("b"));
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("takes more than 300 ms"));
  EXPECT_EQ(service_->stats().failed_time, 1U);
  EXPECT_EQ(service_->stats().compiled, 1U);
}

// Sanitizers reserve more address space than any limit.
#ifndef MOTLEY_SANITIZED
TEST_F(Grammars, ThatTakeTooMuchMemoryAreEnded) {
  Service::Options options = patient();
  options.limits.memory = std::uint64_t{16} << 20;
  start(options);
  const Error error = refused(endless());
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("more than 16 MiB"));
}
#endif

// One text that is hard to follow, among others with the same grammar whose masks are in time.
TEST_F(Grammars, ThatTakeLongForAMaskEndOneRequestAndNoOther) {
  start_with_script({.mask_time = std::chrono::milliseconds(50),
                     .excess_time = std::chrono::milliseconds(300),
                     .token_time = std::chrono::milliseconds(2)});
  const Service::Ref grammar = compiled(regex("[a-z]*!"));
  const auto easy = service_->begin_text(grammar, {});
  EXPECT_TRUE(takes(*easy, "a"));
  EXPECT_TRUE(may(*easy, '!'));
  const auto hard = service_->begin_text(grammar, {});
  ScriptedClock::each_look_takes(std::chrono::milliseconds(52));
  EXPECT_FALSE(may(*hard, 'a'));
  ScriptedClock::each_look_takes(std::chrono::milliseconds(0));
  ASSERT_TRUE(hard->failure());
  EXPECT_THAT(hard->failure()->message(), HasSubstr("takes more than 50 ms for a token"));
  EXPECT_EQ(service_->stats().failed_time, 1U);
  EXPECT_FALSE(easy->failure());
  EXPECT_TRUE(may(*easy, '!')) << "its mask was there";
  EXPECT_FALSE(easy->accept('!'));
  EXPECT_FALSE(may(*easy, 'a')) << "it goes on in another helper";
  EXPECT_FALSE(easy->failure());
}

// Masks that are within the limit of one, but together take too long. A look of the timer may fall
// into any of them, so that their number is not known.
TEST_F(Grammars, WhoseMasksTakeTooLongTogetherAreEnded) {
  start_with_script({.mask_time = std::chrono::milliseconds(50),
                     .excess_time = std::chrono::milliseconds(100),
                     .token_time = std::chrono::milliseconds(2)});
  const auto text = service_->begin_text(compiled(regex("[a-z]*")), {});
  ScriptedClock::each_look_takes(std::chrono::milliseconds(40));
  int taken = 0;
  while (takes(*text, "a")) ASSERT_LE(++taken, 3);
  ScriptedClock::each_look_takes(std::chrono::milliseconds(0));
  ASSERT_TRUE(text->failure());
  EXPECT_THAT(text->failure()->message(), HasSubstr("100 ms too much for all of them"));
}

TEST_F(Grammars, ThatAreAbandonedStopCompiling) {
  start(patient());
  auto answer = submit(endless());
  service_->abandon(ticket_);
  EXPECT_EQ(get(std::move(answer)).error().code(), ErrorCode::cancelled);
  EXPECT_EQ(service_->stats().helpers, 0U);
  service_->abandon(ticket_);  // it has ended already
}

TEST_F(Grammars, AreAnsweredWhenTheServiceEnds) {
  start(patient());
  auto running = submit(endless());
  wait_for_queued(0);
  auto queued = submit(regex("a"));  // only one compiles at a time
  service_.reset();
  EXPECT_EQ(get(std::move(running)).error().code(), ErrorCode::unavailable);
  EXPECT_EQ(get(std::move(queued)).error().code(), ErrorCode::unavailable);
}

// Whether a submission has not been answered yet.
bool waits(const std::future<Result<Service::Ref>>& answer) {
  return answer.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

// One place, which the test frees.
TEST_F(Grammars, OfOneClientLeaveTurnsToOthers) {
  start(patient());
  std::vector<std::future<Answer>> hog;
  std::vector<Service::Ticket> tickets;
  for (int i = 0; i < 6; ++i) {
    hog.push_back(submit(endless(i), "hog"));
    tickets.push_back(ticket_);
  }
  for (std::size_t turn = 0; turn < 3; ++turn) {
    // One more of the first client's has begun.
    wait_for_queued(hog.size() - turn - 1);
    auto other = submit(regex(cat("a", turn)), "other");
    service_->abandon(tickets[turn]);
    EXPECT_TRUE(get(std::move(other)).ok());
    EXPECT_EQ(std::ranges::count_if(hog, waits), hog.size() - turn - 1);
  }
}

TEST_F(Grammars, ThatAreSlowLeaveTheirPlaceAndAreBounded) {
  Service::Options options = patient();
  options.max_slow = 2;
  options.quick = Duration::zero();  // all are slow as soon as they are looked at
  start(options);
  std::vector<std::future<Answer>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(submit(endless(i), "hog"));
  // With more than two, the next one of the client that has the most is stopped.
  for (const std::size_t i : {2, 3}) {
    const Answer answer = get(std::move(slow[i]));
    EXPECT_EQ(answer.error().code(), ErrorCode::busy);
    EXPECT_THAT(answer.error().message(), HasSubstr("too many large grammars"));
  }
  EXPECT_TRUE(waits(slow[0]) && waits(slow[1])) << "they go on";
  EXPECT_TRUE(get(submit(regex("a"), "other")).ok()) << "of another client, slow or not";
}

TEST_F(Grammars, BeyondTheQueueAreRefused) {
  Service::Options options = patient();
  options.max_queued = 1;
  start(options);
  auto running = submit(endless());
  wait_for_queued(0);
  auto queued = submit(regex("a"));
  EXPECT_EQ(refused(regex("b")).code(), ErrorCode::busy);
  auto same = submit(regex("a"));
  service_->abandon(1);
  EXPECT_EQ(get(std::move(running)).error().code(), ErrorCode::cancelled);
  EXPECT_TRUE(get(std::move(queued)).ok());
  EXPECT_TRUE(get(std::move(same)).ok()) << "the same grammar takes no second place";
}

TEST_F(Grammars, ThatNothingUsesAreKeptInBounds) {
  start({.idle_helpers = 2});
  for (const char* const text : {"a", "b", "c", "d"}) compiled(regex(text));
  // The last answer is released slightly after it was given.
  wait_for("idle helpers to be stopped", [](const Stats& stats) { return stats.helpers <= 2; });
  EXPECT_EQ(service_->stats().helpers, 2U);
  const auto again = compiled(regex("d"));
  EXPECT_EQ(service_->stats().compiled, 4U) << "the last ones are kept";
}

TEST_F(Grammars, ThatRestMakeRoomAndGoOnLater) {
  start({.max_helpers = 1, .rest = Duration::zero()});
  const Service::Ref first = compiled(regex("ab"));
  const auto cursor = service_->begin_text(first, {});
  EXPECT_TRUE(takes(*cursor, "a"));
  cursor->wait(std::chrono::steady_clock::now() + max_wait);
  ASSERT_TRUE(cursor->ready()) << "waited for a mask";
  const Service::Ref second = compiled(regex("c"));
  EXPECT_EQ(service_->stats().helpers, 1U);
  EXPECT_TRUE(takes(*cursor, "b"));
  EXPECT_FALSE(cursor->failure());
}

TEST_F(Grammars, OfManyClientsHaveTheirShareOfTheQueue) {
  Service::Options options = patient();
  options.max_queued = 4;
  start(options);
  auto running = submit(endless(), "hog");
  wait_for_queued(0);
  const std::uint64_t first = ticket_;
  std::vector<std::future<Answer>> hog;
  for (int i = 0; i < 8; ++i) hog.push_back(submit(regex(cat("a", i)), "hog"));
  EXPECT_EQ(get(std::move(hog.back())).error().code(), ErrorCode::busy);
  auto other = submit(regex("b"), "other");
  service_->abandon(first);
  EXPECT_EQ(get(std::move(running)).error().code(), ErrorCode::cancelled);
  EXPECT_TRUE(get(std::move(other)).ok());
}

TEST_F(Grammars, GoOnWhereTheFirstHelperHasEnded) {
  std::atomic<pid_t> first = 0;
  std::atomic<int> starts = 0;
  service_ =
      std::make_unique<Service>(bytes(), Service::Options{.start = [&](int socket, int input) {
                                  Result<pid_t> started = fork_helper(socket, input);
                                  if (started.ok() && ++starts == 1) first = *started;
                                  return started;
                                }});
  const Service::Ref before = compiled(regex("a+"));
  const auto cursor = service_->begin_text(before, {});
  ::kill(first, SIGKILL);
  // Its helper ends with the first helper. A request at that moment would be blamed.
  wait_for("helpers to end with the first one",
           [](const Stats& stats) { return stats.helpers == 0; });
  EXPECT_TRUE(get(submit(regex("b"))).ok());
  EXPECT_TRUE(takes(*cursor, "aa"));
  EXPECT_EQ(starts, 2);
}

TEST_F(Grammars, WakeWaitingRequests) {
  std::promise<void> woken;
  std::atomic<bool> once = false;
  service_->set_wake([&] {
    if (!once.exchange(true)) woken.set_value();
  });
  const auto cursor = service_->begin_text(compiled(regex("a")), {});
  cursor->request_mask();
  ASSERT_EQ(woken.get_future().wait_for(max_wait), std::future_status::ready)
      << "waited for the service to wake those who wait for a mask";
  EXPECT_TRUE(cursor->ready());
  service_->set_wake({});
}

}  // namespace
}  // namespace motley::grammar
