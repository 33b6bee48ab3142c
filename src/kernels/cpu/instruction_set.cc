#include "kernels/cpu/instruction_set.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/check.h"
#include "base/system/cpu.h"

namespace motley::kernels::cpu {
namespace {

// Relaxed: a test chooses before it starts the threads that multiply.
std::atomic<InstructionSet>& chosen_set() {
  static std::atomic<InstructionSet> chosen{available_instruction_sets().back()};
  return chosen;
}

}  // namespace

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

InstructionSet current_instruction_set() { return chosen_set().load(std::memory_order_relaxed); }

UseInstructionSet::UseInstructionSet(InstructionSet set) {
  const auto available = available_instruction_sets();
  MOTLEY_CHECK(std::ranges::find(available, set) != available.end(), "a set of this machine");
  MOTLEY_CHECK(current_instruction_set() == available.back(), "one choice at a time");
  chosen_set().store(set, std::memory_order_relaxed);
}

UseInstructionSet::~UseInstructionSet() {
  chosen_set().store(available_instruction_sets().back(), std::memory_order_relaxed);
}

}  // namespace motley::kernels::cpu
