#include "text/jinja/runtime.h"

#include "base/cat.h"
#include "text/jinja/values/characters.h"

namespace motley::text::jinja {
namespace {

constexpr std::size_t max_message_bytes = 4096;

Error beyond(std::string what, std::string_view limit) {
  return Error(ErrorCode::too_long, std::move(what), "",
               cat("a rendering may take ", limit, "; send less, or mend the template"));
}

}  // namespace

std::string_view shortened(std::string_view text) {
  if (text.size() <= max_message_bytes) return text;
  return text.substr(0, character_before(text, max_message_bytes));
}

Error failure(std::string what) {
  if (what.size() > max_message_bytes) {
    what.resize(shortened(what).size());
    what += "...";
  }
  return Error(ErrorCode::invalid_argument, std::move(what));
}

Result<void> Runtime::step(std::size_t count) {
  steps_ = count > SIZE_MAX - steps_ ? SIZE_MAX : steps_ + count;
  if (steps_ > static_cast<std::size_t>(limits_.steps))
    return beyond("the chat template does not come to an end", cat(limits_.steps, " steps"));
  return reserve(0);
}

Result<void> Runtime::reserve(std::size_t bytes) {
  if (bytes > limits_.memory_bytes || heap_.used() + held_ > limits_.memory_bytes - bytes)
    return beyond("the chat template needs too much memory",
                  cat(limits_.memory_bytes, " bytes of memory"));
  most_ = std::max(most_, heap_.used() + held_ + bytes);
  return {};
}

Result<void> Runtime::reserve(std::size_t count, std::size_t bytes) {
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) total = SIZE_MAX;
  return reserve(total);
}

Result<void> Runtime::hold(std::size_t bytes) {
  MOTLEY_TRY_VOID(reserve(bytes));
  held_ += bytes;
  return {};
}

Result<Depth> Runtime::deeper() {
  if (depth_ >= limits_.depth)
    return beyond("the chat template nests too deeply", cat(limits_.depth, " levels"));
  return Depth(depth_);
}

Value Runtime::text(std::string_view text, bool untrusted) {
  MarkedText marked;
  marked.append(text, untrusted);
  return heap_.string(std::move(marked));
}

Value Runtime::list(std::vector<Value> items) {
  auto& made = heap_.make<Sequence>();
  made.items = std::move(items);
  heap_.count(made.items.capacity() * sizeof(Value));
  return Value::object(Kind::list, &made);
}

Value Runtime::tuple(std::vector<Value> items) {
  const Value made = list(std::move(items));
  return Value::object(Kind::tuple, &made.sequence());
}

}  // namespace motley::text::jinja
