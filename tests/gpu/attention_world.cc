#include "gpu/attention_world.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "gpu/device_kernels.h"
#include "kernels/kv_codes.h"

namespace motley::gpu_tests {
namespace {

constexpr std::int64_t row_gap = 8;  // numbers behind each row

// Uniform in [-unit, unit), as bf16 has them.
std::vector<float> random_numbers(std::mt19937& random, std::int64_t count, float unit) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) {
    const float uniform = static_cast<float>(random() >> 8) / 16777216.0F;
    number = bf16::from((2 * uniform - 1) * unit).to_float();
  }
  return numbers;
}

DeviceArray<std::byte> to_device(const std::vector<float>& numbers, DType type) {
  if (type == DType::f32) {
    DeviceArray<std::byte> array(numbers.size() * 4);
    array.write(std::as_bytes(std::span(numbers)));
    return array;
  }
  std::vector<bf16> narrow;
  narrow.reserve(numbers.size());
  for (const float number : numbers) narrow.push_back(bf16::from(number));
  DeviceArray<std::byte> array(numbers.size() * 2);
  array.write(std::as_bytes(std::span(narrow)));
  return array;
}

std::vector<float> from_device(const DeviceArray<std::byte>& array, DType type) {
  const std::vector<std::byte> bytes = array.read();
  std::vector<float> numbers(bytes.size() / (type == DType::f32 ? 4 : 2));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (type == DType::f32) {
      std::memcpy(&numbers[i], bytes.data() + i * 4, 4);
    } else {
      bf16 narrow{};
      std::memcpy(&narrow, bytes.data() + i * 2, 2);
      numbers[i] = narrow.to_float();
    }
  }
  return numbers;
}

std::int64_t bytes_of(DType type) { return type == DType::f32 ? 4 : 2; }

// What a step says of its rows.
struct Rows {
  std::vector<std::int32_t> begins = {0};
  std::vector<std::int32_t> positions;
  std::int64_t most = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();

  explicit Rows(const std::vector<AttentionPiece>& pieces) {
    for (const AttentionPiece& piece : pieces) {
      for (std::int64_t p = piece.begin; p < piece.end; ++p)
        positions.push_back(static_cast<std::int32_t>(p));
      begins.push_back(static_cast<std::int32_t>(positions.size()));
      most = std::max(most, piece.end - piece.begin);
      least = std::min(least, piece.end - piece.begin);
    }
  }
};

std::vector<float> gather(const std::vector<float>& from, const std::vector<std::int64_t>& first,
                          const std::vector<AttentionPiece>& pieces, std::int64_t width,
                          std::int64_t gap) {
  std::vector<float> all;
  for (const AttentionPiece& piece : pieces) {
    for (std::int64_t p = piece.begin; p < piece.end; ++p) {
      const auto at = from.begin() + (first[piece.sequence] + p) * width;
      all.insert(all.end(), at, at + width);
      all.insert(all.end(), static_cast<std::size_t>(gap), std::nanf(""));
    }
  }
  return all;
}

void launch(const kernels::Attention& params, const AttentionRun& how) {
  if (how.plain) {
    kernels::cuda::attention_plain(params, default_stream());
  } else if (how.kernel != nullptr) {
    how.kernel->run(*how.kernel, params, {}, default_stream());
  } else {
    kernels::cuda::attention(params, default_stream());
  }
}

// Rows [first, end) of `width` numbers. Nothing else may have been written.
std::vector<float> rows_written(const std::vector<float>& all, std::int64_t first, std::int64_t end,
                                std::int64_t stride, std::int64_t width) {
  std::vector<float> result;
  for (std::int64_t row = 0; row < std::ssize(all) / stride; ++row) {
    const auto at = all.begin() + row * stride;
    const bool own = row >= first && row < end;
    const auto behind = own ? at + width : at;
    EXPECT_TRUE(std::all_of(behind, at + stride, [](float x) { return std::isnan(x); }))
        << "written behind row " << row;
    if (own) result.insert(result.end(), at, at + width);
  }
  return result;
}

}  // namespace

