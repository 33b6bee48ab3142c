#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/elementary.h"
#include "recurrence/world.h"

namespace motley::recurrence_tests {

class CpuMachine : public Machine {
 public:
  explicit CpuMachine(const kernels::RecurrenceTable& kernels = *kernels::cpu_table().recurrence,
                      StreamHandle stream = {})
      : kernels_(&kernels), stream_(stream) {}

  void* allocate(std::size_t bytes) override {
    arrays_.push_back(std::make_unique<std::byte[]>(bytes));
    return arrays_.back().get();
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  const kernels::RecurrenceTable& kernels() const override { return *kernels_; }
  StreamHandle stream() const override { return stream_; }

 private:
  const kernels::RecurrenceTable* kernels_;
  StreamHandle stream_;
  std::vector<std::unique_ptr<std::byte[]>> arrays_;
};

}  // namespace motley::recurrence_tests
