#include "runner/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/cat.h"
#include "base/json/json.h"
#include "kernels/recurrence.h"
#include "ops/logits.h"

namespace motley::runner {
namespace {

// A line that is being scored.
struct Running {
  std::size_t line = 0;
  std::vector<std::int32_t> pages;
  std::int64_t length = 0;  // tokens that have been computed
  std::int64_t taken = 0;   // tokens that the current step takes
  std::int32_t slot = 0;    // of its state
  std::int64_t anchor = 0;  // where the state stands
};

std::string scored_with(const ScoreLine& line) {
  if (line.adapters.empty()) return "base";
  std::vector<std::string> names;
  for (const lora::ScaledAdapter& adapter : line.adapters) names.push_back(adapter.name);
  return join(names, " + ");
}

class Scorer {
 public:
  Scorer(Runner& runner, std::span<const ScoreLine> lines, std::span<const lora::Mix> mixes,
         const ScoreOptions& options)
      : runner_(&runner), lines_(lines), mixes_(mixes), options_(options), results_(lines.size()) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t tokens = lines[i].tokens.size();
      const auto top = static_cast<std::size_t>(options.top);
      results_[i].token_logprobs.resize(tokens);
      results_[i].top_ids.resize(tokens * top);
      results_[i].top_logprobs.resize(tokens * top);
    }
  }

  Result<std::vector<ScoreResult>> run() && {
    MOTLEY_TRY_VOID(make_room());
    for (std::int64_t page = runner_->kv().pages(); page-- > 0;)
      free_pages_.push_back(static_cast<std::int32_t>(page));
    while (next_ < lines_.size() || !running_.empty()) {
      admit();
      MOTLEY_TRY_VOID(step());
      std::erase_if(running_, [this](const std::unique_ptr<Running>& each) {
        if (each->length < tokens_of(*each)) return false;
        free_pages_.insert(free_pages_.end(), each->pages.begin(), each->pages.end());
        return true;
      });
      if (options_.progress) options_.progress(done_);
    }
    return std::move(results_);
  }

 private:
  std::int64_t tokens_of(const Running& each) const {
    return static_cast<std::int64_t>(lines_[each.line].tokens.size());
  }

  // Admits lines in order, as long as there are free pages for their whole length, so that no line
  // ever waits for another.
  void admit() {
    while (next_ < lines_.size() && std::ssize(running_) < max_running()) {
      const auto tokens = static_cast<std::int64_t>(lines_[next_].tokens.size());
      const std::int64_t pages = KvMemory::pages_for(tokens);
      if (pages > std::ssize(free_pages_)) break;
      running_.push_back(std::make_unique<Running>(
          Running{.line = next_, .pages = {free_pages_.rbegin(), free_pages_.rbegin() + pages}}));
      free_pages_.resize(free_pages_.size() - static_cast<std::size_t>(pages));
      running_.back()->slot = take_slot();
      ++next_;
    }
    MOTLEY_CHECK(!running_.empty(), "pages for the longest line");
  }

  std::int64_t max_running() const {
    const std::int64_t sequences = runner_->options().max_sequences;
    const std::int64_t slots = runner_->states().slots();
    return slots == 0 ? sequences : std::min(sequences, slots);
  }
  // The lowest that no line has.
  std::int32_t take_slot() const {
    std::int32_t slot = 0;
    const auto is_taken = [&] {
      return std::ranges::any_of(running_, [&](const auto& each) {
        return each != running_.back() && each->slot == slot;
      });
    };
    while (is_taken()) ++slot;
    return slot;
  }

