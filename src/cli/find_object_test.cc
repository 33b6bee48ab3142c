// cli/find_object.cc takes glibc's place in this program.

#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

// Whether tables for unwinding are found for the code at an address: they begin with version 1.
bool finds_tables(void* address) {
  dl_find_object found{};
  if (_dl_find_object(address, &found) != 0) return false;
  return found.dlfo_map_start <= address && address < found.dlfo_map_end &&
         *static_cast<const std::uint8_t*>(found.dlfo_eh_frame) == 1;
}

TEST(FindObject, FindsTheProgramAndItsLibraries) {
  EXPECT_TRUE(finds_tables(reinterpret_cast<void*>(&finds_tables)));
  EXPECT_TRUE(finds_tables(::dlsym(RTLD_DEFAULT, "qsort")));
}

TEST(FindObject, FindsNothingOutsideOfThem) {
  int on_the_stack = 0;
  EXPECT_FALSE(finds_tables(&on_the_stack));
  EXPECT_FALSE(finds_tables(nullptr));
}

// From a callback of libc's, whose frames are between.
TEST(FindObject, ExceptionsPassThroughLibraries) {
  int numbers[] = {2, 1};
  const auto throws = [](const void*, const void*) -> int { throw std::runtime_error("thrown"); };
  EXPECT_THROW(std::qsort(numbers, 2, sizeof(int), throws), std::runtime_error);
}

}  // namespace
}  // namespace motley::cli
