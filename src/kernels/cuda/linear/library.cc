#include "kernels/cuda/linear/library.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cublasLt.h>
#include <mutex>
#include <string_view>
#include <type_traits>

#include <cuda_runtime.h>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/nvidia_libraries.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/device.h"

namespace motley::kernels::cuda {
namespace {

struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

Error library_error(std::string_view action, int status) {
  return {ErrorCode::internal, cat("cuBLASLt failed to ", action, ": status ", status), "cuda",
          "restart; if it happens again, check the GPU with nvidia-smi"};
}

Result<Functions> load() {
  Functions library;
  const auto find = [](auto& function, const char* name) -> Result<void> {
    MOTLEY_TRY(function, nvidia_function<std::remove_reference_t<decltype(function)>>(
                             NvidiaLibrary::cublas_lt, name));
    return {};
  };
  MOTLEY_TRY_VOID(find(library.create, "cublasLtCreate"));
  MOTLEY_TRY_VOID(find(library.destroy, "cublasLtDestroy"));
  MOTLEY_TRY_VOID(find(library.init_product, "cublasLtMatmulDescInit_internal"));
  MOTLEY_TRY_VOID(find(library.set_product, "cublasLtMatmulDescSetAttribute"));
  MOTLEY_TRY_VOID(find(library.init_layout, "cublasLtMatrixLayoutInit_internal"));
  MOTLEY_TRY_VOID(find(library.set_layout, "cublasLtMatrixLayoutSetAttribute"));
  MOTLEY_TRY_VOID(find(library.init_preference, "cublasLtMatmulPreferenceInit_internal"));
  MOTLEY_TRY_VOID(find(library.set_preference, "cublasLtMatmulPreferenceSetAttribute"));
  MOTLEY_TRY_VOID(find(library.find_algorithms, "cublasLtMatmulAlgoGetHeuristic"));
  MOTLEY_TRY_VOID(find(library.check_algorithm, "cublasLtMatmulAlgoCheck"));
  MOTLEY_TRY_VOID(find(library.multiply, "cublasLtMatmul"));
  return library;
}

struct Shape {
  bool one_order;
  bool transposed;                                      // the sum is over `out`
  bool float32;                                         // rows and weights, else bf16
  std::uint32_t w_alignment, x_alignment, y_alignment;  // of the addresses, in bytes
  std::int64_t rows, heads, in, out, x_stride, x_head_stride, w_head_stride, y_stride,
      y_head_stride;
  bool operator==(const Shape&) const = default;
  std::int64_t x_width() const { return transposed ? out : in; }
  std::int64_t y_width() const { return transposed ? in : out; }
};

// What the library needs to know, column-major: y^T [out, rows] = w^T' [out, in] x^T [in, rows], or
// y^T [in, rows] = w^T [in, out] x^T [out, rows].
struct Product {
  Shape shape{};
  bool possible = false;
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t w{};
  cublasLtMatrixLayoutOpaque_t x{};
  cublasLtMatrixLayoutOpaque_t y{};
  cublasLtMatmulAlgo_t algorithm{};
};

// A matrix for each head, by columns.
struct Matrices {
  cudaDataType_t type{};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::int64_t heads = 1;
  std::int64_t head_stride = 0;
};

bool describe(const Functions& library, const Matrices& matrices,
              cublasLtMatrixLayoutOpaque_t& layout) {
  const auto count = static_cast<std::int32_t>(matrices.heads);
  return library.init_layout(&layout, sizeof layout, matrices.type,
                             static_cast<std::uint64_t>(matrices.rows),
                             static_cast<std::uint64_t>(matrices.columns), matrices.stride) == 0 &&
         library.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count) ==
             0 &&
         library.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                            &matrices.head_stride, sizeof matrices.head_stride) == 0;
}

// A batch-invariant product of any number of rows is computed by the algorithm that the library has
// for this many: the same tiles, the same order of sums. Tiles for more rows make prompts faster,
// those for fewer single rows.
constexpr std::int64_t rows_of_one_order = 256;

