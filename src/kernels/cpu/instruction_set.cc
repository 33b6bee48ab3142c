#include "kernels/cpu/instruction_set.h"

#include <array>

#include "base/system/cpu.h"

namespace motley::kernels::cpu {

std::string_view name(InstructionSet set) {
  constexpr std::array<std::string_view, 5> names = {"plain", "avx2", "avx512", "avx512_vnni",
                                                     "avx512_bf16"};
  return names[static_cast<std::size_t>(set)];
}

std::span<const InstructionSet> available_instruction_sets() {
  static constexpr std::array all = {InstructionSet::plain, InstructionSet::avx2,
                                     InstructionSet::avx512, InstructionSet::avx512_vnni,
                                     InstructionSet::avx512_bf16};
  const CpuFeatures& cpu = cpu_features();
  std::size_t count = 1;
  if (cpu.avx2) count = 2;
  if (cpu.avx512) count = 3;
  if (cpu.avx512_vnni) count = 4;
  if (cpu.avx512_vnni && cpu.avx512_bf16) count = 5;
  return std::span(all).first(count);
}

}  // namespace motley::kernels::cpu