double relative_error_of_heads(const std::vector<float>& got, const std::vector<float>& want,
                               std::int64_t width) {
  EXPECT_EQ(got.size(), want.size());
  const auto columns = static_cast<std::size_t>(width);
  double worst = 0;
  for (std::size_t first = 0; first + columns <= want.size(); first += columns) {
    double apart = 0;
    double norm = 0;
    for (std::size_t i = first; i < first + columns; ++i) {
      const double difference = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      apart += difference * difference;
      norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    if (apart == 0) continue;
    const double error = std::sqrt(apart / norm);
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

AttentionWorld::AttentionWorld(const AttentionCase& shape, std::uint64_t seed) : shape_(shape) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::int64_t positions = 0;
  for (const std::int64_t length : shape.lengths) {
    first_.push_back(positions);
    positions += length;
    table_stride_ = std::max(table_stride_, (length - 1) / shape.page_tokens + 1);
  }
  if (shape.page_tokens % 64 == 0 || shape.page_tokens < 64) ++table_stride_;
  // Pages lie in any order; where a sequence has none the table holds what no kernel may follow.
  std::vector<std::int32_t> order(shape.lengths.size() * static_cast<std::size_t>(table_stride_) +
                                  3);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::ranges::shuffle(order, random);
  pages_ = std::ssize(order);
  for (std::size_t s = 0; s < shape.lengths.size(); ++s) {
    for (std::int64_t i = 0; i < table_stride_; ++i) {
      const bool there = i * shape.page_tokens < shape.lengths[s];
      const auto index = s * static_cast<std::size_t>(table_stride_) + static_cast<std::size_t>(i);
      table_.push_back(there ? order[index] : std::numeric_limits<std::int32_t>::max());
    }
  }
  queries_ = random_numbers(random, positions * shape.heads * shape.key_width, 2);
  if (shape.gated) gates_ = random_numbers(random, positions * shape.heads * shape.value_width, 4);
  keys_ = random_numbers(random, positions * shape.kv_heads * shape.key_width, 2);
  for (std::size_t at = 0; shape.shared_width > 0 && at < keys_.size();
       at += static_cast<std::size_t>(shape.key_width)) {
    const std::size_t token = at - at % static_cast<std::size_t>(shape.kv_heads * shape.key_width);
    const std::size_t own = static_cast<std::size_t>(shape.key_width - shape.shared_width);
    std::copy_n(&keys_[token + own], shape.shared_width, &keys_[at + own]);
  }
  values_ = random_numbers(random, positions * shape.kv_heads * shape.value_width, 1);
  sinks_ = random_numbers(random, shape.heads, 3);
  device_sinks_ = DeviceArray<float>(sinks_);
  if (shape.code_numbers) round_to_codes();
  const auto memory_of = [&](const Stored& stored) {
    return DeviceArray<std::byte>(static_cast<std::size_t>(pages_ * page_bytes(stored)));
  };
  device_keys_ = memory_of(stored_keys());
  device_shared_keys_ = memory_of(stored_shared_keys());
  device_values_ = memory_of(stored_values());
  const auto size = device_table().attention_scratch({.sequences = std::ssize(shape.lengths),
                                                      .heads = shape.heads,
                                                      .kv_heads = shape.kv_heads,
                                                      .value_width = shape.value_width},
                                                     default_stream());
  partials_ = DeviceArray<float>(static_cast<std::size_t>(size.partials));
  counters_ = DeviceArray<std::int32_t>(static_cast<std::size_t>(size.counters));
  counters_.zero();
  fill_pages();
}

AttentionWorld::Stored AttentionWorld::stored_keys() const {
  return {device_keys_.data(), shape_.kv_heads, shape_.key_width - shape_.shared_width,
          coded() ? tail_width() : 0, shape_.key_scale};
}
AttentionWorld::Stored AttentionWorld::stored_shared_keys() const {
  return {device_shared_keys_.data(), 1, shape_.shared_width, 0, 0};
}
AttentionWorld::Stored AttentionWorld::stored_values() const {
  return {device_values_.data(), shape_.kv_heads, shape_.value_width, 0, shape_.value_scale};
}

std::int64_t AttentionWorld::page_bytes(const Stored& stored) const {
  const auto& [data, heads, width, tail, scale] = stored;
  if (!coded()) return shape_.page_tokens * heads * width * bytes_of(shape_.kv_type);
  return shape_.page_tokens * heads * (width - tail + 2 * tail + 1);
}

kernels::Pages AttentionWorld::pages_of(const Stored& stored) const {
  const auto& [data, heads, width, tail, scale] = stored;
  const std::int64_t columns = width - tail;
  kernels::Pages pages{.data = data,
                       .type = shape_.kv_type,
                       .page_stride = shape_.page_tokens * heads * width,
                       .token_stride = heads * columns,
                       .head_stride = columns};
  if (!coded()) return pages;
  pages.page_stride = page_bytes(stored);
  pages.exponents =
      reinterpret_cast<std::uint8_t*>(data) + page_bytes(stored) - shape_.page_tokens * heads;
  pages.fixed_scale = scale;
  return pages;
}

kernels::PagedTail AttentionWorld::tail_of(const Stored& stored) const {
  if (stored.tail == 0) return {};
  return {.pages = {.data = stored.data + shape_.page_tokens * (stored.width - stored.tail),
                    .type = DType::bf16,
                    .page_stride = page_bytes(stored) / 2,
                    .token_stride = stored.tail,
                    .head_stride = stored.tail},
          .width = stored.tail};
}

// As the CPU stores each token of a head.
void AttentionWorld::round_to_codes() {
  const auto round = [](std::vector<float>& all, std::int64_t width, std::int64_t count,
                        float fixed) {
    for (auto head = all.begin(); head != all.end(); head += width) {
      std::uint32_t largest = 0;
      for (auto at = head; at < head + count; ++at) largest = kernels::kv_largest(largest, *at);
      const float scale = fixed > 0 ? fixed : kernels::kv_power(kernels::kv_exponent(largest));
      for (auto at = head; at < head + count; ++at)
        *at = f8_e4m3{kernels::kv_code(*at / scale)}.to_float() * scale;
    }
  };
  round(keys_, shape_.key_width, shape_.key_width - tail_width(), shape_.key_scale);
  round(values_, shape_.value_width, shape_.value_width, shape_.value_scale);
}

void AttentionWorld::fill_pages() {
  const Rows rows(whole());
  const DeviceArray<std::int32_t> begins(rows.begins);
  const DeviceArray<std::int32_t> positions(rows.positions);
  const DeviceArray<std::int32_t> table(table_);
  const DType x_type = coded() ? DType::f32 : shape_.q_type;
  // Stores columns from `first` on of each head's `x_width`.
  const auto store = [&](const std::vector<float>& from, const Stored& to, std::int64_t x_width,
                         std::int64_t first) {
    const DeviceArray<std::byte> x = to_device(from, x_type);
    const kernels::Heads stored{.heads = to.heads,
                                .width = to.width,
                                .x = x.data() + first * bytes_of(x_type),
                                .x_type = x_type,
                                .x_stride = shape_.kv_heads * x_width,
                                .x_head_stride = x_width,
                                .pages = pages_of(to),
                                .tail = tail_of(to)};
    device_table().prepare_heads({.rows = std::ssize(rows.positions),
                                  .all = &stored,
                                  .count = 1,
                                  .sequences = {.count = std::ssize(rows.begins) - 1,
                                                .seq_begin = begins.data(),
                                                .positions = positions.data()},
                                  .table = {table.data(), table_stride_, shape_.page_tokens}},
                                 default_stream());
    finish();
  };
  store(keys_, stored_keys(), shape_.key_width, 0);
  if (shape_.shared_width > 0)
    store(keys_, stored_shared_keys(), shape_.key_width, shape_.key_width - shape_.shared_width);
  if (!shape_.values_in_keys) store(values_, stored_values(), shape_.value_width, 0);
}

std::vector<AttentionPiece> AttentionWorld::whole() const {
  std::vector<AttentionPiece> pieces;
  for (std::size_t s = 0; s < shape_.lengths.size(); ++s)
    pieces.push_back({s, 0, shape_.lengths[s]});
  return pieces;
}

std::vector<AttentionPiece> AttentionWorld::last() const {
  std::vector<AttentionPiece> pieces;
  for (std::size_t s = 0; s < shape_.lengths.size(); ++s)
    pieces.push_back({s, shape_.lengths[s] - 1, shape_.lengths[s]});
  return pieces;
}

// [rows, heads, 2, value_width], of which the second halves are nothing.
std::vector<float> AttentionWorld::gates_of(const std::vector<AttentionPiece>& pieces) const {
  std::vector<float> all;
  if (!shape_.gated) return all;
  const std::int64_t width = shape_.value_width;
  const std::vector<float> gates = gather(gates_, first_, pieces, shape_.heads * width, 0);
  for (auto head = gates.begin(); head != gates.end(); head += width) {
    all.insert(all.end(), head, head + width);
    all.insert(all.end(), static_cast<std::size_t>(width), std::nanf(""));
  }
  return all;
}

std::vector<float> AttentionWorld::run(const std::vector<AttentionPiece>& pieces,
                                       const AttentionRun& how) {
  const Rows rows(pieces);
  const std::int64_t count = std::ssize(rows.positions);
  std::vector<std::int32_t> pages;
  for (const AttentionPiece& piece : pieces) {
    const auto first = table_.begin() + static_cast<std::int64_t>(piece.sequence) * table_stride_;
    pages.insert(pages.end(), first, first + table_stride_);
  }
  const DeviceArray<std::int32_t> begins(rows.begins);
  DeviceArray<std::int32_t> positions(rows.positions.size() +
                                      static_cast<std::size_t>(how.more_rows));
  positions.write(rows.positions);
  const DeviceArray<std::int32_t> table(pages);
  const std::int64_t q_stride = shape_.heads * shape_.key_width + row_gap;
  const std::int64_t out_stride = shape_.heads * shape_.value_width + row_gap;
  const DeviceArray<std::byte> q = to_device(
      gather(queries_, first_, pieces, shape_.heads * shape_.key_width, row_gap), shape_.q_type);
  const DeviceArray<std::byte> out(
      static_cast<std::size_t>((count + how.more_rows) * out_stride * bytes_of(shape_.out_type)));
  const std::int64_t gate_stride = 2 * shape_.heads * shape_.value_width;
  const DeviceArray<std::byte> gates = to_device(gates_of(pieces), DType::f32);
  partials_.poison();
  const kernels::Pages keys = pages_of(stored_keys());
  const kernels::PagedTail tail = tail_of(stored_keys());
  const auto skipped = static_cast<std::int64_t>(how.skipped);
  const std::int64_t first_row = rows.begins[how.skipped];
  kernels::Attention params{
      .sequences = {.count = std::ssize(pieces) - skipped,
                    .seq_begin = begins.data() + skipped,
                    .positions = positions.data(),
                    .rows = count + how.more_rows,
                    .max_rows = how.max_rows > 0 ? how.max_rows : rows.most,
                    .least_rows = rows.least},
      .table = {table.data() + skipped * table_stride_, table_stride_, shape_.page_tokens},
      .k = keys,
      .v = shape_.values_in_keys ? keys : pages_of(stored_values()),
      .shared_k = shape_.shared_width > 0 ? pages_of(stored_shared_keys()) : tail.pages,
      .shared_width = shape_.shared_width + tail.width,
      .heads = shape_.heads,
      .kv_heads = shape_.kv_heads,
      .key_width = shape_.key_width,
      .value_width = shape_.value_width,
      .scale = 0.6F / std::sqrt(static_cast<float>(shape_.key_width)),
      .window = shape_.window,
      .sinks = shape_.sinks ? device_sinks_.data() : nullptr,
      .gates = {.data = shape_.gated ? reinterpret_cast<const float*>(gates.data()) : nullptr,
                .stride = gate_stride,
                .head_stride = 2 * shape_.value_width},
      .q = q.data(),
      .q_type = shape_.q_type,
      .q_stride = q_stride,
      .q_head_stride = shape_.key_width,
      .out = out.data(),
      .out_type = shape_.out_type,
      .out_stride = out_stride,
      .out_head_stride = shape_.value_width,
      .batch_invariant = how.batch_invariant};
  if (how.scratch)
    params.scratch = {partials_.data(), static_cast<std::int64_t>(partials_.size()),
                      counters_.data(), static_cast<std::int64_t>(counters_.size())};
  launch(params, how);
  finish();
  EXPECT_TRUE(std::ranges::all_of(counters_.read(), [](std::int32_t left) { return left == 0; }));
  return rows_written(from_device(out, shape_.out_type), first_row, count, out_stride,
                      shape_.heads * shape_.value_width);
}

std::vector<float> AttentionWorld::expected(const std::vector<AttentionPiece>& pieces) const {
  static ThreadPool pool({.threads = 8});
  const Rows rows(pieces);
  // A sequence is a page on the host.
  std::int64_t longest = 1;
  for (const std::int64_t length : shape_.lengths) longest = std::max(longest, length);
  const auto paged = [&](const std::vector<float>& from, std::int64_t width) {
    std::vector<float> pages;
    for (std::size_t s = 0; s < shape_.lengths.size(); ++s) {
      const auto at = from.begin() + first_[s] * width;
      pages.insert(pages.end(), at, at + shape_.lengths[s] * width);
      pages.resize((s + 1) * static_cast<std::size_t>(longest * width), 0.0F);
    }
    return pages;
  };
  std::vector<float> keys = paged(keys_, shape_.kv_heads * shape_.key_width);
  std::vector<float> values = paged(values_, shape_.kv_heads * shape_.value_width);
  std::vector<std::int32_t> table;
  for (const AttentionPiece& piece : pieces)
    table.push_back(static_cast<std::int32_t>(piece.sequence));
  const auto host_pages = [&](std::vector<float>& data, std::int64_t width) {
    return kernels::Pages{.data = data.data(),
                          .page_stride = longest * shape_.kv_heads * width,
                          .token_stride = shape_.kv_heads * width,
                          .head_stride = width};
  };
  const std::vector<float> q = gather(queries_, first_, pieces, shape_.heads * shape_.key_width, 0);
  std::vector<float> out(rows.positions.size() *
                         static_cast<std::size_t>(shape_.heads * shape_.value_width));
  const std::vector<float> gates = gates_of(pieces);
  const kernels::Pages k = host_pages(keys, shape_.key_width);
  kernels::cpu_table().attention(
      {.sequences = {.count = std::ssize(pieces),
                     .seq_begin = rows.begins.data(),
                     .positions = rows.positions.data()},
       .table = {table.data(), 1, longest},
       .k = k,
       .v = shape_.values_in_keys ? k : host_pages(values, shape_.value_width),
       .heads = shape_.heads,
       .kv_heads = shape_.kv_heads,
       .key_width = shape_.key_width,
       .value_width = shape_.value_width,
       .scale = 0.6F / std::sqrt(static_cast<float>(shape_.key_width)),
       .window = shape_.window,
       .sinks = shape_.sinks ? sinks_.data() : nullptr,
       .gates = {.data = shape_.gated ? gates.data() : nullptr,
                 .stride = 2 * shape_.heads * shape_.value_width,
                 .head_stride = 2 * shape_.value_width},
       .q = q.data(),
       .q_stride = shape_.heads * shape_.key_width,
       .q_head_stride = shape_.key_width,
       .out = out.data(),
       .out_stride = shape_.heads * shape_.value_width,
       .out_head_stride = shape_.value_width},
      {&pool});
  return out;
}

}  // namespace motley::gpu_tests
