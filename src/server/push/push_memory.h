#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/result.h"
#include "base/system/unnamed_file.h"
#include "lora/files/content.h"

namespace motley::server {

// Where contents of pushed adapters are held, in the host's memory or in files without names, and
// how many bytes of them there may be: those that loads may read, and those that are still coming.
// Thread-safe.
class PushMemory {
 public:
  struct Options {
    std::uint64_t max_bytes = std::uint64_t{1} << 30;
    std::filesystem::path folder = {};  // empty: memory
  };
  explicit PushMemory(Options options);
  // Contents that are still used are freed where their last use ends.
  ~PushMemory();
  PushMemory(const PushMemory&) = delete;
  PushMemory& operator=(const PushMemory&) = delete;

 private:
  struct State;

 public:
  // The bytes of one content; given back when it is destroyed.
  class Share {
   public:
    explicit Share(PushMemory& memory) : state_(memory.state_) {}
    Share(Share&& other) noexcept;
    Share& operator=(Share&&) = delete;
    ~Share();

    // Takes so many more: `too_long` for what can never fit, `busy` where others hold the room.
    Result<void> grow(std::uint64_t more);
    // Gives back what it has beyond so many.
    void shrink_to(std::uint64_t bytes);
    std::uint64_t bytes() const { return bytes_; }

   private:
    friend class PushMemory;
    std::shared_ptr<State> state_;
    std::uint64_t bytes_ = 0;
  };

  const Options& options() const { return options_; }
  Result<UnnamedFile> new_file() const { return UnnamedFile::create(options_.folder); }
  // For loads. When nothing uses it any more it is freed on a thread of its own, because that takes
  // long for many bytes.
  std::shared_ptr<const lora::AdapterContent> keep(std::unique_ptr<lora::AdapterContent> content,
                                                   Share share);

  struct Figures {
    std::uint64_t used_bytes = 0;
    std::uint64_t limit_bytes = 0;
    std::uint64_t contents = 0;
  };
  Figures figures() const;

 private:
  struct Kept;
  static void release(Kept* kept);
  static void free_released(State& state);

  Options options_;
  std::shared_ptr<State> state_;
  std::thread freeing_;
};

}  // namespace motley::server
