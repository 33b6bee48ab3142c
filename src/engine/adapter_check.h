#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace motley::engine {

// The largest difference that the adapter makes to the log-probabilities of these tokens. Both runs
// are internal requests like any other, and are waited for. 0: it changes nothing.
Result<double> effect_of_adapter(Engine& engine, const std::vector<std::int32_t>& tokens,
                                 const std::string& adapter);

// Tries adapters one after the other, on its own thread, and logs a warning for each that changes
// nothing.
class AdapterChecker {
 public:
  // The engine must outlive it. At least two tokens.
  AdapterChecker(Engine& engine, std::vector<std::int32_t> tokens);
  // The checks that have not begun are left out. The engine must have been shut down if one may be
  // in progress.
  ~AdapterChecker();
  AdapterChecker(const AdapterChecker&) = delete;
  AdapterChecker& operator=(const AdapterChecker&) = delete;

  // Thread-safe.
  void add(std::string adapter);
  // Waits until all have been checked: for tests.
  void wait();

 private:
  void work();
  void check(const std::string& adapter);

  Engine& engine_;
  std::vector<std::int32_t> tokens_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  bool working_ = false;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace motley::engine
