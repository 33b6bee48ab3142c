#include <type_traits>

#include "kernels/cuda/elementary/expert_of_place.cuh"
#include "kernels/cuda/elementary/input_codes.cuh"
#include "kernels/cuda/experts/code_inputs.h"
#include "kernels/cuda/primitives/launch.cuh"

// Rows with one scale: many have a warp each, few a block.
namespace motley::kernels::cuda {
namespace {

using namespace input_codes;

constexpr int block_threads = 256;  // of code_blocks

// A row of x is a token's or a place's.
template <DType type, int row_threads>
__global__ void __launch_bounds__(threads) code_rows(CodeExpertInputs p) {
  using Scales = InputRounding::Scales;
  launch_dependents();
  wait_for_previous_grid();
  constexpr int block_rows = threads / row_threads;
  const int t = static_cast<int>(threadIdx.x) % row_threads;
  const int row =
      static_cast<int>(blockIdx.x) * block_rows + static_cast<int>(threadIdx.x) / row_threads;
  const int routed = p.expert_begin[p.experts];
  if (row >= (p.places == nullptr ? routed : p.rows)) return;
  const int copies = p.places != nullptr ? p.experts_per_token : 1;
  const Bf16* const x = p.x + static_cast<std::size_t>(row) * p.width;
  const int pieces = p.width / piece;
  const bool fixed = p.rounding.scales == Scales::fixed;
  const float* const maxima = p.maxima.data != nullptr
                                  ? p.maxima.data + std::int64_t{p.pairs_of[row]} * p.maxima.stride
                                  : nullptr;
  RowTraits traits{};
  if (p.rounding.scales == Scales::row || type == DType::i8)
    traits = traits_of<row_threads>(x, pieces, t);
  if (p.rounding.scales == Scales::row && maxima != nullptr) traits.largest = maxima[0];
  for (int first = 0; first < pieces; first += row_threads) {
    const int at = first + t;
    const bool mine = at < pieces;
    Piece inputs{};
    if (mine) inputs = Piece::load(x + at * piece);
    float scale = 0;
    if (p.rounding.scales == Scales::row) scale = input_scale(p.rounding, traits.largest);
    if (!mine) continue;
    uint4 codes = fixed ? uint4{} : codes_of<type>(inputs, scale);
    for (int copy = 0; copy < copies; ++copy) {
      const int place = p.places != nullptr ? p.places[row * copies + copy] : row;
      if (place >= routed) continue;
      if (fixed) {
        scale = p.each[expert_of_place(p.expert_begin, p.experts, place)].rounding.scale;
        codes = codes_of<type>(inputs, scale);
      }
      *reinterpret_cast<uint4*>(p.to.codes + static_cast<std::size_t>(place) * p.width +
                                at * piece) = codes;
      if (at % block_pieces == 0)
        p.to.scales[at / block_pieces * p.to.pitch + place] =
            traits.has_nan && type == DType::i8 ? NAN : scale;
    }
  }
}

// Inputs that share a scale by blocks of 128: eight lanes have one, of any row.
template <DType type>
__global__ void __launch_bounds__(block_threads) code_blocks(CodeExpertInputs p) {
  launch_dependents();
  wait_for_previous_grid();
  const int pieces = p.width / piece;
  const int row_blocks = (pieces + block_pieces - 1) / block_pieces;
  const int number =
      (static_cast<int>(blockIdx.x) * block_threads + static_cast<int>(threadIdx.x)) / block_pieces;
  const int lane = static_cast<int>(threadIdx.x) % block_pieces;
  const int rows = static_cast<int>(p.rows);
  const int row = min(number / row_blocks, rows - 1);
  const int block = number % row_blocks;
  const int at = block * block_pieces + lane;
  const int routed = p.expert_begin[p.experts];
  const bool by_token = p.places != nullptr;
  const bool mine = number < rows * row_blocks && at < pieces && (by_token || row < routed);
  Piece inputs{};
  if (mine) inputs = Piece::load(p.x + static_cast<std::size_t>(row) * p.width + at * piece);
  // A lane loads the place of one copy.
  const int copies = by_token ? p.experts_per_token : 1;
  int place = row;
  if (by_token && lane < copies) place = p.places[row * copies + lane];
  float largest = largest_of_block(inputs.largest());
  if (p.maxima.data != nullptr && mine)
    largest = p.maxima.data[std::int64_t{p.pairs_of[row]} * p.maxima.stride + block];
  const float scale = input_scale(p.rounding, largest);
  const uint4 codes = codes_of<type>(inputs, scale);
  for (int copy = 0; copy < copies; ++copy) {
    if (copy > 0 && copy % block_pieces == 0 && copy + lane < copies)
      place = p.places[row * copies + copy + lane];
    const int to =
        by_token ? __shfl_sync(0xFFFFFFFF, place, copy % block_pieces, block_pieces) : place;
    if (!mine || to >= routed) continue;
    *reinterpret_cast<uint4*>(p.to.codes + static_cast<std::size_t>(to) * p.width + at * piece) =
        codes;
    if (lane == 0) p.to.scales[block * p.to.pitch + to] = scale;
  }
}

void launch_blocks(const CodeExpertInputs& p, StreamHandle stream) {
  const std::int64_t lanes = p.rows * ((p.width + 127) / 128) * block_pieces;
  launch("the codes of experts' inputs", code_blocks<DType::f8_e4m3>,
         {.grid = static_cast<unsigned>((lanes + block_threads - 1) / block_threads),
          .threads = block_threads},
         stream, p);
}

template <DType type>
void launch_rows(const CodeExpertInputs& p, StreamHandle stream) {
  constexpr std::int64_t few_rows = 512;
  const auto launch_by = [&](auto row_threads) {
    constexpr int block_rows = threads / row_threads.value;
    launch(
        "the codes of experts' inputs", code_rows<type, row_threads.value>,
        {.grid = static_cast<unsigned>((p.rows + block_rows - 1) / block_rows), .threads = threads},
        stream, p);
  };
  if (p.rows <= few_rows)
    launch_by(std::integral_constant<int, threads>());
  else
    launch_by(std::integral_constant<int, 32>());
}

}  // namespace

void code_expert_inputs(const CodeExpertInputs& p, StreamHandle stream) {
  if (p.rows <= 0 || p.width <= 0) return;
  if (p.rounding.scales == InputRounding::Scales::row_block)
    launch_blocks(p, stream);
  else if (p.rounding.type == DType::i8)
    launch_rows<DType::i8>(p, stream);
  else
    launch_rows<DType::f8_e4m3>(p, stream);
}

}  // namespace motley::kernels::cuda
