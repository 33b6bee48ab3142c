#include "dist/thread_ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/units.h"

namespace motley::dist {
namespace {

// Numbers of which every rank adds up all itself; of more each adds its part, and copies the rest.
constexpr std::int64_t max_added_by_all = 16384;
// Numbers that are added together: the sum stays in the first cache.
constexpr std::int64_t block = 4096;
// Ranks of one step arrive about together.
constexpr std::chrono::microseconds spin(20);

}  // namespace

class ThreadRanks::Member final : public Communicator {
 public:
  Member(ThreadRanks& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_.ranks(); }

  Result<void> all_reduce(std::span<float> numbers, Part part, const Crossing&) override {
    MOTLEY_TRY_VOID(status());
    const auto count = static_cast<std::int64_t>(numbers.size());
    publish(numbers, part == Part::own);
    MOTLEY_TRY_VOID(group_.meet(rank_, {"a sum over ranks", count}));
    if (count <= max_added_by_all) {
      add_up({0, count}, numbers.data());
      return finish();
    }
    const Range own = deal(count, ranks(), rank_);
    add_up(own, numbers.data() + own.begin);
    // Sums take the place of this rank's own part, which only this rank reads.
    std::vector<float>& staged = staging();
    staged.resize(numbers.size());
    std::copy_n(numbers.data() + own.begin, own.size(), staged.data() + own.begin);
    MOTLEY_TRY_VOID(group_.meet(rank_, {"the second half of a sum over ranks", count}));
    for (int other = 0; other < ranks(); ++other) {
      const Range theirs = deal(count, ranks(), other);
      if (other != rank_)
        std::copy_n(staged_by(other) + theirs.begin, theirs.size(), numbers.data() + theirs.begin);
    }
    return finish();
  }

  Result<void> all_max(std::span<float> numbers, Part part, StreamHandle) override {
    MOTLEY_TRY_VOID(status());
    const auto count = static_cast<std::int64_t>(numbers.size());
    publish(numbers, part == Part::own);
    MOTLEY_TRY_VOID(group_.meet(rank_, {"maxima over ranks", count}));
    std::ranges::fill(numbers, 0.0F);
    for (int other = 0; other < ranks(); ++other) {
      if (!group_.members_[static_cast<std::size_t>(other)]->has_part_[turn_]) continue;
      const float* const part_of_other = staged_by(other);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = std::max(numbers[i], part_of_other[i]);
    }
    return finish();
  }

  Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own,
                              StreamHandle) override {
    MOTLEY_TRY_VOID(status());
    const auto count = static_cast<std::int64_t>(numbers.size());
    const Range range = deal(count, ranks(), rank_);
    MOTLEY_CHECK(static_cast<std::int64_t>(own.size()) == range.size(), "a rank's part of the sum");
    publish(numbers, true);
    MOTLEY_TRY_VOID(group_.meet(rank_, {"a scattered sum over ranks", count}));
    add_up(range, own.data());
    return finish();
  }

  Result<void> all_gather(const Columns& columns) override {
    MOTLEY_TRY_VOID(status());
    const std::int64_t width = columns.columns.size();
    std::vector<float>& staged = staging();
    staged.resize(static_cast<std::size_t>(columns.rows * width));
    for (std::int64_t row = 0; row < columns.rows; ++row)
      std::copy_n(columns.own + row * columns.own_stride, width, staged.data() + row * width);
    columns_[turn_] = columns.columns;
    MOTLEY_TRY_VOID(group_.meet(rank_, {"a gathering of rows", columns.rows}));
    for (int other = 0; other < ranks() && columns.out != nullptr; ++other) {
      const Range theirs = group_.members_[static_cast<std::size_t>(other)]->columns_[turn_];
      for (std::int64_t row = 0; row < columns.rows; ++row)
        std::copy_n(staged_by(other) + row * theirs.size(), theirs.size(),
                    columns.out + row * columns.out_stride + theirs.begin);
    }
    return finish();
  }

  Result<void> gather_parts(const Parts& parts) override {
    MOTLEY_TRY_VOID(status());
    const auto bytes = static_cast<std::size_t>(parts.bytes);
    const auto part_of = [&](int rank) { return parts.data + rank * parts.bytes; };
    stage(part_of(rank_), bytes);
    MOTLEY_TRY_VOID(group_.meet(rank_, {"a gathering of parts", parts.bytes}));
    for (int other = 0; other < ranks() && bytes > 0; ++other)
      if (other != rank_) std::memcpy(part_of(other), staged_by(other), bytes);
    return finish();
  }

  Result<void> broadcast(std::span<std::byte> bytes, int root, StreamHandle) override {
    MOTLEY_TRY_VOID(status());
    if (rank_ == root) stage(bytes.data(), bytes.size());
    MOTLEY_TRY_VOID(group_.meet(
        rank_, {"a broadcast", static_cast<std::int64_t>(bytes.size()) * ranks() + root}));
    if (rank_ != root && !bytes.empty()) std::memcpy(bytes.data(), staged_by(root), bytes.size());
    return finish();
  }

  Result<void> barrier(StreamHandle) override {
    MOTLEY_TRY_VOID(group_.meet(rank_, {"a barrier", 0}));
    return finish();
  }

