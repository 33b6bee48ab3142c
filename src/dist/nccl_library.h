#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"

// What is used of NCCL 2, which is opened at run time: its names and codes as its binary interface
// has them.
struct ncclComm;

namespace motley::dist {

using NcclComm = ncclComm;
using NcclStatus = int;
inline constexpr NcclStatus nccl_success = 0;
inline constexpr NcclStatus nccl_in_progress = 7;
// Only bytes are moved, whatever they mean.
inline constexpr int nccl_bytes = 1;

struct NcclLibrary {
  // An error says what is missing and how to get it, or which version is too old.
  static Result<NcclLibrary> open();

  // An error of NCCL, in words; `comm` may be null.
  Result<void> check(NcclStatus status, std::string_view action, const NcclComm* comm) const;

  NcclStatus (*get_version)(int* version) = nullptr;
  NcclStatus (*init_all)(NcclComm** comms, int count, const int* gpus) = nullptr;
  NcclStatus (*destroy)(NcclComm* comm) = nullptr;
  NcclStatus (*abort)(NcclComm* comm) = nullptr;
  NcclStatus (*async_error)(NcclComm* comm, NcclStatus* status) = nullptr;
  const char* (*error_string)(NcclStatus status) = nullptr;
  const char* (*last_error)(const NcclComm* comm) = nullptr;
  NcclStatus (*group_start)() = nullptr;
  NcclStatus (*group_end)() = nullptr;
  NcclStatus (*all_gather)(const void* part, void* all, std::size_t count, int type, NcclComm* comm,
                           void* stream) = nullptr;
  NcclStatus (*broadcast)(const void* from, void* to, std::size_t count, int type, int root,
                          NcclComm* comm, void* stream) = nullptr;
  NcclStatus (*send)(const void* from, std::size_t count, int type, int peer, NcclComm* comm,
                     void* stream) = nullptr;
  NcclStatus (*receive)(void* to, std::size_t count, int type, int peer, NcclComm* comm,
                        void* stream) = nullptr;
};

// Sets variables of the environment that NCCL reads when it begins, whatever the user has set.
// NcclLibrary::open() calls it; a program calls it before other threads begin, as they may read the
// environment.
// - NCCL_NVLS_ENABLE=0: no NVLink multicast. It is set up in the host's switches, and a program
//   that uses it can put GPUs that others use out of service.
// - NCCL_GRAPH_REGISTER=0: a call that is recorded does not ask other ranks to map its memory, as
//   ranks record one after the other.
// - NCCL_LAUNCH_MODE=PARALLEL: for the same reason ranks do not wait for each other to launch.
void set_nccl_environment();

}  // namespace motley::dist
