#include "cli/bench/load/turns.h"

#include <future>
#include <memory>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "cli/bench/columns.h"
#include "cli/bench/load/report.h"

namespace motley::cli {
namespace {

// Takes one answer. Observes events when they are made, as no queue would show them.
class TurnSink final : public engine::EventSink {
 public:
  explicit TurnSink(const Clock& clock) : clock_(&clock) {}

  void take(engine::Event event) override {
    if (const auto* const start = std::get_if<engine::StartEvent>(&event)) {
      cached_tokens_ = start->cached_tokens;
    } else if (const auto* const token = std::get_if<engine::TokenEvent>(&event)) {
      if (tokens_.empty()) first_ = clock_->now();
      tokens_.push_back(token->id);
    } else if (auto* const error = std::get_if<Error>(&event)) {
      ended_.set_value(std::move(*error));
    } else if (engine::is_last(event)) {
      ended_.set_value({});
    }
  }

  Result<void> wait() { return ended_.get_future().get(); }
  // After wait().
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::int64_t cached_tokens() const { return cached_tokens_; }
  TimePoint first() const { return first_; }

 private:
  const Clock* clock_;
  std::promise<Result<void>> ended_;
  std::vector<std::int32_t> tokens_;
  std::int64_t cached_tokens_ = 0;
  TimePoint first_;
};

// Runs a turn; the prompt has its answer afterwards.
Result<void> run_turn(engine::Engine& engine, std::vector<std::int32_t>& prompt,
                      std::int64_t max_tokens, const Clock& clock, Turn& turn) {
  const auto sink = std::make_shared<TurnSink>(clock);
  engine::Request request{.tokens = prompt,
                          .sampling = {.temperature = 0, .ignore_eos = true},
                          .max_tokens = max_tokens};
  const TimePoint start = clock.now();
  MOTLEY_TRY_VOID(engine.submit(std::move(request), sink));
  MOTLEY_TRY_VOID(sink->wait());
  turn.prompt_tokens.push_back(static_cast<double>(prompt.size()));
  turn.cached_tokens.push_back(static_cast<double>(sink->cached_tokens()));
  turn.first_token.push_back(seconds(sink->first() - start));
  prompt.insert(prompt.end(), sink->tokens().begin(), sink->tokens().end());
  return {};
}

// Medians, and what all conversations took to the first token.
struct TurnSummary {
  double prompt_tokens = 0;
  double cached_tokens = 0;
  Percentiles first_token;
  double of_first_turn = 0;  // its median over that of the first turn
};

std::vector<TurnSummary> summarize(const std::vector<Turn>& turns) {
  std::vector<TurnSummary> all;
  for (const Turn& turn : turns) {
    TurnSummary& summary = all.emplace_back();
    summary.prompt_tokens = percentiles(turn.prompt_tokens).p50;
    summary.cached_tokens = percentiles(turn.cached_tokens).p50;
    summary.first_token = percentiles(turn.first_token);
    summary.of_first_turn = summary.first_token.p50 / all.front().first_token.p50;
  }
  return all;
}

}  // namespace

Result<std::vector<Turn>> run_turns(engine::Engine& engine, std::int64_t vocabulary,
                                    const TurnsShape& shape, const Clock& clock) {
  LoadPlan openings(shape.first, 0, vocabulary);
  LoadShape more = shape.first;
  more.prompt = {.least = shape.new_tokens, .most = shape.new_tokens};
  ++more.seed;
  LoadPlan rests(more, 0, vocabulary);
  std::vector<Turn> turns(static_cast<std::size_t>(shape.turns));
  for (std::int64_t i = 0; i < shape.conversations; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      const PlannedRequest next = turn == 0 ? openings.next() : rests.next();
      prompt.insert(prompt.end(), next.tokens.begin(), next.tokens.end());
      MOTLEY_TRY_VOID(run_turn(engine, prompt, next.max_tokens, clock, turns[turn]));
    }
  }
  return turns;
}

std::string turns_table(const std::vector<Turn>& turns) {
  std::string table = "turn  prompt  cached   first token, ms: p50     p90     max   of turn 1's\n";
  std::int64_t number = 0;
  const auto milliseconds = [](double of) { return decimals(of * 1e3, 2); };
  for (const TurnSummary& turn : summarize(turns)) {
    table += cat(padded(cat(++number), 4), padded(decimals(turn.prompt_tokens, 0), 8),
                 padded(decimals(turn.cached_tokens, 0), 8),
                 padded(milliseconds(turn.first_token.p50), 23),
                 padded(milliseconds(turn.first_token.p90), 8),
                 padded(milliseconds(turn.first_token.most), 8),
                 padded(decimals(turn.of_first_turn, 3), 14), "\n");
  }
  return table;
}

std::string turns_json(const std::vector<Turn>& turns) {
  std::string lines;
  std::int64_t number = 0;
  for (const TurnSummary& turn : summarize(turns)) {
    json::Object object;
    object.add("turn", ++number);
    object.add("conversations", static_cast<std::int64_t>(turns.front().first_token.size()));
    object.add("prompt_tokens", static_cast<std::int64_t>(turn.prompt_tokens));
    object.add("cached_tokens", static_cast<std::int64_t>(turn.cached_tokens));
    object.add("first_token_seconds", to_json(turn.first_token));
    object.add("of_first_turn", turn.of_first_turn);
    lines += json::write(object) + "\n";
  }
  return lines;
}

}  // namespace motley::cli
