#include "kernels/cpu/elementary_body.h"

namespace motley::kernels::cpu {
namespace {
struct Avx2;
}

constinit const ElementaryLoops elementary_loops_avx2 = elementary_body::loops<Avx2>();

}  // namespace motley::kernels::cpu
