#include "grammar/helper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <limits>
#include <new>
#include <optional>
#include <poll.h>
#include <span>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <tuple>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "grammar/descriptor_message.h"
#include "grammar/wire.h"

namespace motley::grammar {
namespace {

using wire::Frame;
using wire::Kind;

// The interval of checks during work, and the time after which work gets lower priority.
constexpr suseconds_t tick_us = 20'000;
constexpr std::int64_t slow_ns = 200'000'000;
constexpr int slow_niceness = 10;

std::int64_t nanoseconds(std::chrono::milliseconds time) { return time.count() * 1'000'000; }

// State of the timer's signal handler; the process does one thing at a time.
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
struct Watched {
  int socket = -1;
  ProcessorClock clock = processor_time_ns;
  std::int64_t slow_at = never;
  std::int64_t ends_at = never;
  std::uint64_t session = 0;
};
Watched watched;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

// The last message of a helper. Only async-signal-safe calls.
[[noreturn]] void exceed(wire::Limit limit) {
  const wire::Head head{.kind = Kind::exceeded, .bytes = sizeof limit, .session = watched.session};
  std::array<char, sizeof head + sizeof limit> last{};
  std::memcpy(last.data(), &head, sizeof head);
  std::memcpy(last.data() + sizeof head, &limit, sizeof limit);
  std::ignore = ::send(watched.socket, last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::_exit(1);
}

void look_at_work(int /*signal*/) {
  const std::int64_t now = watched.clock();
  if (now >= watched.ends_at) exceed(wire::Limit::time);
  if (now >= watched.slow_at) std::ignore = ::setpriority(PRIO_PROCESS, 0, slow_niceness);
  // The server is gone.
  pollfd server{.fd = watched.socket, .events = POLLRDHUP, .revents = 0};
  if (::poll(&server, 1, 0) > 0 && (server.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0)
    ::_exit(0);
}

// Limits the work of a session until finish(), or the end of its lifetime.
class BoundedWork {
 public:
  BoundedWork(std::uint64_t session, std::int64_t limit_ns)
      : begin_(watched.clock()), limit_ns_(limit_ns) {
    watched.session = session;
    watched.slow_at = begin_ + slow_ns;
    watched.ends_at = begin_ + limit_ns;
    set_timer(tick_us);
  }
  ~BoundedWork() { stop_watching(); }
  BoundedWork(const BoundedWork&) = delete;
  BoundedWork& operator=(const BoundedWork&) = delete;

  // The time that the work took. If that is beyond the limit, the process ends, whether a check
  // fell into the work or not.
  std::int64_t finish() {
    stop_watching();
    const std::int64_t used_ns = watched.clock() - begin_;
    if (used_ns >= limit_ns_) exceed(wire::Limit::time);
    return used_ns;
  }

 private:
  static void set_timer(suseconds_t every) {
    const itimerval timer{.it_interval = {.tv_sec = 0, .tv_usec = every},
                          .it_value = {.tv_sec = 0, .tv_usec = every}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
  }
  static void stop_watching() {
    set_timer(0);
    // For a signal that is handled late.
    watched.slow_at = never;
    watched.ends_at = never;
  }

  std::int64_t begin_;
  std::int64_t limit_ns_;
};

// The helper of one grammar.
class Helper {
 public:
  Helper(int socket, const Vocabulary& vocabulary, const Limits& limits)
      : socket_(socket), vocabulary_(vocabulary), limits_(limits) {
    watched.socket = socket;
    struct sigaction action{};
    action.sa_handler = look_at_work;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, nullptr);
  }

  // Runs until the server does not need it any more.
  void serve() {
    try {
      std::optional<Frame> frame = next();
      if (!frame || !compile(*frame)) return;
      while ((frame = next())) {
        if (frame->kind == Kind::open) open(*frame);
        if (frame->kind == Kind::advance) advance(*frame);
        if (frame->kind == Kind::close) sessions_.erase(frame->session);
      }
    } catch (const std::bad_alloc&) {
      exceed(wire::Limit::memory);
    }
  }

 private:
  std::optional<Frame> next() {
    std::array<char, 65536> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    while (true) {
      if (std::optional<Frame> frame = wire::take_frame(come_)) return frame;
      const ssize_t bytes = ::recv(socket_, piece.data(), piece.size(), 0);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return std::nullopt;
      come_.append(piece.data(), static_cast<std::size_t>(bytes));
    }
  }

  void send(Kind kind, std::uint64_t session, std::string_view body) {
    const std::string frame = wire::frame(kind, session, body);
    std::string_view rest = frame;
    while (!rest.empty()) {
      const ssize_t bytes = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) ::_exit(0);
      rest.remove_prefix(static_cast<std::size_t>(bytes));
    }
  }

  bool compile(const Frame& frame) {
    wire::Reader reader(frame.body);
    Spec spec{.kind = reader.number<Spec::Kind>()};
    spec.any_whitespace = reader.number<bool>();
    spec.text = reader.text();
    std::optional<Result<Grammar>> grammar;
    {
      BoundedWork work(frame.session, nanoseconds(limits_.compile_time));
      grammar.emplace(Grammar::compile(spec, vocabulary_));
      work.finish();
    }
    // A grammar that was slow to compile may be fast to follow. Fails without privileges.
    std::ignore = ::setpriority(PRIO_PROCESS, 0, 0);
    wire::Writer answer;
    if (!grammar->ok()) {
      const Error& error = grammar->error();
      answer.number(error.code());
      answer.text(error.what());
      answer.text(error.where());
      answer.text(error.fix());
      send(Kind::refused, frame.session, std::move(answer).take());
      return false;
    }
    grammar_ = **grammar;
    answer.number(static_cast<std::uint64_t>(grammar_->bytes()));
    send(Kind::compiled, frame.session, std::move(answer).take());
    return true;
  }

  void open(const Frame& frame) {
    wire::Reader reader(frame.body);
    const auto end_ids = reader.list<std::int32_t>();
    const auto tokens = reader.list<std::int32_t>();
    sessions_.erase(frame.session);
    Position& state = sessions_.emplace(frame.session, Position(*grammar_, end_ids)).first->second;
    follow(state, frame.session, tokens);
  }

  void advance(const Frame& frame) {
    wire::Reader reader(frame.body);
    const auto token = reader.number<std::int32_t>();
    const auto session = sessions_.find(frame.session);
    if (session == sessions_.end()) return send(Kind::rejected, frame.session, {});
    follow(session->second, frame.session, {&token, 1});
  }

  // Takes the tokens, and answers with the mask of the next one.
  void follow(Position& state, std::uint64_t id, std::span<const std::int32_t> tokens) {
    const std::int64_t allowed =
        nanoseconds(limits_.token_time) * static_cast<std::int64_t>(1 + tokens.size());
    const std::int64_t excess =
        std::min(nanoseconds(limits_.mask_time), nanoseconds(limits_.excess_time) - excess_ns_);
    BoundedWork work(id, allowed + excess);
    for (const std::int32_t token : tokens) {
      if (!state.accept(token)) return send(Kind::rejected, id, {});
    }
    mask_.assign(static_cast<std::size_t>(vocabulary_.mask_words()), 0);
    if (!state.ended()) state.fill_mask(mask_);
    excess_ns_ = std::max<std::int64_t>(0, excess_ns_ + work.finish() - allowed);
    send(Kind::mask, id,
         {reinterpret_cast<const char*>(mask_.data()), mask_.size() * sizeof mask_[0]});
  }

  int socket_;
  const Vocabulary& vocabulary_;
  Limits limits_;
  std::optional<Grammar> grammar_;
  std::unordered_map<std::uint64_t, Position> sessions_;
  std::int64_t excess_ns_ = 0;
  std::vector<std::uint32_t> mask_;
  std::string come_;
};

// Limits memory to this many bytes beyond the current use, and forbids files.
void limit_memory(std::uint64_t bytes) {
  const auto set = [](auto resource, rlim_t most) {
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    ::setrlimit(resource, &limit);
  };
  set(RLIMIT_CORE, 0);
  set(RLIMIT_FSIZE, 0);
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  unsigned long pages = 0;
  const bool known = file != nullptr && std::fscanf(file, "%lu", &pages) == 1;
  if (file != nullptr) std::fclose(file);
  const std::uint64_t now = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // Sanitizers reserve far more address space than they use.
  constexpr std::uint64_t sanitized = std::uint64_t{1} << 40;
  if (known && now < sanitized) set(RLIMIT_AS, now + bytes);
}

void refuse_compiling(int socket, const Error& error) {
  wire::Writer answer;
  answer.number(error.code());
  answer.text(error.what());
  answer.text(error.where());
  answer.text(error.fix());
  const std::string frame = wire::frame(Kind::refused, 0, std::move(answer).take());
  std::ignore = ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL);
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 65536> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  while (true) {
    const ssize_t bytes =
        ::pread(file, piece.data(), piece.size(), static_cast<off_t>(text.size()));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(bytes));
  }
}

}  // namespace

