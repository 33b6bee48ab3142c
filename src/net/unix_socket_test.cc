#include "net/unix_socket.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "net/byte_stream.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using ::testing::HasSubstr;

class UnixSocket : public testing::Test {
 protected:
  UnixSocket() {
    std::string pattern = (std::filesystem::temp_directory_path() / "motley-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "socket";
  }
  ~UnixSocket() override { std::filesystem::remove_all(folder_); }

  bool connects() {
    stream_protocol::socket client(context_);
    boost::system::error_code failure;
    std::ignore = client.connect(stream_protocol::endpoint(path_.native()), failure);
    return !failure;
  }
  // The server's end of a connection that the client makes.
  ByteStream stream_to(stream_protocol::socket& client) {
    Acceptor acceptor(context_);
    const auto file = SocketFile::listen(path_, acceptor);
    EXPECT_TRUE(file.ok());
    client.connect(stream_protocol::endpoint(path_.native()));
    return ByteStream(acceptor.accept());
  }
  std::string refusal(const std::filesystem::path& path) {
    Acceptor acceptor(context_);
    const auto file = SocketFile::listen(path, acceptor);
    return file.ok() ? "none" : file.error().message();
  }

  asio::io_context context_;
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(UnixSocket, IsAFileThatEndsWithTheListener) {
  {
    Acceptor acceptor(context_);
    const auto file = SocketFile::listen(path_, acceptor);
    ASSERT_TRUE(file.ok()) << file.error().message();
    EXPECT_TRUE(connects());
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocket, ReplacesWhatAnEndedProcessHasLeft) {
  {
    stream_protocol::acceptor left(context_, stream_protocol::endpoint(path_.native()));
  }
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  Acceptor acceptor(context_);
  const auto file = SocketFile::listen(path_, acceptor);
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_TRUE(connects());
}

TEST_F(UnixSocket, TakesNoPlaceThatIsInUse) {
  Acceptor acceptor(context_);
  const auto file = SocketFile::listen(path_, acceptor);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(refusal(path_), HasSubstr("another process listens there"));
  EXPECT_TRUE(connects());

  const std::filesystem::path text = folder_ / "text";
  std::ofstream(text) << "kept";
  EXPECT_THAT(refusal(text), HasSubstr("a file that is no socket"));
  EXPECT_EQ(std::filesystem::file_size(text), 4U);
  EXPECT_THAT(refusal(folder_ / "none" / "socket"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder_ / std::string(120, 'x')), HasSubstr("1 to 107 bytes"));
}

// Of servers that start at once over what another has left.
TEST_F(UnixSocket, IsOneServersOfManyThatStartTogether) {
  constexpr int servers = 8;
  for (int round = 0; round < 50; ++round) {
    {
      stream_protocol::acceptor left(context_, stream_protocol::endpoint(path_.native()));
    }
    std::vector<Acceptor> acceptors;
    for (int i = 0; i < servers; ++i) acceptors.emplace_back(context_);
    std::vector<std::optional<Result<SocketFile>>> files(servers);
    std::atomic<bool> started = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < servers; ++i)
      threads.emplace_back([&, i] {
        while (!started) std::this_thread::yield();
        files[i] = SocketFile::listen(path_, acceptors[i]);
      });
    started = true;
    threads.clear();
    EXPECT_EQ(std::ranges::count_if(files, [](const auto& file) { return file->ok(); }), 1);
    for (const auto& file : files) {
      if (file->ok()) continue;
      EXPECT_THAT(file->error().message(), HasSubstr("another process listens there"));
    }
    EXPECT_TRUE(connects());
    std::filesystem::remove(path_);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "nothing else is left";
}

TEST_F(UnixSocket, LeavesAFileThatTookItsPlace) {
  Acceptor second(context_);
  std::optional<SocketFile> later;
  {
    Acceptor first(context_);
    const auto file = SocketFile::listen(path_, first);
    ASSERT_TRUE(file.ok());
    std::filesystem::rename(path_, folder_ / "moved");
    auto made = SocketFile::listen(path_, second);
    ASSERT_TRUE(made.ok());
    later = *std::move(made);
  }
  EXPECT_TRUE(connects());
}

TEST_F(UnixSocket, SaysWhoConnects) {
  stream_protocol::socket client(context_);
  ByteStream stream = stream_to(client);
  EXPECT_EQ(stream.peer().name, cat("unix:user:", ::getuid(), ":pid:", ::getpid()));
  EXPECT_EQ(stream.peer().client, cat("user:", ::getuid()));
  EXPECT_FALSE(stream.peer().address);
}

TEST_F(UnixSocket, CarriesBytesBothWays) {
  stream_protocol::socket client(context_);
  ByteStream stream = stream_to(client);
  std::string read;
  const auto talk = [&]() -> asio::awaitable<void> {
    const auto always = [] { return true; };
    const ByteStream::Parts parts = {"one ", "two ", "three"};
    const auto [failure, written] = co_await stream.write(parts, always);
    EXPECT_FALSE(failure);
    EXPECT_EQ(written, 13U);
    EXPECT_FALSE(stream.all_taken());
    std::array<char, 64> answer{};
    const auto [end, bytes] = co_await stream.read_some(asio::buffer(answer));
    EXPECT_FALSE(end);
    read.assign(answer.data(), bytes);
  };
  client.write_some(asio::buffer("hello", 5));
  asio::co_spawn(context_, talk, asio::detached);
  context_.run();
  EXPECT_EQ(read, "hello");
  std::array<char, 64> got{};
  EXPECT_EQ(client.read_some(asio::buffer(got)), 13U);
  EXPECT_TRUE(stream.all_taken());
  client.close();
  EXPECT_TRUE(stream.write_now("lost"));
}

}  // namespace
}  // namespace motley::net
