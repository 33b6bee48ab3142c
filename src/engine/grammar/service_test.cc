#include "engine/grammar/service.h"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "engine/grammar/forked_helper.h"

namespace motley::engine {
namespace {

using testing::HasSubstr;
using Kind = GrammarSpec::Kind;

constexpr std::int32_t end_id = 256;
constexpr std::int64_t width = 257;

GrammarTokens bytes() {
  GrammarTokens tokens{.bytes = {}, .width = width, .end_ids = {end_id}};
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.emplace_back();
  return tokens;
}

GrammarSpec regex(std::string text) { return {.kind = Kind::regex, .text = std::move(text)}; }
GrammarSpec ebnf(std::string text) { return {.kind = Kind::ebnf, .text = std::move(text)}; }

// Takes many seconds and hundreds of megabytes, although its parts are within the limits.
GrammarSpec endless(int number = 0) {
  std::string schema = cat(R"({"type": "object", "title": ")", number, R"(", "properties": {)");
  for (int i = 0; i < 12'000; ++i) schema += cat(i == 0 ? "" : ",", "\"", i, R"(": {})");
  return {.kind = Kind::json_schema, .text = schema + R"(}, "additionalProperties": false})"};
}

// `(((a)*)*)*`, nested this deep: the number of parses doubles with each level.
[[maybe_unused]] std::string nested_stars(int depth) {
  return cat(std::string(static_cast<std::size_t>(depth), '('), "[a-z ]*", [depth] {
    std::string ends;
    for (int i = 0; i < depth; ++i) ends += ")*";
    return ends;
  }());
}

class Grammars : public testing::Test {
 protected:
  using Answer = Result<GrammarService::Ref>;

  void start(GrammarService::Options options) {
    options.start = fork_grammar_helper;
    service_ = std::make_unique<GrammarService>(bytes(), options);
  }
  void SetUp() override { start({}); }

  std::future<Answer> submit(const GrammarSpec& spec, const std::string& client = {}) {
    auto answer = std::make_shared<std::promise<Answer>>();
    ticket_ = service_->submit(spec, client,
                               [answer](Answer result) { answer->set_value(std::move(result)); });
    return answer->get_future();
  }
  GrammarService::Ref compiled(const GrammarSpec& spec) { return submit(spec).get().value(); }
  Error refused(const GrammarSpec& spec) { return submit(spec).get().error(); }

  // Whether a token is allowed next, once the mask has arrived.
  static bool may(GrammarCursor& cursor, char token) {
    cursor.request_mask();
    cursor.wait(TimePoint::max());
    if (cursor.failure()) return false;
    std::array<std::uint32_t, (width + 31) / 32> mask{};
    cursor.copy_mask(mask);
    return ((mask[static_cast<unsigned char>(token) / 32] >> (token % 32)) & 1U) != 0;
  }
  // Whether a text is accepted, mask by mask.
  static bool takes(GrammarCursor& cursor, std::string_view text) {
    for (const char each : text) {
      if (!may(cursor, each)) return false;
      cursor.accept(each);
    }
    return true;
  }

  std::unique_ptr<GrammarService> service_;
  GrammarService::Ticket ticket_ = 0;
};

TEST_F(Grammars, AreFollowedInAProcessOfTheirOwn) {
  const GrammarService::Ref grammar = compiled(regex("(yes|no)!"));
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
  const GrammarService::Ref first = compiled(regex("a"));
  const GrammarService::Ref second = compiled(regex("a"));
  const GrammarService::Ref other = compiled(regex("b"));
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
  const GrammarService::Ref good = compiled(regex("ab"));
  const auto cursor = service_->begin_text(good, {});
  for (const char* const text :
       {"root ::= (root){2}", "root ::= (root){0,3}", "root ::= \"a\"\nunused ::= (unused){2}",
        "root ::= (other){2}\nother ::= (root){2}"}) {
    const auto answer = submit(ebnf(text)).get();
    EXPECT_TRUE(answer.ok() || answer.error().code() == ErrorCode::invalid_argument) << text;
  }
  EXPECT_TRUE(takes(*cursor, "ab"));
}

TEST_F(Grammars, ThatTakeLongToCompileAreEnded) {
  start({.limits = {.compile_time = std::chrono::milliseconds(300)}});
  const Error error = refused(endless());
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("takes more than 300 ms"));
  EXPECT_EQ(service_->stats().failed_time, 1U);
  EXPECT_EQ(service_->stats().helpers, 0U);
}

// Sanitizers reserve more address space than any limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Grammars, ThatTakeTooMuchMemoryAreEnded) {
  start({.limits = {.compile_time = std::chrono::minutes(2), .memory = std::uint64_t{16} << 20}});
  const Error error = refused(endless());
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("more than 16 MiB"));
}
#endif

