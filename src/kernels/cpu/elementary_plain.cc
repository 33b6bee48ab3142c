#include "kernels/cpu/elementary_body.h"

namespace motley::kernels::cpu {
namespace {
struct Plain;
}

constinit const ElementaryLoops elementary_loops_plain = elementary_body::loops<Plain>();

}  // namespace motley::kernels::cpu
