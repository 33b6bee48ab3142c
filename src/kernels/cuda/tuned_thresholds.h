// The thresholds of one device: the rows of a tuning, and the built-in ones (thresholds.h) behind
// them.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/thresholds.h"
#include "kernels/tuning/tuning.h"

namespace motley::kernels::cuda {

class DeviceThresholds {
 public:
  // Without a tuning only the built-in rows. Fails if the tuning names a kernel that does not
  // exist.
  static Result<std::unique_ptr<const DeviceThresholds>> make(const Tuning* tuning);
  DeviceThresholds(const DeviceThresholds&) = delete;
  DeviceThresholds& operator=(const DeviceThresholds&) = delete;

  std::span<const DenseThreshold> dense() const { return dense_; }
  std::span<const ExpertThreshold> experts() const { return experts_; }

 private:
  DeviceThresholds() = default;

  Result<void> add(const Tuning& tuning);

  // Rows point to these.
  std::list<DenseShape> dense_shapes_;
  std::list<ExpertLayerShape> layers_;
  std::vector<DenseThreshold> dense_;
  std::vector<ExpertThreshold> experts_;
};

// "128x16 boxes sort sum", as in a tuning.
std::string name_of(const GroupedTiles& tiles);

}  // namespace motley::kernels::cuda