#ifndef __SANITIZE_THREAD__  // which hands a helper its timer's signal when the mask is done
// One text that is hard to follow, among others with the same grammar whose masks are in time.
TEST_F(Grammars, ThatTakeLongForAMaskEndOneRequestAndNoOther) {
  start({.limits = {.mask_time = std::chrono::milliseconds(50),
                    .excess_time = std::chrono::milliseconds(300)}});
  const GrammarService::Ref grammar = compiled(regex(nested_stars(15) + "!"));
  const auto easy = service_->begin_text(grammar, {});
  EXPECT_TRUE(takes(*easy, "a"));
  const auto hard = service_->begin_text(grammar, {});
  while (!hard->failure()) {
    ASSERT_TRUE(may(*hard, 'a') || hard->failure());
    if (!hard->failure()) hard->accept('a');
  }
  EXPECT_THAT(hard->failure()->message(), HasSubstr("takes more than 50 ms for a token"));
  EXPECT_EQ(service_->stats().failed_time, 1U);
  EXPECT_FALSE(easy->failure());
  EXPECT_TRUE(may(*easy, '!')) << "its mask was there";
  EXPECT_FALSE(easy->accept('!'));
  EXPECT_FALSE(may(*easy, 'a')) << "it goes on in another helper";
  EXPECT_FALSE(easy->failure());
}
#endif

TEST_F(Grammars, ThatAreAbandonedStopCompiling) {
  auto answer = submit(endless());
  service_->abandon(ticket_);
  EXPECT_EQ(answer.get().error().code(), ErrorCode::cancelled);
  EXPECT_EQ(service_->stats().helpers, 0U);
  service_->abandon(ticket_);  // it has ended already
}

TEST_F(Grammars, AreAnsweredWhenTheServiceEnds) {
  auto running = submit(endless());
  auto queued = submit(regex("a"));
  service_.reset();
  EXPECT_EQ(running.get().error().code(), ErrorCode::unavailable);
  const auto late = queued.get();
  EXPECT_TRUE(late.ok() || late.error().code() == ErrorCode::unavailable);
}