  Result<void> step() {
    std::int64_t left = runner_->options().max_rows;
    chunks_.clear();
    for (const std::unique_ptr<Running>& each : running_) {
      each->taken = std::min(tokens_of(*each) - each->length, left);
      if (each->taken == 0) continue;
      left -= each->taken;
      const auto begin = static_cast<std::size_t>(each->length);
      chunks_.push_back(
          {.pages = each->pages,
           .length = each->length,
           .tokens = std::span(lines_[each->line].tokens)
                         .subspan(begin, static_cast<std::size_t>(each->taken)),
           .mix = mixes_[each->line],
           .logits = LogitsOf::all,
           .state = {.slot = each->slot, .anchor = each->anchor, .certain = each->taken}});
      begins_.resize(chunks_.size());
      begins_.back() = {each->line, begin};
    }
    auto sink = [this](const tensor::Tensor& logits, std::span<const LogitRow> rows) {
      return read(logits, rows);
    };
    MOTLEY_TRY_VOID(runner_->step(chunks_, sink));
    for (const std::unique_ptr<Running>& each : running_) {
      each->length += each->taken;
      each->anchor = kernels::anchor_after(each->length, 0);
    }
    done_ += static_cast<std::uint64_t>(runner_->options().max_rows - left);
    return {};
  }

  // Allocates results of the rows that have logits at a time: targets (the token that follows; any
  // token for the last) with the ids of the top, and the log-probabilities of both.
  Result<void> make_room() {
    const auto rows = static_cast<std::size_t>(runner_->options().logit_rows);
    const std::size_t bytes =
        rows * (2 + 2 * static_cast<std::size_t>(options_.top)) * sizeof(std::int32_t);
    MOTLEY_TRY(device_, runner_->device().allocate(bytes));
    MOTLEY_TRY(host_, runner_->device().pinned_memory().allocate(bytes));
    return {};
  }

  Result<void> read(const tensor::Tensor& logits, std::span<const LogitRow> rows) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const auto places = [count, this](const tensor::Buffer& memory) {
      const std::int64_t top = count * options_.top;
      const auto at = [&](DType dtype, std::int64_t first, std::int64_t width) {
        return memory.view(dtype, {count, width},
                           static_cast<std::size_t>(first) * sizeof(std::int32_t));
      };
      return Scores{.targets = at(DType::i32, 0, 1),
                    .top_ids = at(DType::i32, count, options_.top),
                    .target_logprobs = at(DType::f32, count + top, 1),
                    .top_logprobs = at(DType::f32, 2 * count + top, options_.top)};
    };
    const Scores on_device = places(device_);
    const Scores on_host = places(host_);
    auto* const targets = on_host.targets.data<std::int32_t>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto [line, begin] = begins_[rows[i].chunk];
      const std::vector<std::int32_t>& tokens = lines_[line].tokens;
      const std::size_t next = begin + rows[i].token + 1;
      targets[i] = next < tokens.size() ? tokens[next] : 0;
    }
    tensor::Stream& stream = runner_->stream();
    const ops::Context context = runner_->context();
    MOTLEY_TRY_VOID(tensor::copy_tensor(on_host.targets, on_device.targets, stream));
    ops::log_probabilities(context, logits, on_device.targets, on_device.target_logprobs);
    if (options_.top > 0) {
      ops::top_k(context, logits, on_device.top_ids);
      ops::log_probabilities(context, logits, on_device.top_ids, on_device.top_logprobs);
    }
    MOTLEY_TRY_VOID(stream.copy(host_.data(), device_.data(), host_.size()));
    MOTLEY_TRY_VOID(runner_->synchronize());

    const auto top = static_cast<std::size_t>(options_.top);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto [line, begin] = begins_[rows[i].chunk];
      const std::size_t token = begin + rows[i].token;
      ScoreResult& result = results_[line];
      if (std::isnan(on_host.target_logprobs.data<float>()[i])) return not_finite(line);
      if (token + 1 < result.token_logprobs.size())
        result.token_logprobs[token + 1] = on_host.target_logprobs.data<float>()[i];
      std::copy_n(on_host.top_ids.data<std::int32_t>() + i * top, top,
                  result.top_ids.begin() + static_cast<std::ptrdiff_t>(token * top));
      std::copy_n(on_host.top_logprobs.data<float>() + i * top, top,
                  result.top_logprobs.begin() + static_cast<std::ptrdiff_t>(token * top));
    }
    return {};
  }

  Error not_finite(std::size_t line) const {
    const bool base = lines_[line].adapters.empty();
    return {ErrorCode::not_finite,
            base ? "the model's logits are not finite"
                 : cat("the logits of ", quote(scored_with(lines_[line])), " are not finite"),
            cat("line ", line + 1),
            base ? "check its files, or score with --compute f32"
                 : "the adapter's numbers overflow: use another, or a smaller scale"};
  }

  struct Scores {
    tensor::Tensor targets;  // [rows, 1]
    tensor::Tensor top_ids;  // [rows, top]
    tensor::Tensor target_logprobs;
    tensor::Tensor top_logprobs;
  };

  struct Begin {
    std::size_t line;
    std::size_t token;
  };

  Runner* runner_;
  std::span<const ScoreLine> lines_;
  std::span<const lora::Mix> mixes_;
  const ScoreOptions& options_;
  std::vector<ScoreResult> results_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<std::int32_t> free_pages_;  // the last are taken next
  std::size_t next_ = 0;
  std::uint64_t done_ = 0;
  // Of the current step; chunk c begins at token begins_[c].token of its line.
  std::vector<Chunk> chunks_;
  std::vector<Begin> begins_;
  tensor::Buffer device_;
  tensor::Buffer host_;
};

}  // namespace