bool describe_rows(const Functions& library, const Shape& shape, std::int64_t rows,
                   Product& product) {
  return describe(library,
                  {.type = shape.float32 ? CUDA_R_32F : CUDA_R_16BF,
                   .rows = shape.x_width(),
                   .columns = rows,
                   .stride = shape.x_stride,
                   .heads = shape.heads,
                   .head_stride = shape.x_head_stride},
                  product.x) &&
         describe(library,
                  {.type = CUDA_R_32F,
                   .rows = shape.y_width(),
                   .columns = rows,
                   .stride = shape.y_stride,
                   .heads = shape.heads,
                   .head_stride = shape.y_head_stride},
                  product.y);
}

void find_algorithm(const Functions& library, cublasLtHandle_t handle, const Shape& shape,
                    Product& found) {
  found = {.shape = shape};
  const cudaDataType_t type = shape.float32 ? CUDA_R_32F : CUDA_R_16BF;
  const cublasOperation_t w_operation = shape.transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
  const std::int64_t rows = shape.one_order ? rows_of_one_order : shape.rows;
  if (library.init_product(&found.product, sizeof found.product,
                           shape.float32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                           CUDA_R_32F) != 0 ||
      library.set_product(&found.product, CUBLASLT_MATMUL_DESC_TRANSA, &w_operation,
                          sizeof w_operation) != 0 ||
      !describe(library,
                {.type = type,
                 .rows = shape.in,
                 .columns = shape.out,
                 .stride = shape.in,
                 .heads = shape.heads,
                 .head_stride = shape.w_head_stride},
                found.w) ||
      !describe_rows(library, shape, rows, found))
    return;
  cublasLtMatmulPreferenceOpaque_t preference{};
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    return library.set_preference(&preference, what, &value, sizeof value) == 0;
  };
  // Without a workspace no algorithm splits K among blocks.
  if (library.init_preference(&preference, sizeof preference) != 0 ||
      !prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0}) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.w_alignment) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.y_alignment) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.y_alignment))
    return;
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  if (library.find_algorithms(handle, &found.product, &found.w, &found.x, &found.y, &found.y,
                              &preference, 1, &result, &count) != 0 ||
      count == 0)
    return;
  found.algorithm = result.algo;
  found.possible = true;
  if (!shape.one_order) return;
  const auto takes = [&](std::int64_t some) {
    return describe_rows(library, shape, some, found) &&
           library.check_algorithm(handle, &found.product, &found.w, &found.x, &found.y, &found.y,
                                   &found.algorithm, &result) == 0 &&
           result.workspaceSize == 0;
  };
  // If any small number of rows is refused, other kernels compute all products. More rows that are
  // refused are computed in pieces.
  if (shape.rows <= rows_of_one_order) {
    for (std::int64_t some = 1; some <= rows_of_one_order && found.possible; ++some)
      found.possible = takes(some);
  }
  found.possible = found.possible && takes(shape.rows);
}

std::int64_t number_bytes(const Linear& p) { return bits(p.x_type) / 8; }

const std::byte* first_row(const Linear& p) {
  return static_cast<const std::byte*>(p.w.data) + p.w_first * p.w.in * number_bytes(p);
}

