# Shows that a room that declares a higher floor, its own floor, or a room outside the plan is refused
# when configuring. Run by ctest with -DROOT=<source root> -DSCRATCH=...

function(configure declarations expected)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/src/source.cc "int nothing = 0;\n")
  file(WRITE ${SCRATCH}/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.25)\nproject(house LANGUAGES CXX)\n"
    "add_library(motley_options INTERFACE)\ninclude(\"${ROOT}/cmake/MotleyRooms.cmake\")\n"
    "${declarations}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH} -B ${SCRATCH}/build
    RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(expected STREQUAL "accepted")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "refused: ${declarations}\n${output}")
    endif()
  elseif(status EQUAL 0 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "expected '${expected}' for: ${declarations}\n${output}")
  endif()
endfunction()

set(base "motley_room(base SOURCES src/source.cc)")
set(tensor "motley_room(tensor DEPENDS base SOURCES src/source.cc)")
configure("${base}\n${tensor}" accepted)
configure("motley_room(tensor SOURCES src/source.cc)\nmotley_room(base DEPENDS tensor SOURCES src/source.cc)"
          "room base \\(floor 1\\) may not depend on tensor \\(floor 2\\)")
configure("${base}\n${tensor}\nmotley_room(text DEPENDS base tensor SOURCES src/source.cc)"
          "room text \\(floor 2\\) may not depend on tensor \\(floor 2\\)")
configure("motley_room(attic SOURCES src/source.cc)" "room attic: not in the plan")
