#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"

namespace motley {

// A value or an error. Reading the value of an error aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T whole) : state_(std::in_place_index<0>, std::move(whole)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return require(), *std::get_if<0>(&state_); }
  const T& value() const& { return require(), *std::get_if<0>(&state_); }
  // By value, so that `for (auto& x : f().value())` iterates over something that lives.
  T value() && { return require(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return require_error(), *std::get_if<1>(&state_); }
  Error&& error() && { return require_error(), std::move(*std::get_if<1>(&state_)); }

 private:
  void require() const {
    if (!ok()) [[unlikely]]
      check_failed(__FILE__, __LINE__, "result.ok()", std::get_if<1>(&state_)->message());
  }
  void require_error() const { MOTLEY_CHECK(!ok(), "the error of a result that has a value"); }

  std::variant<T, Error> state_;
};

// Success or an error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Aborts if this is an error.
  void value() const {
    if (!ok()) [[unlikely]]
      check_failed(__FILE__, __LINE__, "result.ok()", error_->message());
  }
  const Error& error() const& { return require_error(), *error_; }
  Error&& error() && { return require_error(), std::move(*error_); }

 private:
  void require_error() const { MOTLEY_CHECK(!ok(), "the error of a result that is done"); }

  std::optional<Error> error_;
};

}  // namespace motley

#define MOTLEY_CONCAT_INNER(a, b) a##b
#define MOTLEY_CONCAT(a, b) MOTLEY_CONCAT_INNER(a, b)

// MOTLEY_TRY(auto file, MappedFile::open(path)): the value, or return the error to the caller.
#define MOTLEY_TRY(declaration, ...)                                   \
  auto MOTLEY_CONCAT(motley_result_, __LINE__) = (__VA_ARGS__);        \
  if (!MOTLEY_CONCAT(motley_result_, __LINE__).ok()) [[unlikely]]      \
    return std::move(MOTLEY_CONCAT(motley_result_, __LINE__)).error(); \
  declaration = std::move(MOTLEY_CONCAT(motley_result_, __LINE__)).value()

// The same for a Result<void>.
#define MOTLEY_TRY_VOID(...)                   \
  do {                                         \
    auto motley_result = (__VA_ARGS__);        \
    if (!motley_result.ok()) [[unlikely]]      \
      return std::move(motley_result).error(); \
  } while (false)