std::uint32_t alignment_of(const void* data) {
  constexpr std::uintptr_t max_alignment = 256;
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(data) | max_alignment;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

// Weights of the same type as the rows.
bool has_rows_type(const Linear& p) {
  return p.x_type == DType::bf16 ? p.w.kind == WeightKind::bf16
                                 : p.x_type == DType::f32 && p.w.kind == WeightKind::f32;
}

// The algorithm must not depend on the address at which a piece begins.
bool suits_one_order(const Linear& p) {
  constexpr std::uint32_t alignment = 16;
  return alignment_of(first_row(p)) >= alignment && alignment_of(p.x) >= alignment &&
         alignment_of(p.y) >= alignment && p.x_stride % 8 == 0 && p.y_stride % 4 == 0;
}

Shape shape_of(const Linear& p, bool transposed) {
  const bool any = !p.batch_invariant;
  return {.one_order = p.batch_invariant,
          .transposed = transposed,
          .float32 = p.x_type == DType::f32,
          .w_alignment = any ? alignment_of(first_row(p)) : 16,
          .x_alignment = any ? alignment_of(p.x) : 16,
          .y_alignment = any ? alignment_of(p.y) : 16,
          .rows = p.rows,
          .heads = p.heads,
          .in = p.w.in,
          .out = p.out,
          .x_stride = p.x_stride,
          .x_head_stride = p.x_head_stride,
          .w_head_stride = p.w_rows_per_head * p.w.in,
          .y_stride = p.y_stride,
          .y_head_stride = p.y_head_stride};
}

// Without outputs x W is still defined: an empty sum.
bool has_no_work(const Linear& p, bool transposed) {
  return p.rows <= 0 || p.heads <= 0 || (p.out <= 0 && !transposed);
}

// Some rows of a product.
Linear piece(const Linear& p, std::int64_t first, std::int64_t rows) {
  Linear part = p;
  part.rows = rows;
  part.x = static_cast<const std::byte*>(p.x) + first * p.x_stride * number_bytes(p);
  part.y += first * p.y_stride;
  return part;
}

class CublasLt final : public MatmulLibrary {
 public:
  CublasLt(const Functions& functions, cublasLtHandle_t handle, void* panel)
      : functions_(functions), handle_(handle), panel_(panel) {}
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() override {
    functions_.destroy(handle_);
    cudaFree(panel_);
  }

  void* panel() override { return panel_; }

  bool supports(const Linear& p, bool transposed) override {
    if (p.exact || !has_rows_type(p)) return false;
    if (has_no_work(p, transposed)) return true;
    if (p.out <= 0 || (p.batch_invariant && !suits_one_order(p))) return false;
    const std::lock_guard lock(mutex_);
    const std::int64_t rows = p.batch_invariant ? std::min(rows_of_one_order, p.rows) : p.rows;
    return find(shape_of(piece(p, 0, rows), transposed)).possible;
  }

  void multiply(const Linear& p, bool transposed, StreamHandle stream) override {
    if (has_no_work(p, transposed)) return;
    const std::lock_guard lock(mutex_);
    for (std::int64_t first = 0; first < p.rows;) {
      Linear part = piece(p, first, p.rows - first);
      Product* product = &find(shape_of(part, transposed));
      if (!product->possible && p.batch_invariant) {
        part = piece(p, first, std::min(rows_of_one_order, part.rows));
        product = &find(shape_of(part, transposed));
      }
      MOTLEY_CHECK(product->possible, "an algorithm for rows that are supported");
      const cublasStatus_t status = run(*product, part, stream);
      if (status != CUBLAS_STATUS_SUCCESS)
        device_of(stream).keep(library_error("multiply", status));
      first += part.rows;
    }
  }

 private:
  // A direct-mapped cache: the shape's hash selects the entry.
  Product& find(const Shape& shape) {
    std::uint64_t place = 0;
    for (const std::int64_t number : {shape.rows, shape.heads, shape.in, shape.out, shape.x_stride,
                                      shape.y_stride, std::int64_t{shape.transposed}})
      place = (place ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15U;
    Product& product = products_[place >> 56];
    if (!(product.shape == shape)) find_algorithm(functions_, handle_, shape, product);
    return product;
  }

  cublasStatus_t run(Product& product, const Linear& p, StreamHandle stream) const {
    device_of(stream).note_launch("cuBLASLt");
    const float one = 1;
    const float zero = 0;
    return functions_.multiply(handle_, &product.product, &one, first_row(p), &product.w, p.x,
                               &product.x, &zero, p.y, &product.y, p.y, &product.y,
                               &product.algorithm, nullptr, 0,
                               static_cast<cudaStream_t>(stream.native));
  }

  Functions functions_;
  cublasLtHandle_t handle_;
  void* panel_;
  std::mutex mutex_;
  std::array<Product, 256> products_;
};

}  // namespace

Result<std::unique_ptr<MatmulLibrary>> MatmulLibrary::open() {
  MOTLEY_TRY(const Functions functions, load());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = functions.create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) return library_error("begin", status);
  void* panel = nullptr;
  if (const cudaError_t none = cudaMalloc(&panel, decoded_panel_numbers * 2); none != cudaSuccess) {
    functions.destroy(handle);
    return Error(ErrorCode::out_of_memory,
                 cat("no memory for decoded weights: ", cudaGetErrorString(none)), "cuda",
                 "free memory of this GPU, or use another one");
  }
  return std::unique_ptr<MatmulLibrary>(std::make_unique<CublasLt>(functions, handle, panel));
}

}  // namespace motley::kernels::cuda
