// The nth allocation of the grammar service's thread fails, for many n: each submission is
// answered, each cursor gets its mask or an error, and what comes later is served.

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "grammar/forked_helper.h"
#include "grammar/service.h"
#include "support/allocations.h"

namespace motley::grammar {
namespace {

using motley::test::fail_allocations;
using motley::test::Spared;
using motley::test::stop_failing;
using motley::test::take_part;

constexpr int width = 257;

Tokens bytes() {
  Tokens tokens{.bytes = {}, .width = width, .end_ids = {256}};
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.emplace_back();
  return tokens;
}

class ServiceOutOfMemory : public testing::Test {
 protected:
  using Answer = std::future<Result<Service::Ref>>;

  ServiceOutOfMemory()
      : service_(
            bytes(),
            {.start = fork_helper, .max_helpers = 3, .rest = Duration::zero(), .idle_helpers = 1}) {
    log::configure({.level = log::Level::off});
    // The service's thread takes part from its first answer on, after its first helper was forked.
    std::promise<void> began;
    service_.submit({.kind = Spec::Kind::regex, .text = "z"}, "", 1,
                    [&](const Result<Service::Ref>&) {
                      take_part(true);
                      began.set_value();
                    });
    began.get_future().get();
  }
  ~ServiceOutOfMemory() override { log::configure({}); }

  Answer submit(const std::string& text, Spec::Kind kind = Spec::Kind::regex,
                Service::Ticket* ticket = nullptr) {
    auto promise = std::make_shared<std::promise<Result<Service::Ref>>>();
    const Service::Ticket made = service_.submit({.kind = kind, .text = text}, "client " + text, 1,
                                                 [promise](Result<Service::Ref> grammar) {
                                                   const Spared spared;
                                                   promise->set_value(std::move(grammar));
                                                 });
    if (ticket != nullptr) *ticket = made;
    return promise->get_future();
  }

  // Cursors of what was compiled; some at the same position.
  std::vector<std::unique_ptr<Cursor>> begin_texts(const Service::Ref& grammar) {
    std::vector<std::unique_ptr<Cursor>> cursors;
    cursors.push_back(service_.begin_text(grammar, {}));
    cursors.push_back(service_.begin_text(grammar, {}));
    cursors.push_back(cursors.back()->fork());
    return cursors;
  }

  // Returns false if the text has failed.
  static bool follow(Cursor& cursor) {
    cursor.request_mask();
    cursor.wait(std::chrono::steady_clock::now() + std::chrono::hours(1));
    EXPECT_TRUE(cursor.ready());
    if (const auto failure = cursor.failure()) {
      EXPECT_EQ(failure->code(), ErrorCode::out_of_memory) << failure->message();
      return false;
    }
    std::array<std::uint32_t, (width + 31) / 32> mask{};
    cursor.copy_mask(mask);
    EXPECT_EQ(mask['x' / 32] >> ('x' % 32) & 1, 1U);
    cursor.accept('x');
    return true;
  }

  // Several grammars at once: one that can't be compiled, and one that is abandoned.
  void play(const std::string& round) {
    Service::Ticket left = 0;
    std::array<Answer, 4> answers = {submit("[a-z]*" + round), submit("[a-z]*b"),
                                     submit("root ::= (root){2}", Spec::Kind::ebnf),
                                     submit("[x-z]{1,90}" + round, Spec::Kind::regex, &left)};
    service_.abandon(left);
    std::vector<std::unique_ptr<Cursor>> cursors;
    for (Answer& answer : answers) {
      const Result<Service::Ref> grammar = answer.get();
      if (!grammar.ok()) continue;
      for (auto& cursor : begin_texts(*grammar)) cursors.push_back(std::move(cursor));
    }
    for (int step = 0; step < 3; ++step) {
      std::erase_if(cursors, [](const auto& cursor) { return !follow(*cursor); });
    }
  }

  Service service_;
};

TEST_F(ServiceOutOfMemory, EveryoneIsAnswered) {
  for (int nth = 1; nth <= 120; ++nth) {
    for (const int count : {1, 3}) {
      fail_allocations(nth, count);
      play(std::to_string(nth));
      EXPECT_GT(stop_failing(), 0) << nth;
    }
  }
  EXPECT_TRUE(submit("q").get().ok());
  EXPECT_EQ(service_.stats().queued, 0U);
}

}  // namespace
}  // namespace motley::grammar
