#include "score/many_adapters.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/cat.h"

namespace motley::score_tests {
namespace {

constexpr std::size_t prompt_tokens = 2;

std::vector<float> log_softmax(const std::vector<float>& logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  const double offset = most + std::log(sum);
  std::vector<float> result;
  for (const float logit : logits) result.push_back(static_cast<float>(double{logit} - offset));
  return result;
}

}  // namespace

lora::Adapter numbered_adapter(const lora::BaseView& base, std::uint32_t number) {
  std::mt19937 random(number);
  lora::Adapter adapter;
  adapter.largest_rank = static_cast<int>(1 + number * 5 % 8);
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    std::uniform_real_distribution<float> uniform(-0.12F, 0.12F);
    lora::Matrix made{.rows = rows, .columns = columns, .values = {}};
    made.values.resize(static_cast<std::size_t>(rows * columns));
    for (float& value : made.values) value = uniform(random);
    adapter.matrices.push_back(std::move(made));
    return static_cast<int>(adapter.matrices.size()) - 1;
  };
  for (const lora::SiteSpec& spec : base.sites()) {
    using lora::Projection;
    const Projection projection = spec.site.projection;
    const bool attention = projection <= Projection::o;
    const bool expert =
        projection >= Projection::expert_gate && projection <= Projection::expert_down;
    if (!attention && !expert) continue;
    lora::SiteDelta delta{.site = spec.site, .in = spec.in, .out = spec.out, .factors = {}};
    for (int i = 0; i < std::max(spec.experts, 1); ++i) {
      const int a = matrix(adapter.largest_rank, spec.in);
      const int b = matrix(spec.out, adapter.largest_rank);
      delta.factors.push_back({.a = a, .b = b, .rank = adapter.largest_rank, .scale = 1});
    }
    adapter.sites.push_back(std::move(delta));
  }
  adapter.version = hash_content(adapter);
  return adapter;
}

ManyAdapters::ManyAdapters(const model::Model& model, tensor::Device& device,
                           const Options& options)
    : model_(&model) {
  const bool on_gpu = device.id().kind != tensor::DeviceKind::cpu;
  lora::Pool::Options pool{.page_bytes = 16 << 10,
                           .dtype = model.activations(),
                           .experts = model.factor_layout(),
                           .directory = on_gpu};
  const std::size_t count = options.rows * options.adapters_per_row;
  for (std::uint32_t rank_kind = 0; rank_kind < 8; ++rank_kind) {
    const std::uint64_t pages =
        lora::Pool::pages_of(numbered_adapter(model.base_view(), rank_kind), pool);
    pool.bytes = std::max(pool.bytes, count * pages * pool.page_bytes);
  }
  pool_ = lora::Pool::create(device, pool).value();
  const auto rows = static_cast<std::int64_t>(options.rows);
  runner_ = runner::Runner::create(model, device,
                                   {.max_rows = rows * std::int64_t{prompt_tokens},
                                    .max_sequences = rows,
                                    .max_tokens = 32,
                                    .pages = rows,
                                    .logit_rows = rows,
                                    .adapters = pool_.get()})
                .value();
  for (std::uint32_t row = 0; row < options.rows; ++row) {
    std::vector<lora::Mix::Part> parts;
    for (std::uint32_t i = 0; i < options.adapters_per_row; ++i) {
      const auto number = static_cast<std::uint32_t>(row * options.adapters_per_row + i);
      parts.push_back(
          {.adapter =
               pool_->load(cat("adapter-", number), numbered_adapter(model.base_view(), number))
                   .value(),
           .scale = options.scale});
    }
    mixes_.push_back(lora::Mix::make(parts).value());
  }
}

std::vector<std::int32_t> ManyAdapters::tokens_of(std::size_t row, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i <= prompt_tokens; ++i)
    tokens.push_back(
        static_cast<std::int32_t>((row * 37 + i * 11 + 5) % static_cast<std::size_t>(vocabulary)));
  return tokens;
}

std::vector<ManyAdapters::Answer> ManyAdapters::all() {
  std::vector<std::size_t> rows(mixes_.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return answer(rows);
}

std::vector<ManyAdapters::Answer> ManyAdapters::run(std::span<const std::size_t> rows,
                                                    bool adapted) {
  runner::ConsecutivePages all_pages(runner_->kv());
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<std::vector<std::int32_t>> tokens;
  pages.reserve(rows.size());
  for (const std::size_t row : rows) {
    pages.push_back(all_pages.take(prompt_tokens + 1));
    tokens.push_back(tokens_of(row, model_->config().vocabulary));
  }
  std::vector<Answer> answers(rows.size());
  for (const auto& [begin, count] :
       {std::pair(std::size_t{0}, prompt_tokens), std::pair(prompt_tokens, std::size_t{1})}) {
    std::vector<runner::Chunk> chunks;
    for (std::size_t i = 0; i < rows.size(); ++i)
      chunks.push_back({.pages = pages[i],
                        .length = static_cast<std::int64_t>(begin),
                        .tokens = std::span(tokens[i]).subspan(begin, count),
                        .mix = adapted ? mixes_[rows[i]] : lora::Mix()});
    step(chunks, answers);
  }
  return answers;
}

void ManyAdapters::step(std::span<const runner::Chunk> chunks, std::vector<Answer>& answers) {
  auto sink = [&](const tensor::Tensor& rows,
                  std::span<const runner::LogitRow> which) -> Result<void> {
    std::vector<float> logits(static_cast<std::size_t>(rows.dim(1)));
    for (std::size_t i = 0; i < which.size(); ++i) {
      MOTLEY_TRY_VOID(runner_->stream().copy(logits.data(),
                                             rows.select(static_cast<std::int64_t>(i)).bytes(),
                                             logits.size() * sizeof(float)));
      MOTLEY_TRY_VOID(runner_->stream().synchronize());
      Answer& answer = answers[which[i].chunk];
      const std::vector<float> numbers = log_softmax(logits);
      answer.insert(answer.end(), numbers.begin(), numbers.end());
    }
    return {};
  };
  runner_->step(chunks, sink).value();
}

}  // namespace motley::score_tests
