#pragma once

namespace motley::cli {

// Whether the other end of a file descriptor is closed: of a pipe, when the process that holds its
// other end has ended, however that came.
class InputEnd {
 public:
  explicit InputEnd(int descriptor) : descriptor_(descriptor) {}

  // Never blocks. What was written is read and dropped. True once, true from then on.
  bool reached();

 private:
  int descriptor_;
  bool reached_ = false;
};

}  // namespace motley::cli
