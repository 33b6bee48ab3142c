#include "dist/nccl_ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/units.h"

namespace motley::dist {

namespace cuda = kernels::cuda;
using kernels::CallMark;
using kernels::RankCall;

namespace {

// Numbers of this many bytes, as they cross, are gathered by all ranks, which each add them up; of
// more each rank adds up a piece.
constexpr std::int64_t max_gathered_bytes = std::int64_t{256} << 10;
// Of each of a rank's two buffers; longer sums go in pieces.
constexpr std::int64_t staging_bytes = std::int64_t{32} << 20;
// Pieces are multiples of as many numbers: 16 bytes in bf16, and whole vec4s.
constexpr std::int64_t pack = 8;

constexpr auto call_names = std::to_array<std::string_view>(
    {"a sum over ranks", "maxima over ranks", "a scattered sum over ranks", "a gathering of rows",
     "a broadcast", "a barrier"});
std::string_view name_of(RankCall call) {
  return call_names[std::min(static_cast<std::size_t>(call), call_names.size() - 1)];
}

std::int64_t rounded_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }
std::int64_t bytes_of(DType type) { return type == DType::bf16 ? 2 : 4; }

}  // namespace

class NcclRanks::Member final : public GpuRanks::Member {
 public:
  Member(NcclRanks& group, int rank, const kernels::Staging& staging)
      : GpuRanks::Member(group, rank), nccl_(group.nccl_), staging_(staging) {}

  void connect(NcclComm* comm) { comm_ = comm; }

  // Returns once no thread queues a call, or at the deadline: one that stays that long waits for
  // its GPU. To be called when the group has failed, so no call is queued later.
  void let_calls_pass(std::chrono::steady_clock::time_point deadline) {
    if (lock_.try_lock_until(deadline)) lock_.unlock();
  }

  Result<void> all_reduce(std::span<float> numbers, Part part, const Crossing& crossing) override {
    return queue_together(crossing.stream, RankCall::sum, [&]() -> Result<void> {
      const auto count = static_cast<std::int64_t>(numbers.size());
      const Numbers all{.x = numbers.data(),
                        .count = count,
                        .has_part = part == Part::own,
                        .crosses = crossing.type};
      if (count * bytes_of(crossing.type) <= max_gathered_bytes)
        return join_all(all, RankCall::sum, crossing.stream);
      const std::int64_t unit = pack * ranks();
      const std::int64_t at_once = staging_.bytes / bytes_of(crossing.type) / unit * unit;
      for (std::int64_t begin = 0; begin < count; begin += at_once)
        MOTLEY_TRY_VOID(join_pieces(all.from(begin, at_once), crossing.stream));
      return {};
    });
  }