Result<std::vector<ScoreResult>> score(Runner& runner, std::span<const ScoreLine> lines,
                                       std::span<const lora::Mix> mixes,
                                       const ScoreOptions& options) {
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    if (auto taken = runner.takes(mixes[i]); !taken.ok())
      return std::move(taken).error().within(cat("line ", i + 1));
  }
  return Scorer(runner, lines, mixes, options).run();
}

std::string score_output(const ScoreLine& line, const ScoreResult& result, int top) {
  std::string text = "{\"token_ids\": [";
  text += join(line.tokens);
  text += line.several ? "], \"adapters\": " : "], \"adapter\": ";
  text += json::write(line.adapter_field);
  text += ", \"token_logprobs\": [null";
  for (std::size_t i = 1; i < result.token_logprobs.size(); ++i) {
    text += ", ";
    json::append_number(text, result.token_logprobs[i]);
  }
  const auto append_rows = [&](std::string_view name, auto append_one) {
    text += cat("], \"", name, "\": [");
    for (std::size_t i = 0; i < line.tokens.size(); ++i) {
      text += i == 0 ? "[" : ", [";
      for (std::size_t k = 0; k < static_cast<std::size_t>(top); ++k) {
        if (k > 0) text += ", ";
        append_one(i * static_cast<std::size_t>(top) + k);
      }
      text += "]";
    }
  };
  append_rows("top_ids", [&](std::size_t at) { append(text, result.top_ids[at]); });
  append_rows("top_logprobs",
              [&](std::size_t at) { json::append_number(text, result.top_logprobs[at]); });
  return text + "]}\n";
}

std::string compare_with_references(std::span<const ScoreLine> lines,
                                    std::span<const ScoreResult> results) {
  struct Difference {
    std::int64_t tokens = 0;
    double half_square = 0;
    double sum = 0;
    double largest = 0;
  };
  std::map<std::string, Difference> by_adapter;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].reference) continue;
    Difference& difference = by_adapter[scored_with(lines[i])];
    for (std::size_t t = 1; t < lines[i].tokens.size(); ++t) {
      const double apart =
          std::abs(static_cast<double>(results[i].token_logprobs[t]) - (*lines[i].reference)[t]);
      ++difference.tokens;
      difference.half_square += 0.5 * apart * apart;
      difference.sum += apart;
      difference.largest = std::max(difference.largest, apart);
    }
  }
  std::string text;
  for (const auto& [name, difference] : by_adapter) {
    if (difference.tokens == 0) continue;
    const auto count = static_cast<double>(difference.tokens);
    text += cat(text.empty() ? "difference to the references: " : "; ", name, " mean(0.5 d^2) ",
                static_cast<float>(difference.half_square / count), ", mean ",
                static_cast<float>(difference.sum / count), ", largest ",
                static_cast<float>(difference.largest));
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace motley::runner
