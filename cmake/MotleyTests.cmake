# Tests carry one of the labels cpu, gpu, server, clients.
# gpu tests are compiled where nvcc is and run only where a GPU is (ctest --preset gpu).

# What is tested is compiled as it ships, what asks it without the time that -O3 takes. Sanitizers' code is what
# takes longest to optimise.
set(test_options $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>
                 $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Sanitize>>:-O0>
                 $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string, which are no system header's where headers are precompiled.
  list(APPEND test_options $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
endif()

if(MOTLEY_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  # Every test reads GoogleTest's headers: they are compiled once, which halves the time of most.
  # Of a program, because code of programs and of libraries is not the same.
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
  add_executable(motley_test_headers ${CMAKE_BINARY_DIR}/test_headers.cc)
  target_link_libraries(motley_test_headers PRIVATE motley_options GTest::gmock)
  target_compile_options(motley_test_headers PRIVATE ${test_options})
  target_precompile_headers(motley_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()

# motley_test(NAME SOURCES files... MODULES modules... LABELS labels... [LIBRARIES targets...] [DEFINITIONS defs...]
#             [FOLDER folder that the tests run in])
function(motley_test name)
  cmake_parse_arguments(TEST "" "FOLDER" "SOURCES;MODULES;LABELS;LIBRARIES;DEFINITIONS" ${ARGN})
  list(TRANSFORM TEST_MODULES PREPEND motley_)
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_MODULES} ${TEST_LIBRARIES} motley_options GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINITIONS})
  target_compile_options(${name} PRIVATE ${test_options})
  target_precompile_headers(${name} REUSE_FROM motley_test_headers)
  # A semicolon would end the property's value, so several labels travel escaped.
  string(REPLACE ";" "\;" labels "${TEST_LABELS}")
  if(NOT TEST_FOLDER)
    set(TEST_FOLDER ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${TEST_FOLDER}
    PROPERTIES LABELS "${labels}" TIMEOUT 300)
endfunction()

# The first Python that imports those modules, the private virtual environment's or else the system's; "" where none does.
find_program(MOTLEY_PYTHON python3 REQUIRED)
function(motley_python_with modules result)
  set(${result} "" PARENT_SCOPE)
  foreach(python ${CMAKE_SOURCE_DIR}/.venv/bin/python ${MOTLEY_PYTHON})
    execute_process(COMMAND ${python} -c "import ${modules}" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status STREQUAL 0)
      set(${result} ${python} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