  Result<void> all_max(std::span<float> numbers, Part part, StreamHandle stream) override {
    return queue_together(stream, RankCall::maxima, [&]() -> Result<void> {
      const Numbers all{.x = numbers.data(),
                        .count = static_cast<std::int64_t>(numbers.size()),
                        .has_part = part == Part::own,
                        .crosses = DType::f32};
      const std::int64_t at_once = staging_.bytes / floats / ranks() / pack * pack;
      for (std::int64_t begin = 0; begin < all.count; begin += at_once)
        MOTLEY_TRY_VOID(join_all(all.from(begin, at_once), RankCall::maxima, stream));
      return {};
    });
  }

  Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own,
                              StreamHandle stream) override {
    const auto count = static_cast<std::int64_t>(numbers.size());
    MOTLEY_CHECK(static_cast<std::int64_t>(own.size()) == deal(count, ranks(), rank()).size(),
                 "a rank's part of the sum");
    return queue_together(stream, RankCall::scattered_sum, [&]() -> Result<void> {
      const std::int64_t longest = deal(count, ranks(), 0).size();
      const std::int64_t at_once = staging_.bytes / floats / ranks() / pack * pack;
      for (std::int64_t first = 0; first < longest; first += at_once)
        MOTLEY_TRY_VOID(scatter_sum(numbers, own, {first, first + at_once}, stream));
      return {};
    });
  }

  Result<void> all_gather(const Columns& columns) override {
    MOTLEY_CHECK(columns.columns == deal(columns.width, ranks(), rank()), "columns that are dealt");
    return queue_together(columns.stream, RankCall::gather, [&]() -> Result<void> {
      const std::int64_t widest = deal(columns.width, ranks(), 0).size();
      if (widest == 0) return {};
      const std::int64_t at_once = staging_.bytes / floats / ranks() / pack * pack / widest;
      MOTLEY_CHECK(at_once > 0, "rows that fit the group's memory");
      for (std::int64_t begin = 0; begin < columns.rows; begin += at_once)
        MOTLEY_TRY_VOID(gather_rows(columns, begin, std::min(at_once, columns.rows - begin)));
      return {};
    });
  }

  Result<void> gather_parts(const Parts& parts) override {
    return queue_together(parts.stream, RankCall::gather, [&]() -> Result<void> {
      if (parts.bytes == 0) return {};
      cuda::mark_call(begin_of(RankCall::gather), parts.stream);
      MOTLEY_TRY_VOID(done(nccl_.all_gather(parts.data + rank() * parts.bytes, parts.data,
                                            static_cast<std::size_t>(parts.bytes), nccl_bytes,
                                            comm_, parts.stream.native)));
      cuda::mark_call(end_of(RankCall::gather), parts.stream);
      return {};
    });
  }

  Result<void> broadcast(std::span<std::byte> bytes, int root, StreamHandle stream) override {
    return queue_together(stream, RankCall::broadcast, [&]() -> Result<void> {
      if (bytes.empty()) return {};
      cuda::mark_call(begin_of(RankCall::broadcast), stream);
      MOTLEY_TRY_VOID(done(nccl_.broadcast(bytes.data(), bytes.data(), bytes.size(), nccl_bytes,
                                           root, comm_, stream.native)));
      cuda::mark_call(end_of(RankCall::broadcast), stream);
      return {};
    });
  }

  Result<void> barrier(StreamHandle stream) override {
    return queue_together(stream, RankCall::barrier, [&]() -> Result<void> {
      cuda::mark_call(begin_of(RankCall::barrier), stream);
      MOTLEY_TRY_VOID(gather_staged(pack, stream));
      cuda::mark_call(end_of(RankCall::barrier), stream);
      return {};
    });
  }

 private:
  static constexpr auto floats = static_cast<std::int64_t>(sizeof(float));

  // Of all ranks the sum or the maxima come to x.
  struct Numbers {
    float* x;
    std::int64_t count;
    bool has_part;
    DType crosses;

    Numbers from(std::int64_t begin, std::int64_t at_most) const {
      return {x + begin, std::min(at_most, count - begin), has_part, crosses};
    }
  };

  // Ranks' threads queue a call together; an error of NCCL ends the group.
  template <class Queue>
  Result<void> queue_together(StreamHandle stream, RankCall call, const Queue& queue) {
    return launch_together(stream, name_of(call), [&]() -> Result<void> {
      const std::lock_guard held(lock_);
      MOTLEY_TRY_VOID(status());
      Result<void> queued = queue();
      if (!queued.ok()) fail(queued.error());
      return queued;
    });
  }

  Result<void> done(NcclStatus status) const { return nccl_.check(status, "queue a call", comm_); }
  CallMark mark(RankCall call, CallMark::End end) const {
    return {.words = staging_.words, .call = call, .end = end};
  }
  CallMark begin_of(RankCall call) const { return mark(call, CallMark::End::begin); }
  CallMark end_of(RankCall call) const { return mark(call, CallMark::End::end); }

  std::byte* own_at(std::int64_t bytes) const { return staging_.own + bytes; }
  std::byte* others_at(std::int64_t bytes) const { return staging_.others + bytes; }

  // Every rank's `bytes` come to all, rank r's to own_at(r * bytes), where its own stand.
  Result<void> gather_staged(std::int64_t bytes, StreamHandle stream) const {
    return done(nccl_.all_gather(own_at(rank() * bytes), staging_.own,
                                 static_cast<std::size_t>(bytes), nccl_bytes, comm_,
                                 stream.native));
  }

  // Sends sent(peer) to every other rank, and fills filled(peer) with what it sends. Where there is
  // nothing to send, both ranks know.
  template <class Sent, class Filled>
  Result<void> exchange(StreamHandle stream, const Sent& sent, const Filled& filled) const {
    MOTLEY_TRY_VOID(done(nccl_.group_start()));
    NcclStatus queued = nccl_success;
    for (int k = 1; k < ranks() && queued == nccl_success; ++k) {
      const int peer = (rank() + k) % ranks();
      const std::span<const std::byte> from = sent(peer);
      const std::span<std::byte> to = filled(peer);
      if (!from.empty())
        queued = nccl_.send(from.data(), from.size(), nccl_bytes, peer, comm_, stream.native);
      if (!to.empty() && queued == nccl_success)
        queued = nccl_.receive(to.data(), to.size(), nccl_bytes, peer, comm_, stream.native);
    }
    // A group that was begun must be ended.
    const NcclStatus ended = nccl_.group_end();
    MOTLEY_TRY_VOID(done(queued));
    return done(ended);
  }

  // All ranks' numbers come to each rank, which joins them.
  Result<void> join_all(const Numbers& numbers, RankCall call, StreamHandle stream) const {
    if (numbers.count == 0) return {};
    const bool maxima = call == RankCall::maxima;
    const std::int64_t bytes = rounded_up(numbers.count, pack) * bytes_of(numbers.crosses);
    cuda::stage_part({.x = numbers.x,
                      .count = numbers.count,
                      .has_part = numbers.has_part,
                      .of_maxima = maxima,
                      .crosses = numbers.crosses,
                      .to = own_at(rank() * bytes)},
                     begin_of(call), stream);
    MOTLEY_TRY_VOID(gather_staged(bytes, stream));
    kernels::JoinedParts joined{.ranks = ranks(),
                                .count = numbers.count,
                                .maxima = maxima,
                                .crosses = numbers.crosses,
                                .out = numbers.x};
    for (int each = 0; each < ranks(); ++each) joined.parts[each] = own_at(each * bytes);
    cuda::join_parts(joined, end_of(call), stream);
    return {};
  }

  // Each rank gets all parts of its piece, adds them up, and the sums come to all ranks. Pieces are
  // equal; what the last have beyond the numbers is not read.
  Result<void> join_pieces(const Numbers& numbers, StreamHandle stream) const {
    const std::int64_t each = rounded_up((numbers.count + ranks() - 1) / ranks(), pack);
    const std::int64_t bytes = each * bytes_of(numbers.crosses);
    cuda::stage_part({.x = numbers.x,
                      .count = numbers.count,
                      .has_part = numbers.has_part,
                      .crosses = numbers.crosses,
                      .to = staging_.own},
                     begin_of(RankCall::sum), stream);
    const auto at = [bytes](std::byte* buffer, int peer) {
      return std::span(buffer + peer * bytes, static_cast<std::size_t>(bytes));
    };
    MOTLEY_TRY_VOID(exchange(
        stream, [&](int peer) { return at(staging_.own, peer); },
        [&](int peer) { return at(staging_.others, peer); }));
    kernels::JoinedParts piece{.ranks = ranks(),
                               .count = each,
                               .crosses = numbers.crosses,
                               .out_type = numbers.crosses,
                               .out = own_at(rank() * bytes)};
    for (int from = 0; from < ranks(); ++from)
      piece.parts[from] = from == rank() ? own_at(from * bytes) : others_at(from * bytes);
    cuda::join_parts(piece, {}, stream);
    MOTLEY_TRY_VOID(gather_staged(bytes, stream));
    kernels::JoinedParts whole{
        .ranks = 1, .count = numbers.count, .crosses = numbers.crosses, .out = numbers.x};
    whole.parts[0] = staging_.own;
    cuda::join_parts(whole, end_of(RankCall::sum), stream);
    return {};
  }

  // Of every rank's part the numbers of `piece`, as far as there are some. They are sent from where
  // they are.
  Result<void> scatter_sum(std::span<const float> numbers, std::span<float> own, Range piece,
                           StreamHandle stream) const {
    const auto range_of = [&](int each) {
      const Range part = deal(static_cast<std::int64_t>(numbers.size()), ranks(), each);
      return Range{std::min(part.begin + piece.begin, part.end),
                   std::min(part.begin + piece.end, part.end)};
    };
    const Range mine = range_of(rank());
    cuda::mark_call(begin_of(RankCall::scattered_sum), stream);
    const auto others = [&](int peer) { return others_at(peer * piece.size() * floats); };
    MOTLEY_TRY_VOID(exchange(
        stream,
        [&](int peer) {
          const Range theirs = range_of(peer);
          return std::as_bytes(numbers.subspan(static_cast<std::size_t>(theirs.begin),
                                               static_cast<std::size_t>(theirs.size())));
        },
        [&](int peer) {
          return std::span(others(peer), static_cast<std::size_t>(mine.size() * floats));
        }));
    kernels::JoinedParts joined{.ranks = ranks(), .count = mine.size()};
    joined.out = mine.empty() ? nullptr : own.data() + piece.begin;
    for (int from = 0; from < ranks(); ++from) joined.parts[from] = others(from);
    joined.parts[rank()] = numbers.data() + mine.begin;
    cuda::join_parts(joined, end_of(RankCall::scattered_sum), stream);
    return {};
  }

  Result<void> gather_rows(const Columns& columns, std::int64_t begin, std::int64_t rows) const {
    kernels::StagedColumns staged{.rows = rows,
                                  .widest = deal(columns.width, ranks(), 0).size(),
                                  .ranks = ranks(),
                                  .staged = reinterpret_cast<float*>(staging_.own)};
    staged.apart = rounded_up(rows * staged.widest, pack);
    for (int each = 0; each < ranks(); ++each)
      staged.begin[each + 1] = deal(columns.width, ranks(), each).end;
    cuda::stage_columns(staged, rank(), columns.own + begin * columns.own_stride,
                        columns.own_stride, begin_of(RankCall::gather), columns.stream);
    MOTLEY_TRY_VOID(gather_staged(staged.apart * floats, columns.stream));
    cuda::unstage_columns(
        staged, columns.out == nullptr ? nullptr : columns.out + begin * columns.out_stride,
        columns.out_stride, end_of(RankCall::gather), columns.stream);
    return {};
  }

  const NcclLibrary& nccl_;
  kernels::Staging staging_;
  NcclComm* comm_ = nullptr;
  std::timed_mutex lock_;  // held while a call is queued
};

