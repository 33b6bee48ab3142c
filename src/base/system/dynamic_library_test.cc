#include "base/system/dynamic_library.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/nvidia_libraries.h"

namespace motley {
namespace {

using testing::HasSubstr;

TEST(DynamicLibrary, OpensTheFirstThatCanBe) {
  const std::vector<std::string> candidates = {"libmotley-none-1.so", "libm.so.6", "libc.so.6"};
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_TRUE(library.ok()) << library.error().message();
  EXPECT_EQ(library->name(), "libm.so.6");
  const auto symbol = library->symbol("floor");
  ASSERT_TRUE(symbol.ok()) << symbol.error().message();
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(*symbol)(2.5), 2.0);
}

TEST(DynamicLibrary, SaysWhyEachCandidateFailed) {
  const std::vector<std::string> candidates = {"libmotley-none-1.so", "/motley-none/libx.so.2"};
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code(), ErrorCode::not_found);
  EXPECT_THAT(library.error().where(), HasSubstr("libmotley-none-1.so"));
  EXPECT_THAT(library.error().where(), HasSubstr("/motley-none/libx.so.2"));
  EXPECT_THAT(library.error().fix(), HasSubstr("LD_LIBRARY_PATH"));
}

TEST(DynamicLibrary, NothingToOpenIsAnError) { EXPECT_FALSE(DynamicLibrary::open({}).ok()); }

TEST(DynamicLibrary, MissingFunctionIsNamedWithItsLibrary) {
  const std::vector<std::string> candidates = {"libm.so.6"};
  const auto library = DynamicLibrary::open(candidates);
  ASSERT_TRUE(library.ok()) << library.error().message();
  const auto symbol = library->symbol("motley_has_no_such_function");
  ASSERT_FALSE(symbol.ok());
  EXPECT_EQ(symbol.error().code(), ErrorCode::not_found);
  EXPECT_THAT(symbol.error().what(), HasSubstr("motley_has_no_such_function"));
  EXPECT_EQ(symbol.error().where(), "libm.so.6");
}

struct Nvidia {
  NvidiaLibrary library;
  std::string name;
  std::string file;
  std::string needed_for;
  std::string function;
  std::string way_out;
};

const std::vector<Nvidia>& nvidia() {
  static const std::vector<Nvidia> all = {
      {NvidiaLibrary::driver, "NVIDIA's driver", "libcuda.so.1", "--device cuda", "cuInit",
       "--device cpu"},
      {NvidiaLibrary::cublas_lt, "cuBLASLt 13", "libcublasLt.so.13", "--device cuda",
       "cublasLtCreate", "--device cpu"},
      {NvidiaLibrary::nccl, "NCCL 2", "libnccl.so.2", "--ranks-over nccl", "ncclGetVersion",
       "--tp 1"},
  };
  return all;
}

// Holds on machines that have the libraries and on those that lack them.
TEST(NvidiaLibraries, AreOpenedOrTheErrorSaysWhatIsMissingAndWhatToDo) {
  for (const Nvidia& wanted : nvidia()) {
    const auto opened = nvidia_library(wanted.library);
    if (opened.ok()) {
      EXPECT_THAT((*opened)->name(), HasSubstr(wanted.file));
      const auto function = nvidia_function<void (*)()>(wanted.library, wanted.function.c_str());
      ASSERT_TRUE(function.ok()) << function.error().message();
      EXPECT_NE(*function, nullptr);
      const auto none = nvidia_function<void (*)()>(wanted.library, "motley_no_such_function");
      ASSERT_FALSE(none.ok());
      EXPECT_THAT(none.error().message(), HasSubstr(wanted.file));
    } else {
      const Error& error = opened.error();
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_EQ(error.what(), wanted.needed_for + " needs " + wanted.name);
      EXPECT_THAT(error.where(), HasSubstr(wanted.file));
      EXPECT_THAT(error.fix(), HasSubstr("install"));
      EXPECT_THAT(error.fix(), HasSubstr(wanted.way_out));
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
      const auto function = nvidia_function<void (*)()>(wanted.library, wanted.function.c_str());
      ASSERT_FALSE(function.ok());
      EXPECT_EQ(function.error().message(), error.message());
    }
  }
}

TEST(NvidiaLibraries, AreTheSameForEveryThreadAndCall) {
  constexpr std::size_t threads = 4;
  for (const Nvidia& wanted : nvidia()) {
    std::vector<const DynamicLibrary*> seen(threads, nullptr);
    std::vector<std::thread> callers;
    for (std::size_t t = 0; t < threads; ++t) {
      callers.emplace_back([&, t] {
        const auto opened = nvidia_library(wanted.library);
        if (opened.ok()) seen[t] = *opened;
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const DynamicLibrary* library : seen) EXPECT_EQ(library, seen[0]) << wanted.name;
  }
}

}  // namespace
}  // namespace motley
