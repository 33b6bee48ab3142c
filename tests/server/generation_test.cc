// The engine's part of a request, over an exchange of the test's own.

#include "server/generation.h"

#include <exception>
#include <new>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// Memory ends where the answer begins.
class ExchangeWithoutMemory final : public Exchange {
 public:
  explicit ExchangeWithoutMemory(const asio::any_io_executor& executor) : executor_(executor) {}

  const HttpRequest& request() const override { return request_; }
  asio::any_io_executor executor() override { return executor_; }
  asio::awaitable<Result<std::string_view>> next_body_piece() override {
    co_return std::string_view();
  }
  void drop_body() override {}
  Result<void> charge_body(std::size_t /*bytes*/) override { return {}; }
  void replace_body(std::string /*body*/) override {}
  void add_header(std::string, std::string) override {}
  void log_quietly() override {}
  void log_field(LogField) override {}
  void log_error(const HttpResponse&) override {}
  void log_first_token() override {}
  int status() const override { return 0; }
  asio::awaitable<void> send(HttpResponse) override { throw std::bad_alloc(); }
  asio::awaitable<void> send_pieces(HttpResponse, PieceSource) override { throw std::bad_alloc(); }
  asio::awaitable<void> begin_stream(HttpResponse) override { throw std::bad_alloc(); }
  asio::awaitable<void> write(std::string) override { throw std::bad_alloc(); }
  asio::awaitable<void> end_stream() override { throw std::bad_alloc(); }
  std::size_t max_backlog_bytes() const override { return 1 << 20; }
  void cut(std::string_view) override {}
  bool gone() const override { return false; }
  void on_gone(std::function<void()> notice) override { notice_ = std::move(notice); }

  bool would_notice() const { return notice_ != nullptr; }

 private:
  asio::any_io_executor executor_;
  HttpRequest request_;
  std::function<void()> notice_;
};

TEST(Generation, ThatFindsNoMemoryIsCancelledAndHearsNoMoreOfItsClient) {
  const TemporaryFolder folder;
  const text::ModelText text = make_model_text(folder.path(), qwen_tokenizer());
  asio::io_context context;
  FakeEngine engine(text.tokenizer());
  engine.say("some words");
  engine.hold_after(1);
  const GenerationPlanner planner(text, {.base = "base",
                                         .vocabulary = text.tokenizer().size(),
                                         .prompts = {.max_sequence_tokens = 1000}});
  GenerationPlan plan =
      planner.completion(json::parse(R"({"prompt": "x", "stream": true})", "body").value()).value();
  ExchangeWithoutMemory exchange(context.get_executor());
  MemoryBudget budget(1 << 20, 1 << 19);
  RequestsUnderWay under_way(engine);
  RequestsUnderWay::Entry entry(under_way, "id", "a");
  std::exception_ptr thrown;
  asio::co_spawn(context,
                 run_generation(exchange, engine, std::move(plan), "base", entry,
                                MemoryBudget::Share(budget, "a")),
                 [&](const std::exception_ptr& why, const engine::Usage&) { thrown = why; });
  context.run();
  EXPECT_THROW(std::rethrow_exception(thrown), std::bad_alloc);
  EXPECT_FALSE(exchange.would_notice());
  engine.wait_for_ended(1);
  EXPECT_EQ(engine.cancelled(), 1);
}

}  // namespace
}  // namespace motley::server
