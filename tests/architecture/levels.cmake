# Shows that a module that declares a higher level, its own level, or a module outside the plan is refused
# when configuring. Run by ctest with -DROOT=<source root> -DSCRATCH=...

function(configure declarations expected)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/src/source.cc "int nothing = 0;\n")
  file(WRITE ${SCRATCH}/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.25)\nproject(architecture LANGUAGES CXX)\n"
    "add_library(motley_options INTERFACE)\ninclude(\"${ROOT}/cmake/MotleyUnity.cmake\")\ninclude(\"${ROOT}/cmake/MotleyModules.cmake\")\n"
    "${declarations}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH} -B ${SCRATCH}/build -DMOTLEY_UNITY=OFF
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

set(base "motley_module(base SOURCES src/source.cc)")
set(tensor "motley_module(tensor DEPENDS base SOURCES src/source.cc)")
configure("${base}\n${tensor}" accepted)
configure("motley_module(tensor SOURCES src/source.cc)\nmotley_module(base DEPENDS tensor SOURCES src/source.cc)"
          "module base \\(level 1\\) may not depend on tensor \\(level 2\\)")
configure("${base}\n${tensor}\nmotley_module(text DEPENDS base tensor SOURCES src/source.cc)"
          "module text \\(level 2\\) may not depend on tensor \\(level 2\\)")
configure("motley_module(attic SOURCES src/source.cc)" "module attic: not in the plan")
