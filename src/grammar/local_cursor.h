#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "grammar/cursor.h"
#include "grammar/grammar.h"

// For tests: a cursor that follows its grammar in this process.
namespace motley::grammar {

class LocalCursor final : public Cursor {
 public:
  explicit LocalCursor(Position state) : state_(std::move(state)) {}

  std::unique_ptr<Cursor> fork() const override {
    return std::make_unique<LocalCursor>(state_.fork());
  }
  void request_mask() override {}
  bool ready() const override { return true; }
  void wait(TimePoint /*until*/) const override {}
  std::optional<Error> failure() const override { return std::nullopt; }
  void copy_mask(std::span<std::uint32_t> words) const override {
    Position state = state_.fork();
    state.fill_mask(words);
  }
  bool accept(std::int32_t token) override {
    MOTLEY_CHECK(state_.accept(token), "a token that the mask allows");
    return state_.ended();
  }

 private:
  Position state_;
};

}  // namespace motley::grammar
