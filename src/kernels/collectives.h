#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "base/system/stream_handle.h"
#include "kernels/elementary.h"

// What ranks on GPUs compute together, over memory of each other that their GPUs address. Every
// rank makes the same calls in the same order, each on one stream of its own; a call is queued, and
// may be captured: nothing that it depends on changes between launches but memory of the devices.
//
// Sums are added in order of ranks, so all ranks have the same bits. A wait for another rank is
// bounded: when it ends the group has failed, later calls wait for none, and results are undefined.
namespace motley::kernels {

inline constexpr int max_peers = 8;

// One rank's view of the group's memory.
struct Peers {
  int rank = 0;
  int ranks = 1;
  std::byte* memory[max_peers]{};   // of each rank, as this rank's GPU addresses it
  std::uint32_t* report = nullptr;  // this rank's PeerMemory::Lost, in the host's memory
  std::uint32_t* ended = nullptr;   // not 0 once the group has failed; in the host's memory
  std::uint64_t max_wait_ns = 0;
  int blocks = 1;          // of a launch at most: all ranks' blocks have room to wait
  bool share_gpu = false;  // ranks have one GPU: blocks that wait leave room for the others'
};

// x = its sum over ranks. A rank without a part adds nothing, and its x is not read.
struct PeerSum {
  float* x = nullptr;
  std::int64_t count = 0;
  bool has_part = true;
  // bf16: every part is rounded to it, and so is the sum, which is added in f32.
  DType crosses = DType::f32;
};

// rows.add.b's sum over ranks, which is not written, then rows. For what sum_and_norm_fits() takes.
struct PeerSumAndNorm {
  AddAndNorm rows{};
  bool has_part = true;
  DType crosses = DType::f32;
};

// x = its maxima over ranks. No number is negative; a rank without a part counts as zeros.
struct PeerMaxima {
  float* x = nullptr;
  std::int64_t count = 0;
  bool has_part = true;
};

// out = this rank's part of the sum. Rank r's part is [begin[r], begin[r + 1]).
struct PeerScatteredSum {
  const float* x = nullptr;
  float* out = nullptr;
  std::int64_t begin[max_peers + 1]{};
};

// Rows whose columns are cut over ranks: rank r has columns [begin[r], begin[r + 1]), in bytes.
// Ranks without an out get nothing.
struct PeerGather {
  std::int64_t rows = 0;
  const void* own = nullptr;
  std::int64_t own_stride = 0;  // in bytes
  std::int64_t begin[max_peers + 1]{};
  // Bytes that lie between a rank's columns and the next one's in a row of `out`: in `own` and
  // where ranks send them there are none.
  std::int64_t apart = 0;
  bool in_place = false;  // a rank's own columns are in `out` already
  void* out = nullptr;
  std::int64_t out_stride = 0;  // in bytes
};

// Rows of which a rank has some columns: the sum of their squares.
struct RowSquares {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  float* sums = nullptr;  // [rows]
};
// x *= weight / sqrt(sums / whole_width + eps)
struct ScaleByNorm {
  RowSquares squares{};
  std::int64_t whole_width = 0;
  float eps = 1e-6F;
  const float* weight = nullptr;  // [width]
  float* x = nullptr;
};

namespace cuda {

// Numbers of this many bytes, as they cross, are sent to all ranks at once, which each add them up;
// of more each rank adds up a part.
inline constexpr std::int64_t max_one_shot_bytes = std::int64_t{256} << 10;

void sum_over_peers(const Peers& peers, const PeerSum& p, StreamHandle stream);
bool sum_and_norm_fits(const PeerSumAndNorm& p);
void sum_and_norm_over_peers(const Peers& peers, const PeerSumAndNorm& p, StreamHandle stream);
void maxima_over_peers(const Peers& peers, const PeerMaxima& p, StreamHandle stream);
void scattered_sum_over_peers(const Peers& peers, const PeerScatteredSum& p, StreamHandle stream);
// Without rows: a barrier between the streams.
void gather_over_peers(const Peers& peers, const PeerGather& p, StreamHandle stream);

// Whether what is launched on the stream is recorded in a graph instead.
bool is_recorded(StreamHandle stream);

// Of one rank alone.
void row_squares(const RowSquares& p, StreamHandle stream);
void scale_by_norm(const ScaleByNorm& p, StreamHandle stream);
// out = ids - first
void shift_ids(const std::int32_t* ids, std::int32_t first, std::int64_t rows, std::int32_t* out,
               StreamHandle stream);

// The group's memory, on each rank's GPU and on the host.
class PeerMemory {
 public:
  struct Options {
    std::vector<int> gpus;  // of each rank; ranks may share one
    Duration max_wait{};
  };
  // An error names GPUs that can't address each other's memory.
  static Result<std::unique_ptr<PeerMemory>> create(const Options& options);
  PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  // No call may be queued.
  virtual ~PeerMemory() = default;

  virtual Peers view(int rank) const = 0;
  // Ends all waits, of all ranks, from now on.
  virtual void end() = 0;
  // What ended a wait of that rank, if any has exceeded its bound.
  struct Lost {
    int rank = 0;           // that did not come
    std::string_view call;  // to this
  };
  virtual std::optional<Lost> lost(int rank) const = 0;
};

}  // namespace cuda
}  // namespace motley::kernels
