#include "dist/peer_ranks.h"

#include <utility>

#include "base/cat.h"
#include "base/check.h"

namespace motley::dist {

namespace cuda = kernels::cuda;

class PeerRanks::Member final : public GpuRanks::Member {
 public:
  Member(PeerRanks& group, const kernels::Peers& peers)
      : GpuRanks::Member(group, peers.rank), peers_(peers) {}

  Result<void> all_reduce(std::span<float> numbers, Part part, const Crossing& crossing) override {
    return launch_together(crossing.stream, sum, [&] {
      cuda::sum_over_peers(peers_,
                           {.x = numbers.data(),
                            .count = static_cast<std::int64_t>(numbers.size()),
                            .has_part = part == Part::own,
                            .crosses = crossing.type},
                           crossing.stream);
    });
  }

  bool fits_norm(const kernels::AddAndNorm& rows, DType type) const override {
    return cuda::sum_and_norm_fits({.rows = rows, .crosses = type});
  }

  Result<void> sum_and_norm(const kernels::AddAndNorm& rows, Part part,
                            const Crossing& crossing) override {
    return launch_together(crossing.stream, sum, [&] {
      cuda::sum_and_norm_over_peers(
          peers_, {.rows = rows, .has_part = part == Part::own, .crosses = crossing.type},
          crossing.stream);
    });
  }

  Result<void> all_max(std::span<float> numbers, Part part, StreamHandle stream) override {
    return launch_together(stream, "maxima over ranks", [&] {
      cuda::maxima_over_peers(peers_,
                              {.x = numbers.data(),
                               .count = static_cast<std::int64_t>(numbers.size()),
                               .has_part = part == Part::own},
                              stream);
    });
  }

  Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own,
                              StreamHandle stream) override {
    kernels::PeerScatteredSum scattered{.x = numbers.data(), .out = own.data()};
    const auto count = static_cast<std::int64_t>(numbers.size());
    for (int each = 0; each < ranks(); ++each)
      scattered.begin[each + 1] = deal(count, ranks(), each).end;
    MOTLEY_CHECK(static_cast<std::int64_t>(own.size()) == deal(count, ranks(), rank()).size(),
                 "a rank's part of the sum");
    return launch_together(stream, "a scattered sum over ranks",
                           [&] { cuda::scattered_sum_over_peers(peers_, scattered, stream); });
  }

  Result<void> all_gather(const Columns& columns) override {
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(float));
    kernels::PeerGather gather{.rows = columns.rows,
                               .own = columns.own,
                               .own_stride = columns.own_stride * bytes,
                               .out = columns.out,
                               .out_stride = columns.out_stride * bytes};
    for (int each = 0; each < ranks(); ++each)
      gather.begin[each + 1] = deal(columns.width, ranks(), each).end * bytes;
    MOTLEY_CHECK(columns.columns == deal(columns.width, ranks(), rank()), "columns that are dealt");
    return launch_together(columns.stream, "a gathering of rows",
                           [&] { cuda::gather_over_peers(peers_, gather, columns.stream); });
  }

  // Pieces of parts are columns of one row, with the rest of each part between them.
  Result<void> gather_parts(const Parts& parts) override {
    return launch_together(parts.stream, "a gathering of parts", [&] {
      for (std::int64_t begin = 0; begin < parts.bytes; begin += bytes_at_once) {
        const std::int64_t bytes = std::min(parts.bytes - begin, bytes_at_once);
        std::byte* const out = parts.data + begin;
        kernels::PeerGather gather{.rows = 1,
                                   .own = out + rank() * parts.bytes,
                                   .apart = parts.bytes - bytes,
                                   .in_place = true,
                                   .out = out};
        for (int each = 0; each < ranks(); ++each) gather.begin[each + 1] = (each + 1) * bytes;
        cuda::gather_over_peers(peers_, gather, parts.stream);
      }
    });
  }

  // The root's bytes are all columns of one row.
  Result<void> broadcast(std::span<std::byte> bytes, int root, StreamHandle stream) override {
    const auto count = static_cast<std::int64_t>(bytes.size());
    return launch_together(stream, "a broadcast", [&] {
      for (std::int64_t begin = 0; begin < count; begin += bytes_at_once) {
        std::byte* const data = bytes.data() + begin;
        kernels::PeerGather gather{.rows = 1, .own = data, .out = rank() == root ? nullptr : data};
        for (int each = root; each < ranks(); ++each)
          gather.begin[each + 1] = std::min(count - begin, bytes_at_once);
        cuda::gather_over_peers(peers_, gather, stream);
      }
    });
  }

  Result<void> barrier(StreamHandle stream) override {
    return launch_together(stream, "a barrier",
                           [&] { cuda::gather_over_peers(peers_, {}, stream); });
  }

 private:
  static constexpr std::int64_t bytes_at_once = std::int64_t{16} << 20;
  static constexpr std::string_view sum = "a sum over ranks";

  kernels::Peers peers_;
};

Result<std::unique_ptr<PeerRanks>> PeerRanks::create(const Options& options) {
  MOTLEY_TRY(std::unique_ptr<cuda::PeerMemory> memory,
             cuda::PeerMemory::create({.gpus = options.gpus, .max_wait = options.max_wait}));
  return std::unique_ptr<PeerRanks>(new PeerRanks(options, std::move(memory)));
}

PeerRanks::PeerRanks(const Options& options, std::unique_ptr<cuda::PeerMemory> memory)
    : GpuRanks(static_cast<int>(options.gpus.size()), options.max_wait),
      memory_(std::move(memory)) {
  for (int rank = 0; rank < ranks(); ++rank)
    members_.push_back(std::make_unique<Member>(*this, memory_->view(rank)));
}

PeerRanks::~PeerRanks() = default;

Communicator& PeerRanks::rank(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

std::optional<Error> PeerRanks::reported() {
  for (int rank = 0; rank < ranks(); ++rank)
    if (const auto lost = memory_->lost(rank)) return missed(lost->rank, lost->call);
  return std::nullopt;
}

void PeerRanks::end_waits() { memory_->end(); }

}  // namespace motley::dist