  void fail(const Error& error) override {
    const std::lock_guard held(group_.lock_);
    Error named = error;
    group_.fail_locked(std::move(named).within(cat("rank ", rank_)));
  }

  Result<void> status() const override {
    if (!group_.failed_.load(std::memory_order_acquire)) return {};
    const std::lock_guard held(group_.lock_);
    return *group_.failure_;
  }

 private:
  // Not to be written once the group has failed: others may still read it.
  std::vector<float>& staging() { return staging_[turn_]; }
  const float* staged_by(int other) const {
    return group_.members_[static_cast<std::size_t>(other)]->staging_[turn_].data();
  }
  void publish(std::span<const float> numbers, bool has_part) {
    has_part_[turn_] = has_part;
    if (has_part) staging().assign(numbers.begin(), numbers.end());
  }
  void stage(const std::byte* from, std::size_t bytes) {
    staging().resize((bytes + sizeof(float) - 1) / sizeof(float));
    if (bytes > 0) std::memcpy(staging().data(), from, bytes);
  }
  // The next call uses the other buffer.
  Result<void> finish() {
    turn_ = 1 - turn_;
    return {};
  }
  // Adds numbers [begin, end) of all ranks up, in order of ranks.
  void add_up(Range range, float* sums) const {
    for (std::int64_t begin = range.begin; begin < range.end; begin += block) {
      const std::int64_t count = std::min(block, range.end - begin);
      float* const sum = sums + (begin - range.begin);
      bool any = false;
      for (int other = 0; other < ranks(); ++other) {
        if (!group_.members_[static_cast<std::size_t>(other)]->has_part_[turn_]) continue;
        const float* const part = staged_by(other) + begin;
        if (!any) {
          std::copy_n(part, count, sum);
        } else {
          for (std::int64_t i = 0; i < count; ++i) sum[i] += part[i];
        }
        any = true;
      }
      if (!any) std::fill_n(sum, count, 0.0F);
    }
  }

  ThreadRanks& group_;
  int rank_;
  std::size_t turn_ = 0;
  // Of the calls with each turn; other ranks read them between that call's meeting and the next.
  std::array<std::vector<float>, 2> staging_;
  std::array<bool, 2> has_part_{};
  std::array<Range, 2> columns_{};
};

ThreadRanks::ThreadRanks(const Options& options)
    : options_(options),
      clock_(clock_or_steady(options.clock)),
      arrived_(static_cast<std::size_t>(options.ranks), false),
      calls_(static_cast<std::size_t>(options.ranks)) {
  MOTLEY_CHECK(options.ranks > 0, "at least one rank");
  for (int rank = 0; rank < options.ranks; ++rank)
    members_.push_back(std::make_unique<Member>(*this, rank));
}

ThreadRanks::~ThreadRanks() = default;

Communicator& ThreadRanks::rank(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

Error ThreadRanks::fail_locked(Error error) {
  if (!failure_) failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
  return *failure_;
}

std::string ThreadRanks::missing_locked() const {
  std::vector<int> missing;
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!arrived_[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  return cat(missing.size() == 1 ? "rank " : "ranks ", join(missing));
}

std::optional<Error> ThreadRanks::mismatch_locked() const {
  for (int rank = 1; rank < options_.ranks; ++rank) {
    const Call& first = calls_[0];
    const Call& other = calls_[static_cast<std::size_t>(rank)];
    if (other == first) continue;
    return Error(ErrorCode::internal,
                 cat("rank 0 is at ", first.name, " (", first.numbers, ") and rank ", rank, " at ",
                     other.name, " (", other.numbers, ")"));
  }
  return std::nullopt;
}

Result<void> ThreadRanks::meet(int rank, const Call& call) {
  std::uint64_t meeting = 0;
  {
    const std::lock_guard held(lock_);
    if (failure_) return *failure_;
    meeting = meetings_.load(std::memory_order_relaxed);
    arrived_[static_cast<std::size_t>(rank)] = true;
    calls_[static_cast<std::size_t>(rank)] = call;
    if (++arrived_count_ == options_.ranks) {
      if (auto mismatch = mismatch_locked()) return fail_locked(*std::move(mismatch));
      arrived_count_ = 0;
      std::fill(arrived_.begin(), arrived_.end(), false);
      meetings_.store(meeting + 1, std::memory_order_release);
      changed_.notify_all();
      return {};
    }
  }
  const auto is_over = [&] { return meetings_.load(std::memory_order_acquire) != meeting; };
  const TimePoint deadline = clock_.now() + options_.max_wait;
  const TimePoint spun = SteadyClock().now() + spin;
  while (SteadyClock().now() < spun) {
    if (is_over()) return {};
    if (failed_.load(std::memory_order_acquire)) break;
    std::this_thread::yield();
  }
  std::unique_lock held(lock_);
  const bool woken = clock_.wait_until(changed_, held, deadline,
                                       [&] { return is_over() || failure_.has_value(); });
  if (is_over()) return {};
  if (woken) return *failure_;
  return fail_locked(
      Error(ErrorCode::internal, cat(missing_locked(), " did not come to ", call.name, " within ",
                                     format_seconds(seconds(options_.max_wait)))));
}

}  // namespace motley::dist
