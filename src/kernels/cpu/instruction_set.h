#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// Which loops run on this machine, for the kernels' own use and for tests, which run them all.
namespace motley::kernels {
struct ElementaryTable;
}

namespace motley::kernels::cpu {

struct GemmTile;
struct TransposedTile;
struct ExpandTile;

// Each one includes those before it.
enum class InstructionSet : std::uint8_t {
  plain,        // what every x86-64 has
  avx2,         // with FMA and F16C
  avx512,       // F, BW, DQ, VL
  avx512_vnni,  // and sums of four int8 products
  avx512_bf16,  // and sums of two bf16 products
};

std::string_view name(InstructionSet set);

// Those of this machine, ascending; kernels use the last.
std::span<const InstructionSet> available_instruction_sets();

// Which one products run on that are not told: the last, unless a test chooses.
InstructionSet current_instruction_set();

// Products of the whole process run on this set while it lives: for tests of what stands above
// kernels. One at a time.
class UseInstructionSet {
 public:
  explicit UseInstructionSet(InstructionSet set);
  ~UseInstructionSet();
  UseInstructionSet(const UseInstructionSet&) = delete;
  UseInstructionSet& operator=(const UseInstructionSet&) = delete;
};

void gemm_tile(InstructionSet set, const GemmTile& tile);
void transposed_tile(InstructionSet set, const TransposedTile& tile);
void expand_tile(InstructionSet set, const ExpandTile& tile);
const ElementaryTable& elementary_table(InstructionSet set);

}  // namespace motley::kernels::cpu
