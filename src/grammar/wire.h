#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// The protocol between the server and its grammar helpers over a socket: frames of a header and a
// body. Both ends are the same program, so numbers are in native form.
namespace motley::grammar::wire {

enum class Kind : std::uint32_t {
  // To a helper:
  compile,  // Spec: the first frame, once
  open,     // end ids, tokens: begins a session behind these tokens
  advance,  // token: takes it
  close,    // ends a session
  // From a helper, in the order of the requests:
  compiled,  // bytes of the compiled grammar
  refused,   // an Error: answers compile
  mask,      // words: answers open and advance
  rejected,  // answers advance: the token does not follow
  exceeded,  // Limit: the helper ends, because of what it was about
};

enum class Limit : std::uint8_t { time, memory };

struct Head {
  Kind kind = Kind::close;
  std::uint32_t bytes = 0;  // behind the head
  std::uint64_t session = 0;
};

struct Frame {
  Kind kind = Kind::close;
  std::uint64_t session = 0;
  std::string body;
};

// Appends values to a text.
class Writer {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void number(const T& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  template <class T>
  void list(std::span<const T> values) {
    number(static_cast<std::uint64_t>(values.size()));
    text_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

// Reads values back. Missing values read as empty or zero, and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  template <class T>
  std::vector<T> list() {
    const auto count = number<std::uint64_t>();
    if (count > text_.size() / sizeof(T)) ok_ = false;
    const std::string_view bytes = ok_ ? take(count * sizeof(T)) : std::string_view();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // Whether all values were present.
  bool ok() const { return ok_; }

 private:
  std::string_view take(std::uint64_t bytes) {
    if (bytes > text_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return taken;
  }

  std::string_view text_;
  bool ok_ = true;
};

inline std::string frame(Kind kind, std::uint64_t session, std::string_view body = {}) {
  const Head head{
      .kind = kind, .bytes = static_cast<std::uint32_t>(body.size()), .session = session};
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  return text.append(body);
}

// Removes the first frame from the received bytes; nothing if it is incomplete.
inline std::optional<Frame> take_frame(std::string& come) {
  Head head;
  if (come.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, come.data(), sizeof head);
  if (come.size() - sizeof head < head.bytes) return std::nullopt;
  Frame whole{
      .kind = head.kind, .session = head.session, .body = come.substr(sizeof head, head.bytes)};
  come.erase(0, sizeof head + head.bytes);
  return whole;
}

}  // namespace motley::grammar::wire