// Whether a submission has not been answered yet.
bool waits(const std::future<Result<GrammarService::Ref>>& answer) {
  return answer.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

// One place, which the test frees.
TEST_F(Grammars, OfOneClientLeaveTurnsToOthers) {
  start({.limits = {.compile_time = std::chrono::hours(1)},
         .max_quick = 1,
         .quick = std::chrono::hours(1),
         .wall_time = std::chrono::hours(1)});
  std::vector<std::future<Answer>> hog;
  std::vector<GrammarService::Ticket> tickets;
  for (int i = 0; i < 6; ++i) {
    hog.push_back(submit(endless(i), "hog"));
    tickets.push_back(ticket_);
  }
  for (std::size_t turn = 0; turn < 3; ++turn) {
    // One more of the first client's has begun.
    while (service_->stats().queued > hog.size() - turn - 1) std::this_thread::yield();
    auto other = submit(regex(cat("a", turn)), "other");
    service_->abandon(tickets[turn]);
    EXPECT_TRUE(other.get().ok());
    EXPECT_EQ(std::ranges::count_if(hog, waits), hog.size() - turn - 1);
  }
}

TEST_F(Grammars, ThatAreSlowLeaveTheirPlaceAndAreBounded) {
  start({.limits = {.compile_time = std::chrono::hours(1)},
         .max_quick = 1,
         .max_slow = 2,
         .quick = std::chrono::milliseconds(1),
         .wall_time = std::chrono::hours(1)});
  std::vector<std::future<Answer>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(submit(endless(i), "hog"));
  // With more than two, the next one of the client that has the most is stopped.
  for (const std::size_t i : {2, 3}) {
    const Answer answer = slow[i].get();
    EXPECT_EQ(answer.error().code(), ErrorCode::busy);
    EXPECT_THAT(answer.error().message(), HasSubstr("too many large grammars"));
  }
  EXPECT_TRUE(waits(slow[0]) && waits(slow[1])) << "they go on";
  EXPECT_TRUE(submit(regex("a"), "other").get().ok()) << "of another client, slow or not";
}

TEST_F(Grammars, BeyondTheQueueAreRefused) {
  start({.max_quick = 1, .max_queued = 1});
  auto running = submit(endless());
  while (service_->stats().queued > 0) std::this_thread::yield();
  auto queued = submit(regex("a"));
  EXPECT_EQ(refused(regex("b")).code(), ErrorCode::busy);
  auto beside = submit(regex("a"));
  service_->abandon(1);
  EXPECT_EQ(running.get().error().code(), ErrorCode::cancelled);
  EXPECT_TRUE(queued.get().ok());
  EXPECT_TRUE(beside.get().ok()) << "the same grammar takes no second place";
}

TEST_F(Grammars, ThatNothingUsesAreKeptInBounds) {
  start({.idle_helpers = 2});
  for (const char* const text : {"a", "b", "c", "d"}) compiled(regex(text));
  // The last answer is released slightly after it was given.
  while (service_->stats().helpers > 2) std::this_thread::yield();
  EXPECT_EQ(service_->stats().helpers, 2U);
  const auto again = compiled(regex("d"));
  EXPECT_EQ(service_->stats().compiled, 4U) << "the last ones are kept";
}

TEST_F(Grammars, ThatRestMakeRoomAndGoOnLater) {
  start({.max_helpers = 1, .rest = Duration::zero()});
  const GrammarService::Ref first = compiled(regex("ab"));
  const auto cursor = service_->begin_text(first, {});
  EXPECT_TRUE(takes(*cursor, "a"));
  while (!cursor->ready()) std::this_thread::yield();
  const GrammarService::Ref second = compiled(regex("c"));
  EXPECT_EQ(service_->stats().helpers, 1U);
  EXPECT_TRUE(takes(*cursor, "b"));
  EXPECT_FALSE(cursor->failure());
}

TEST_F(Grammars, OfManyClientsHaveTheirShareOfTheQueue) {
  start({.max_quick = 1, .max_queued = 4});
  auto running = submit(endless(), "hog");
  while (service_->stats().queued > 0) std::this_thread::yield();
  const std::uint64_t first = ticket_;
  std::vector<std::future<Answer>> hog;
  for (int i = 0; i < 8; ++i) hog.push_back(submit(regex(cat("a", i)), "hog"));
  EXPECT_EQ(hog.back().get().error().code(), ErrorCode::busy);
  auto other = submit(regex("b"), "other");
  service_->abandon(first);
  EXPECT_EQ(running.get().error().code(), ErrorCode::cancelled);
  EXPECT_TRUE(other.get().ok());
}

TEST_F(Grammars, GoOnWhereTheFirstHelperHasEnded) {
  std::atomic<pid_t> first = 0;
  service_ = std::make_unique<GrammarService>(
      bytes(), GrammarService::Options{.start = [&first](int socket, int input) {
        Result<pid_t> started = fork_grammar_helper(socket, input);
        if (started.ok()) first = *started;
        return started;
      }});
  const GrammarService::Ref before = compiled(regex("a+"));
  const auto cursor = service_->begin_text(before, {});
  ::kill(first, SIGKILL);
  // Its helper ends with the first helper. A request at that moment would be blamed.
  while (service_->stats().helpers > 0) std::this_thread::yield();
  EXPECT_TRUE(submit(regex("b")).get().ok());
  EXPECT_TRUE(takes(*cursor, "aa"));
}

TEST_F(Grammars, WakeWaitingRequests) {
  std::promise<void> woken;
  std::atomic<bool> once = false;
  service_->set_wake([&] {
    if (!once.exchange(true)) woken.set_value();
  });
  const auto cursor = service_->begin_text(compiled(regex("a")), {});
  cursor->request_mask();
  woken.get_future().wait();
  EXPECT_TRUE(cursor->ready());
  service_->set_wake({});
}

}  // namespace
}  // namespace motley::engine
