# Tests carry one of the labels cpu, gpu, server, clients.
# gpu tests are compiled where nvcc is and run only where a GPU is (ctest --preset gpu).

if(MOTLEY_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# motley_test(NAME SOURCES files... MODULES modules... LABELS labels... [LIBRARIES targets...] [DEFINITIONS defs...]
#             [FOLDER folder that the tests run in])
function(motley_test name)
  cmake_parse_arguments(TEST "" "FOLDER" "SOURCES;MODULES;LABELS;LIBRARIES;DEFINITIONS" ${ARGN})
  list(TRANSFORM TEST_MODULES PREPEND motley_)
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_MODULES} ${TEST_LIBRARIES} motley_options GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINITIONS})
  # What is tested is compiled as it ships, what asks it without the time that -O3 takes.
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
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
