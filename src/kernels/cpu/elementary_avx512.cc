#include "kernels/cpu/elementary_body.h"

namespace motley::kernels::cpu {
namespace {
struct Avx512;
}

constinit const ElementaryLoops elementary_loops_avx512 = elementary_body::loops<Avx512>();

}  // namespace motley::kernels::cpu
