// What the log's line http.request says of a generation.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/log.h"
#include "base/test_waits.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

// Lines about requests; there must be no server yet, nor any more.
class RequestLines {
 public:
  RequestLines() {
    log::configure({.level = log::Level::info, .sink = [this](std::string_view line) {
                      if (line.find("http.request") == line.npos) return;
                      changed_.change([&] { lines_.emplace_back(line); });
                    }});
  }
  ~RequestLines() { log::configure({}); }
  RequestLines(const RequestLines&) = delete;
  RequestLines& operator=(const RequestLines&) = delete;

  // The next one: of each request there is one, after its answer.
  std::string next() {
    changed_.wait("a request is logged", [this] { return lines_.size() > read_; });
    return changed_.look([this] { return lines_[read_++]; });
  }

 private:
  test::Monitor changed_;
  std::vector<std::string> lines_;
  std::size_t read_ = 0;
};

class RequestLog : public testing::Test {
 protected:
  static std::string completion(std::string_view fields = "") {
    return post("/v1/completions",
                cat(R"({"prompt": "x")", fields.empty() ? "" : ", ", fields, "}"));
  }

  RequestLines lines_;
  TestServer server_;
};

TEST_F(RequestLog, SaysThatAnAnswerStoppedOrReachedItsLength) {
  for (const std::string_view stream : {R"("stream": false)", R"("stream": true)"}) {
    server_.engine().say("one two<|im_end|>");
    EXPECT_EQ(server_.ask(completion(stream)).status, 200);
    const std::string stopped = lines_.next();
    EXPECT_THAT(stopped, HasSubstr(" end=stop\n")) << stream;
    EXPECT_THAT(stopped, HasSubstr(" model=base ")) << stream;
    EXPECT_EQ(server_.ask(completion(cat(stream, R"(, "max_tokens": 1)"))).status, 200);
    EXPECT_THAT(lines_.next(), HasSubstr(" completion_tokens=1 end=length\n")) << stream;
  }
}

TEST_F(RequestLog, SaysThatTheClientWentAway) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  {
    Client client(server_.port());
    client.send(completion(R"("stream": true)"));
    client.receive_some();
    client.reset();
  }
  server_.engine().wait_for_ended(1);
  const std::string left = lines_.next();
  EXPECT_THAT(left, HasSubstr(" end=cancelled\n"));
  EXPECT_THAT(left, HasSubstr(" gone=true "));
}

TEST_F(RequestLog, SaysThatTheEngineFailed) {
  std::size_t submitted = 0;
  for (const std::string_view stream : {R"("stream": false)", R"("stream": true)"}) {
    server_.engine().say("one two three");
    server_.engine().hold_after(1);
    Client client(server_.port());
    client.send(completion(stream));
    server_.engine().wait_for_submitted(++submitted);
    if (stream.find("true") != stream.npos) client.receive_some();
    server_.engine().fail_running(Error(ErrorCode::internal, "the device is lost"));
    const std::string failed = lines_.next();
    EXPECT_THAT(failed, HasSubstr(" end=error\n")) << stream;
    EXPECT_THAT(failed, HasSubstr(" error=internal ")) << stream;
  }
}

}  // namespace
}  // namespace motley::server
