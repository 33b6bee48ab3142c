#include <cstdio>
#include <filesystem>

#include <gmock/gmock.h>

// Tests name their files from the source folder.
int main(int count, char** arguments) {
  testing::InitGoogleMock(&count, arguments);
  if (!std::filesystem::exists("tests/support/main.cc")) {
    std::fputs("tests run in the repository's root: go there and start them again\n", stderr);
    return 2;
  }
  return RUN_ALL_TESTS();
}
