#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "dist/launch_gate.h"
#include "runner/other_ranks.h"
#include "serving/engine_settings.h"
#include "tensor/device/device.h"

// Which devices the ranks of all replicas have.
namespace motley::serving {

// Decides what the settings leave open: whether several ranks are on GPUs, and on which. Refuses
// more GPUs than there are. Call it before anything is loaded, and before other threads run: it
// sets the environment of CUDA and NCCL.
Result<ComputeSettings> choose_devices(ComputeSettings settings);

// The GPUs of all ranks of all replicas where there are so many.
Result<std::vector<int>> gpus_of_ranks(const ComputeSettings& settings, int gpus_here);

// Refuses settings that the device does not support.
Result<std::unique_ptr<tensor::Device>> open_device(const ComputeSettings& settings);

// The other ranks of an engine whose first has this device, from open_device(); null: there are
// none. On a CPU each rank has an equal share of the processors. `gate`: of all replicas.
Result<std::unique_ptr<runner::OtherRanks>> make_other_ranks(
    const ComputeSettings& settings, const tensor::Device& first,
    std::shared_ptr<dist::LaunchGate> gate = {});

// The settings of one replica: its part of the GPUs.
ComputeSettings settings_of_replica(ComputeSettings settings, int replica);

}  // namespace motley::serving
