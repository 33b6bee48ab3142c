# Tests carry one of the labels cpu, gpu, nccl, server, clients, and `long` where `make test-long` runs them and
# `make test` doesn't. gpu tests are compiled where nvcc is and run only where a GPU is (ctest --preset gpu).
#
# A part is the tests of one subject: an object library, which sees no more headers than its modules have. A few
# programs hold all parts. ctest starts a program once for each of its shards, through tools/run_shard.py.

# What is tested is compiled as it ships, what asks it without the time that -O3 takes.
set(test_options $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>
                 $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string, which are no system header's where headers are precompiled.
  list(APPEND test_options $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
endif()

# Parts that compute in loops of their own what they expect: with sanitizers and without optimisation that takes minutes.
set(computing_parts kernels moe)

if(MOTLEY_TESTS)
  find_package(GTest REQUIRED)
  # Every test reads GoogleTest's headers: g++ compiles them once, which halves the time of most. What clang precompiles
  # holds the build folder's path, so that the compiler cache would miss every test in another clone.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "")
    add_library(motley_test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cc)
    target_link_libraries(motley_test_headers PRIVATE motley_options GTest::gmock)
    target_compile_options(motley_test_headers PRIVATE ${test_options})
    target_precompile_headers(motley_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

# motley_test(NAME SOURCES files... MODULES modules... [LIBRARIES targets...] [DEFINITIONS defs...])
# The part test_NAME, which a motley_test_program() must hold.
function(motley_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;MODULES;LIBRARIES;DEFINITIONS" ${ARGN})
  if(TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "motley_test(${name}): can't read: ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  list(TRANSFORM TEST_MODULES PREPEND motley_)
  add_library(test_${name} OBJECT ${TEST_SOURCES})
  target_link_libraries(test_${name} PUBLIC ${TEST_MODULES} ${TEST_LIBRARIES} motley_options GTest::gmock)
  target_compile_definitions(test_${name} PRIVATE ${TEST_DEFINITIONS})
  target_compile_options(test_${name} PRIVATE ${test_options})
  if(name IN_LIST computing_parts AND MOTLEY_SANITIZE)
    target_compile_options(test_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)  # precompiled headers are not
  elseif(TARGET motley_test_headers)
    target_precompile_headers(test_${name} REUSE_FROM motley_test_headers)
  endif()
  motley_unity(test_${name})
  set_property(GLOBAL APPEND PROPERTY motley_test_parts ${name})
endfunction()

# motley_test_program(NAME PARTS parts... SHARDS n LABELS labels... [LIBRARIES object libraries...])
# Tests run in the source folder and name its files from there: a definition with the whole path would make ccache build
# a part again in every clone.
function(motley_test_program name)
  cmake_parse_arguments(PROGRAM "" "SHARDS" "PARTS;LABELS;LIBRARIES" ${ARGN})
  if(PROGRAM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "motley_test_program(${name}): can't read: ${PROGRAM_UNPARSED_ARGUMENTS}")
  endif()
  set_property(GLOBAL APPEND PROPERTY motley_parts_in_programs ${PROGRAM_PARTS})
  list(TRANSFORM PROGRAM_PARTS PREPEND test_)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/support/main.cc)
  target_link_libraries(${name} PRIVATE ${PROGRAM_PARTS} ${PROGRAM_LIBRARIES} motley_options GTest::gmock)
  set(slow --slow ${CMAKE_SOURCE_DIR}/tests/long_goldens.txt)
  if(MOTLEY_SANITIZE)
    list(APPEND slow --slow ${CMAKE_SOURCE_DIR}/tests/slow_sanitized.txt)
  endif()
  math(EXPR last "${PROGRAM_SHARDS} - 1")
  foreach(shard RANGE ${last})
    math(EXPR number "${shard} + 1")
    set(test ${name}.${number}of${PROGRAM_SHARDS})
    add_test(NAME ${test} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      COMMAND ${MOTLEY_PYTHON} ${CMAKE_SOURCE_DIR}/tools/run_shard.py --shard ${shard} --of ${PROGRAM_SHARDS}
        --times ${CMAKE_BINARY_DIR}/test_times ${slow} $<TARGET_FILE:${name}>)
    set_tests_properties(${test} PROPERTIES LABELS "${PROGRAM_LABELS}" TIMEOUT 3600)
  endforeach()
endfunction()

# The tests of a program that tests/long_goldens.txt leaves out of it.
function(motley_long_goldens program)
  file(STRINGS ${CMAKE_SOURCE_DIR}/tests/long_goldens.txt patterns REGEX "^[^#]")
  list(JOIN patterns ":" patterns)
  add_test(NAME ${program}.LongGoldens WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    COMMAND ${CMAKE_COMMAND} -E env MOTLEY_SLOW_TESTS=1 ${MOTLEY_PYTHON} ${CMAKE_SOURCE_DIR}/tools/run_shard.py
      $<TARGET_FILE:${program}> --gtest_filter=${patterns})
  set_tests_properties(${program}.LongGoldens PROPERTIES LABELS "cpu;long" TIMEOUT 3600)
endfunction()

# No part is left out of all programs.
function(motley_check_test_parts)
  get_property(parts GLOBAL PROPERTY motley_test_parts)
  get_property(held GLOBAL PROPERTY motley_parts_in_programs)
  foreach(part IN LISTS held)
    list(REMOVE_ITEM parts ${part})
  endforeach()
  if(parts)
    message(FATAL_ERROR "tests that no program holds: ${parts}: add them to a motley_test_program()")
  endif()
endfunction()

# The first Python that imports those modules, the private virtual environment's or else the system's; "" where none does.
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