std::int64_t processor_time_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
}

std::string HelperInput::write() const {
  wire::Writer writer;
  writer.number(limits);
  writer.number(tokens.width);
  writer.list(std::span(tokens.end_ids));
  writer.number(static_cast<std::uint64_t>(tokens.bytes.size()));
  for (const std::string& each : tokens.bytes) writer.text(each);
  return std::move(writer).take();
}

HelperInput HelperInput::read(std::string_view text) {
  wire::Reader reader(text);
  HelperInput input;
  input.limits = reader.number<Limits>();
  input.tokens.width = reader.number<std::int64_t>();
  input.tokens.end_ids = reader.list<std::int32_t>();
  const auto count = reader.number<std::uint64_t>();
  for (std::uint64_t i = 0; i < count && reader.ok(); ++i)
    input.tokens.bytes.push_back(reader.text());
  return input;
}

int run_helper(int socket, int input, ProcessorClock clock) {
  watched.clock = clock;
  // Helpers end when the server does; signals to the process group are handled by the server.
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(each, SIG_IGN);
  std::signal(SIGCHLD, SIG_IGN);
  ::prctl(PR_SET_NAME, "motley-grammar");
  // If memory runs out, helpers are killed first.
  if (const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
    std::ignore = ::write(file, "1000", 4);
    ::close(file);
  }
  const HelperInput given = HelperInput::read(read_all(input));
  ::close(input);
  const Result<Vocabulary> vocabulary = Vocabulary::create(given.tokens);
  while (const std::optional<int> descriptor = receive_descriptor(socket)) {
    const pid_t child = ::fork();
    if (child == 0) {
      // If the first helper is killed with the server, all helpers end.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(socket);
      limit_memory(given.limits.memory);
      if (vocabulary.ok()) {
        Helper(*descriptor, *vocabulary, given.limits).serve();
      } else {
        refuse_compiling(*descriptor, vocabulary.error());
      }
      ::_exit(0);
    }
    if (child < 0)
      refuse_compiling(*descriptor, Error(ErrorCode::unavailable, "no process left for a grammar",
                                          "grammar", "try again later"));
    ::close(*descriptor);
  }
  return 0;
}

}  // namespace motley::grammar
