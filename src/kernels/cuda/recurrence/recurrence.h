#pragma once

#include "base/result.h"
#include "kernels/recurrence.h"

// Kernels of layers that keep a state for each sequence (docs/design/kernels-recurrence.md).
namespace motley::kernels::cuda {

KeptTypes kept_types(const RecurrenceShape& shape, bool exact);
void recur(const Recur& params, StreamHandle stream);
void convolve(const Convolve& params, StreamHandle stream);
void gates(const DeltaGates& params, StreamHandle stream);
bool takes_delta_inputs(const DeltaInputs& params);
void delta_inputs(const DeltaInputs& params, StreamHandle stream);

inline constexpr RecurrenceTable recurrence_table{.kept_types = kept_types,
                                                  .recur = recur,
                                                  .convolve = convolve,
                                                  .gates = gates,
                                                  .takes_delta_inputs = takes_delta_inputs,
                                                  .delta_inputs = delta_inputs};

// Sets attributes of kernels on the device that is being opened.
Result<void> prepare_recurrence();

}  // namespace motley::kernels::cuda