Result<std::unique_ptr<NcclRanks>> NcclRanks::create(const Options& options) {
  MOTLEY_TRY(const NcclLibrary nccl, NcclLibrary::open());
  MOTLEY_TRY(std::unique_ptr<cuda::StagingMemory> memory,
             cuda::StagingMemory::create({.gpus = options.gpus, .bytes = staging_bytes}));
  std::unique_ptr<NcclRanks> group(new NcclRanks(options, nccl, std::move(memory)));
  if (Result<void> connected = group->connect(options.gpus); !connected.ok()) {
    group->abort();  // a rank's kernel may wait for another
    return std::move(connected).error();
  }
  group->watch_thread_ = std::thread([own = group.get()] { own->watch(); });
  return group;
}

NcclRanks::NcclRanks(const Options& options, const NcclLibrary& nccl,
                     std::unique_ptr<cuda::StagingMemory> memory)
    : GpuRanks(static_cast<int>(options.gpus.size()), options.max_wait),
      nccl_(nccl),
      memory_(std::move(memory)),
      calls_(ranks(), options.max_wait),
      progress_(options.gpus.size()) {
  for (int rank = 0; rank < ranks(); ++rank)
    members_.push_back(std::make_unique<Member>(*this, rank, memory_->view(rank)));
}

NcclRanks::~NcclRanks() {
  {
    const std::lock_guard held(watch_lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watch_thread_.joinable()) watch_thread_.join();
  for (NcclComm* const comm : comms_) nccl_.destroy(comm);
}

// NCCL connects ranks when they first call each other, which waits for both. So each kind of call
// is made here once: later a rank may queue one, or record it, when the others do not.
Result<void> NcclRanks::connect(const std::vector<int>& gpus) {
  std::vector<NcclComm*> comms(gpus.size());
  MOTLEY_TRY_VOID(
      nccl_.check(nccl_.init_all(comms.data(), ranks(), gpus.data()), "connect the GPUs", nullptr));
  comms_ = std::move(comms);
  for (int rank = 0; rank < ranks(); ++rank)
    members_[static_cast<std::size_t>(rank)]->connect(comms_[static_cast<std::size_t>(rank)]);
  constexpr std::size_t bytes = 16;
  const auto on_all = [&](const auto& call) -> Result<void> {
    MOTLEY_TRY_VOID(nccl_.check(nccl_.group_start(), "begin a call", nullptr));
    NcclStatus queued = nccl_success;
    for (int rank = 0; rank < ranks() && queued == nccl_success; ++rank) queued = call(rank);
    const NcclStatus ended = nccl_.group_end();
    MOTLEY_TRY_VOID(nccl_.check(queued, "queue a first call", nullptr));
    return nccl_.check(ended, "queue a first call", nullptr);
  };
  const auto first_calls = [&](const std::vector<StreamHandle>& streams) -> Result<void> {
    const auto comm = [&](int rank) { return comms_[static_cast<std::size_t>(rank)]; };
    const auto stream = [&](int rank) { return streams[static_cast<std::size_t>(rank)].native; };
    MOTLEY_TRY_VOID(on_all([&](int rank) {
      std::byte* const own = memory_->view(rank).own;
      return nccl_.all_gather(own + static_cast<std::size_t>(rank) * bytes, own, bytes, nccl_bytes,
                              comm(rank), stream(rank));
    }));
    MOTLEY_TRY_VOID(on_all([&](int rank) {
      std::byte* const own = memory_->view(rank).own;
      return nccl_.broadcast(own, own, bytes, nccl_bytes, 0, comm(rank), stream(rank));
    }));
    return on_all([&](int rank) {
      const kernels::Staging staging = memory_->view(rank);
      NcclStatus queued = nccl_success;
      for (int k = 1; k < ranks() && queued == nccl_success; ++k) {
        const int peer = (rank + k) % ranks();
        queued = nccl_.send(staging.own, bytes, nccl_bytes, peer, comm(rank), stream(rank));
        if (queued != nccl_success) break;
        queued = nccl_.receive(staging.others + static_cast<std::size_t>(peer) * bytes, bytes,
                               nccl_bytes, peer, comm(rank), stream(rank));
      }
      return queued;
    });
  };
  return memory_->try_streams(first_calls, max_wait());
}

Communicator& NcclRanks::rank(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

void NcclRanks::end_waits() {
  {
    const std::lock_guard held(watch_lock_);
    ending_ = true;
  }
  changed_.notify_all();
}

void NcclRanks::watch() {
  const Duration between_looks = std::min<Duration>(max_wait() / 4, std::chrono::milliseconds(500));
  std::unique_lock held(watch_lock_);
  const auto is_over = [&] { return stopping_ || ending_; };
  while (!changed_.wait_for(held, between_looks, is_over)) {
    held.unlock();
    look();
    held.lock();
  }
  if (!ending_) return;
  held.unlock();
  abort();
}

void NcclRanks::look() {
  for (int rank = 0; rank < ranks(); ++rank) {
    progress_[static_cast<std::size_t>(rank)] = memory_->progress(rank);
    NcclComm* const comm = comms_[static_cast<std::size_t>(rank)];
    NcclStatus found = nccl_success;
    NcclStatus asked = nccl_.async_error(comm, &found);
    if (asked == nccl_success && found != nccl_in_progress) asked = found;
    if (Result<void> works = nccl_.check(asked, "go on", comm); !works.ok())
      return fail(std::move(works).error().within(cat("rank ", rank)));
  }
  const auto overdue = calls_.look(progress_, SteadyClock().now());
  if (!overdue) return;
  if (overdue->missing) return fail(missed(*overdue->missing, name_of(overdue->call)));
  fail(Error(ErrorCode::internal,
             cat("rank ", overdue->rank, " was not done with ", name_of(overdue->call), " within ",
                 format_seconds(seconds(max_wait())))));
}

// Kernels leave as soon as the group of calls has begun; it returns when NCCL has let go of all
// memory, and graphs are gone.
void NcclRanks::abort() {
  const auto let_calls_pass = [&](Duration wait) {
    const auto deadline = std::chrono::steady_clock::now() + wait;
    for (const auto& member : members_) member->let_calls_pass(deadline);
  };
  let_calls_pass(std::chrono::seconds(1));
  nccl_.group_start();
  for (NcclComm* const comm : comms_) nccl_.abort(comm);
  // A thread whose launch waited for room in its GPU's queue goes on when kernels leave.
  let_calls_pass(std::chrono::seconds(10));
  nccl_.group_end();
  comms_.clear();
}

}  // namespace motley::dist
