#pragma once

#include "base/system/stream_handle.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/recurrence.h"

namespace motley::kernels::cpu {

// A stream is a ThreadPool, as of cpu_table(). All instruction sets give the same bits.
// Float32 in every mode.
inline KeptTypes kept_types(const RecurrenceShape&, bool) { return {}; }
void recur(const Recur& p, StreamHandle stream, InstructionSet set);
void convolve(const Convolve& p, StreamHandle stream, InstructionSet set);
void gates(const DeltaGates& p, StreamHandle stream);

}  // namespace motley::kernels::cpu
