// The kernels of adapter deltas behind linear maps, as values. A delta is a shrink into rank space
// and an expand out of it; both must agree on the layout in between.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/adapters/delta_launches.h"

namespace motley::kernels::cuda {

// The layout of AdaptLinears::rank_rows.
enum class RankLayout : std::uint8_t {
  none,    // ranks stay on the chip: one kernel shrinks and expands
  terms,   // [rows][maps][rank_chunk]: terms in order, each rounded up to 8 ranks
  panels,  // the same, but no panel crosses the end of a chunk
  slices,  // [slices of K][rows][maps][rank_chunk]: not summed; terms rounded up to 16 ranks
};

// The number of rank chunks for rows of at most `max_ranks` ranks.
int rank_chunks(RankLayout layout, std::int32_t max_ranks);

struct ShrinkKernel {
  KernelInfo info;
  RankLayout writes = RankLayout::none;
  Support (*supports)(const AdaptLinears&) = nullptr;
  void (*run)(const AdaptLinears&, int chunk, StreamHandle) = nullptr;
};

struct ExpandKernel {
  KernelInfo info;
  RankLayout reads = RankLayout::none;
  Epilogue epilogue = Epilogue::store;
  Support (*supports)(const DeltaProblem&) = nullptr;
  void (*run)(const DeltaProblem&, const RankChunk&, StreamHandle) = nullptr;
};

// A pair of kernels that do not agree does not compile.
class Delta {
 public:
  consteval explicit Delta(const ExpandKernel& both) : expand_(&both) {
    if (both.reads != RankLayout::none) expand_needs_a_shrink();
  }
  consteval Delta(const ShrinkKernel& shrink, const ExpandKernel& expand)
      : shrink_(&shrink), expand_(&expand) {
    if (shrink.writes != expand.reads || shrink.writes == RankLayout::none) layouts_differ();
    if (!(shrink.info.arithmetic == expand.info.arithmetic)) arithmetics_differ();
  }

  const ShrinkKernel* shrink() const { return shrink_; }  // null: the expand kernel shrinks, too
  const ExpandKernel& expand() const { return *expand_; }
  Arithmetic arithmetic() const { return expand_->info.arithmetic; }
  Support supports(const DeltaProblem& problem) const;
  void run(const DeltaProblem& problem, StreamHandle stream) const;

 private:
  // Never defined: calling one makes a constant expression ill-formed.
  static void expand_needs_a_shrink();
  static void layouts_differ();
  static void arithmetics_differ();

  const ShrinkKernel* shrink_ = nullptr;
  const ExpandKernel* expand_;
};

// Checks that the kernels below share.
Support supports_any(const AdaptLinears& call);
Support supports_stored(const DeltaProblem& problem);
Support supports_few_rows(const DeltaProblem& problem);
Support supports_bf16_rows(const AdaptLinears& call);
Support supports_factor_type(const DeltaProblem& problem);
Support supports_slices(const AdaptLinears& call);
Support supports_listed_groups(const DeltaProblem& problem);

// Sums over columns in order, then over ranks in order. A row's bits do not depend on how many rows
// share a block.
inline constexpr Arithmetic delta_in_order{"delta_in_order"};
// The order of sums of tiles.cuh: runs, slices, panels.
inline constexpr Arithmetic delta_in_slices{"delta_in_slices"};

inline constexpr ShrinkKernel shrink_plain_1_kernel{
    .info = {.name = "shrink_plain_1", .arithmetic = delta_in_order, .tile = {.rows = 1}},
    .writes = RankLayout::terms,
    .supports = supports_any,
    .run = shrink_plain_1};
inline constexpr ShrinkKernel shrink_plain_8_kernel{
    .info = {.name = "shrink_plain_8", .arithmetic = delta_in_order, .tile = {.rows = 8}},
    .writes = RankLayout::terms,
    .supports = supports_any,
    .run = shrink_plain_8};
inline constexpr ShrinkKernel shrink_slices_kernel{
    .info = {.name = "shrink_slices",
             .architecture = Architecture::sm_90a,
             .arithmetic = delta_in_slices,
             .tile = {.outputs = 8, .rows = 16, .k = 64}},
    .writes = RankLayout::slices,
    .supports = supports_slices,
    .run = shrink_slices};
inline constexpr ShrinkKernel shrink_panels_kernel{
    .info = {.name = "shrink_panels",
             .architecture = Architecture::sm_90a,
             .arithmetic = delta_in_slices,
             .tile = {.outputs = panel_ranks, .rows = 32, .k = 64}},
    .writes = RankLayout::panels,
    .supports = supports_bf16_rows,
    .run = shrink_panels};

inline constexpr ExpandKernel expand_plain_1_kernel{.info = {.name = "expand_plain_1",
                                                             .arithmetic = delta_in_order,
                                                             .tile = {.outputs = 128, .rows = 1}},
                                                    .reads = RankLayout::terms,
                                                    .supports = supports_stored,
                                                    .run = expand_plain_1};
inline constexpr ExpandKernel expand_plain_8_kernel{.info = {.name = "expand_plain_8",
                                                             .arithmetic = delta_in_order,
                                                             .tile = {.outputs = 128, .rows = 8}},
                                                    .reads = RankLayout::terms,
                                                    .supports = supports_stored,
                                                    .run = expand_plain_8};
inline constexpr ExpandKernel delta_in_cluster_kernel{
    .info = {.name = "delta_in_cluster",
             .architecture = Architecture::sm_90a,
             .arithmetic = delta_in_slices,
             .tile = {.outputs = 256, .rows = 16, .k = 64}},
    .supports = supports_few_rows,
    .run = delta_in_cluster};
inline constexpr ExpandKernel expand_slices_kernel{
    .info = {.name = "expand_slices",
             .architecture = Architecture::sm_90a,
             .arithmetic = delta_in_slices,
             .tile = {.outputs = 32, .rows = 16, .k = 16}},
    .reads = RankLayout::slices,
    .supports = supports_listed_groups,
    .run = expand_slices};
inline constexpr ExpandKernel expand_panels_kernel{
    .info = {.name = "expand_panels",
             .architecture = Architecture::sm_90a,
             .arithmetic = delta_in_slices,
             .tile = {.outputs = 1024, .rows = 32, .k = 16}},
    .reads = RankLayout::panels,
    .supports = supports_factor_type,
    .run = expand_panels};
inline constexpr ExpandKernel expand_heads_kernel{.info = {.name = "expand_heads",
                                                           .architecture = Architecture::sm_90a,
                                                           .arithmetic = delta_in_slices,
                                                           .tile = {.rows = 32, .k = 16}},
                                                  .reads = RankLayout::panels,
                                                  .epilogue = Epilogue::heads,
                                                  .supports = supports_heads,
                                                  .run = expand_heads};
inline constexpr ExpandKernel expand_norm_kernel{.info = {.name = "expand_norm",
                                                          .architecture = Architecture::sm_90a,
                                                          .arithmetic = delta_in_slices,
                                                          .tile = {.rows = 8, .k = 16}},
                                                 .reads = RankLayout::panels,
                                                 .epilogue = Epilogue::norm,
                                                 .supports = supports_norm,
                                                 .run = expand_norm};

// The delta to run where several apply. Depends on the problem and on thresholds.h alone, not on
// the adapters of other rows nor on the base products. Null: none applies.
const Delta* select_delta(const DeltaProblem& problem);
// Lists every delta with the problem's epilogue and why it does not apply.
std::string refusals(const DeltaProblem& problem);

}  // namespace motley::kernels::cuda
