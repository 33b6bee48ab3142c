#include "server/on_workers.h"

#include <future>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace motley::server {
namespace {

namespace asio = boost::asio;

// An exchange of which only the client's departure matters.
class LeavingExchange final : public Exchange {
 public:
  explicit LeavingExchange(asio::io_context& context) : context_(context) {}

  void leave() {
    gone_ = true;
    if (notice_) notice_();
  }

  const HttpRequest& request() const override { return request_; }
  asio::any_io_executor executor() override { return context_.get_executor(); }
  asio::awaitable<Result<std::string_view>> next_body_piece() override {
    co_return std::string_view();
  }
  void drop_body() override {}
  Result<void> charge_body(std::size_t) override { return {}; }
  void replace_body(std::string) override {}
  void add_header(std::string, std::string) override {}
  void log_quietly() override {}
  void log_field(LogField) override {}
  void log_error(const HttpResponse&) override {}
  void log_first_token() override {}
  int status() const override { return 0; }
  asio::awaitable<void> send(HttpResponse) override { co_return; }
  asio::awaitable<void> send_pieces(HttpResponse, PieceSource) override { co_return; }
  asio::awaitable<void> begin_stream(HttpResponse) override { co_return; }
  asio::awaitable<void> write(std::string) override { co_return; }
  asio::awaitable<void> end_stream() override { co_return; }
  std::size_t max_backlog_bytes() const override { return 0; }
  void cut(std::string_view) override {}
  bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notice) override { notice_ = std::move(notice); }

 private:
  asio::io_context& context_;
  HttpRequest request_;
  bool gone_ = false;
  std::function<void()> notice_;
};

class OnWorkers : public testing::Test {
 protected:
  OnWorkers() {
    workers_.submit({"holder"}, 1, [this] {
      holds_.set_value();
      held_.get_future().wait();
    });
    EXPECT_EQ(holds_.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready)
        << "the worker did not take its first task";  // else the worker might choose another task
                                                      // first
  }

  // What comes of work that is queued while the only worker is held.
  Result<int> result_of(bool leaves) {
    std::optional<Result<int>> result;
    std::atomic<bool> cancelled = false;
    const auto work = [this]() -> Result<int> { return ++works_; };
    const auto run = [&]() -> asio::awaitable<void> {
      result = co_await on_workers(workers_, exchange_, cancelled, work);
    };
    asio::co_spawn(context_, run(), asio::detached);
    context_.poll();  // it waits for the worker
    EXPECT_FALSE(result.has_value());
    if (leaves) exchange_.leave();
    held_.set_value();
    context_.restart();
    context_.run_for(std::chrono::seconds(60));
    return result.value_or(Error(ErrorCode::timed_out, "no result within a minute"));
  }

  asio::io_context context_;
  LeavingExchange exchange_{context_};
  std::promise<void> holds_;
  std::promise<void> held_;
  int works_ = 0;
  FairWorkers workers_{{.threads = 1}};  // last, so that it is destroyed first
};

TEST_F(OnWorkers, WorkOfAClientThatStaysIsDone) { EXPECT_EQ(result_of(false).value(), 1); }

TEST_F(OnWorkers, WorkOfAClientThatHasGoneIsNotDone) {
  const Result<int> result = result_of(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::cancelled) << result.error().message();
  EXPECT_EQ(works_, 0);
}

}  // namespace
}  // namespace motley::server
