#include "dist/nccl_library.h"

#include <array>
#include <cstdlib>
#include <string>

#include "base/cat.h"
#include "base/system/nvidia_libraries.h"

namespace motley::dist {
namespace {

struct Variable {
  const char* name;
  const char* value;
};
constexpr auto environment = std::to_array<Variable>(
    {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_GRAPH_REGISTER", "0"}, {"NCCL_LAUNCH_MODE", "PARALLEL"}});

// 2.20: what the code relies on is there since then, or for longer.
constexpr int least_version = 22000;

template <class Function>
Result<void> find(Function& function, const char* name) {
  MOTLEY_TRY(function, nvidia_function<Function>(NvidiaLibrary::nccl, name));
  return {};
}

Result<void> find_all(NcclLibrary& nccl) {
  MOTLEY_TRY_VOID(find(nccl.get_version, "ncclGetVersion"));
  MOTLEY_TRY_VOID(find(nccl.init_all, "ncclCommInitAll"));
  MOTLEY_TRY_VOID(find(nccl.destroy, "ncclCommDestroy"));
  MOTLEY_TRY_VOID(find(nccl.abort, "ncclCommAbort"));
  MOTLEY_TRY_VOID(find(nccl.async_error, "ncclCommGetAsyncError"));
  MOTLEY_TRY_VOID(find(nccl.error_string, "ncclGetErrorString"));
  MOTLEY_TRY_VOID(find(nccl.last_error, "ncclGetLastError"));
  MOTLEY_TRY_VOID(find(nccl.group_start, "ncclGroupStart"));
  MOTLEY_TRY_VOID(find(nccl.group_end, "ncclGroupEnd"));
  MOTLEY_TRY_VOID(find(nccl.all_gather, "ncclAllGather"));
  MOTLEY_TRY_VOID(find(nccl.broadcast, "ncclBroadcast"));
  MOTLEY_TRY_VOID(find(nccl.send, "ncclSend"));
  return find(nccl.receive, "ncclRecv");
}

}  // namespace

void set_nccl_environment() {
  constexpr int overwrites = 1;
  for (const auto& [name, value] : environment) setenv(name, value, overwrites);
}

Result<NcclLibrary> NcclLibrary::open() {
  set_nccl_environment();
  NcclLibrary nccl;
  MOTLEY_TRY_VOID(find_all(nccl));
  int version = 0;
  MOTLEY_TRY_VOID(nccl.check(nccl.get_version(&version), "tell its version", nullptr));
  if (version < least_version)
    return Error(ErrorCode::unavailable, cat("NCCL ", version, " is too old"), "libnccl.so.2",
                 "install NCCL 2.20 or newer (pip install nvidia-nccl-cu13)");
  return nccl;
}

Result<void> NcclLibrary::check(NcclStatus status, std::string_view action,
                                const NcclComm* comm) const {
  if (status == nccl_success) return {};
  const char* const reason = last_error(comm);
  std::string what = cat("NCCL failed to ", action, ": ", error_string(status));
  if (reason != nullptr && *reason != '\0') what += cat(", ", reason);
  return Error(ErrorCode::internal, std::move(what), "nccl",
               "NCCL_DEBUG=INFO says more; check the GPUs with nvidia-smi, and that /dev/shm has "
               "room");
}

}  // namespace motley::dist
