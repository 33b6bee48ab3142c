#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/cpu/recurrence.h"
#include "recurrence/machine_cpu.h"

namespace motley::recurrence_tests {

std::unique_ptr<Machine> open_machine() { return std::make_unique<CpuMachine>(); }

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {{.name = "f32"}};
  return all;
}

namespace {

using kernels::cpu::InstructionSet;

// The kernels of an instruction set, as a table. A table's functions have no room for it.
InstructionSet chosen = InstructionSet::plain;
constexpr kernels::RecurrenceTable of_chosen{
    .recur = [](const kernels::Recur& p,
                StreamHandle stream) { kernels::cpu::recur(p, stream, chosen); },
    .convolve = [](const kernels::Convolve& p,
                   StreamHandle stream) { kernels::cpu::convolve(p, stream, chosen); },
    .gates = kernels::cpu::gates};

class RecurrenceOnCpu : public testing::TestWithParam<Mixer> {};
INSTANTIATE_TEST_SUITE_P(Mixers, RecurrenceOnCpu, testing::ValuesIn(mixers()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(RecurrenceOnCpu, EveryInstructionSetAndNumberOfThreadsHasTheSameBits) {
  const Mixer& mixer = GetParam();
  constexpr std::int64_t count = 50;
  const InputRows rows = make_rows(mixer, count, 7);
  chosen = InstructionSet::plain;
  Slots first(mixer, forms().front(), 1, std::make_unique<CpuMachine>(of_chosen));
  Place place;
  const Outputs expected = first.step({{&place, &rows, count}});
  ThreadPool pool({.threads = 3});
  for (const InstructionSet set : kernels::cpu::available_instruction_sets()) {
    chosen = set;
    Slots slots(mixer, forms().front(), 1,
                std::make_unique<CpuMachine>(of_chosen, StreamHandle{.native = &pool}));
    Place again;
    const Outputs got = slots.step({{&again, &rows, count}});
    EXPECT_EQ(got.mixed, expected.mixed) << name(set);
    EXPECT_EQ(got.convolved, expected.convolved) << name(set);
  }
}

}  // namespace
}  // namespace motley::recurrence_tests
