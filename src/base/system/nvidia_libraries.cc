#include "base/system/nvidia_libraries.h"

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cat.h"

namespace motley {
namespace {

struct Wanted {
  std::string_view name;
  std::string_view needed_for;
  std::string_view fix;
  // Newest first; the major version must be the one whose ABI the code uses.
  std::vector<std::string> candidates;
};

const Wanted& wanted(NvidiaLibrary library) {
  static const std::array<Wanted, 3> table = {
      Wanted{.name = "NVIDIA's driver",
             .needed_for = "--device cuda",
             .fix = "install the driver of the GPU, or use --device cpu",
             .candidates = {"libcuda.so.1"}},
      Wanted{.name = "cuBLASLt 13",
             .needed_for = "--device cuda",
             .fix =
                 "install the CUDA 13 libraries (pip install nvidia-cublas and put its lib folder "
                 "on LD_LIBRARY_PATH, or NVIDIA's packages), or use --device cpu",
             .candidates = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"}},
      Wanted{.name = "NCCL 2",
             .needed_for = "--ranks-over nccl",
             .fix = "install NCCL (pip install nvidia-nccl-cu13 and put its lib folder on "
                    "LD_LIBRARY_PATH, or NVIDIA's packages), or use --tp 1",
             .candidates = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}}};
  return table[static_cast<std::size_t>(library)];
}

Result<DynamicLibrary> open(NvidiaLibrary library) {
  const Wanted& want = wanted(library);
  auto opened = DynamicLibrary::open(want.candidates);
  if (opened.ok()) return opened;
  return Error(ErrorCode::unavailable, cat(want.needed_for, " needs ", want.name),
               opened.error().where(), std::string(want.fix));
}

}  // namespace

Result<const DynamicLibrary*> nvidia_library(NvidiaLibrary library) {
  struct Slot {
    std::once_flag once;
    std::optional<Result<DynamicLibrary>> opened;
  };
  static std::array<Slot, 3> slots;
  Slot& slot = slots[static_cast<std::size_t>(library)];
  std::call_once(slot.once, [&] { slot.opened = open(library); });
  if (!slot.opened->ok()) return slot.opened->error();
  return &slot.opened->value();
}

}  // namespace motley
