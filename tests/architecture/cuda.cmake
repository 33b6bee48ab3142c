# Shows that without a working CUDA a build goes on in AUTO and fails in ON, each with one line that
# says why. Run by ctest with -DROOT=<source root> -DSCRATCH=...

file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(cuda LANGUAGES CXX)\n"
  "set(MOTLEY_CUDA_ARCHITECTURES 90a-real)\ninclude(\"${ROOT}/cmake/MotleyCuda.cmake\")\n"
  "message(STATUS \"has \${MOTLEY_HAS_CUDA}\")\n")
file(WRITE ${SCRATCH}/nvcc "#!/bin/sh\nexit 1\n")
file(CHMOD ${SCRATCH}/nvcc PERMISSIONS OWNER_READ OWNER_EXECUTE)
set(ENV{CUDACXX} ${SCRATCH}/nvcc)

function(configure mode expected_status expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SCRATCH} -B ${SCRATCH}/${mode} -DMOTLEY_CUDA=${mode}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(NOT status EQUAL expected_status OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${mode}: expected '${expected}', found:\n${output}")
  endif()
endfunction()

configure(AUTO 0 "CUDA: no nvcc that works was found, so it is left out.* has OFF")
configure(OFF 0 "CUDA: left out.* has OFF")
configure(ON 1 "CUDA: MOTLEY_CUDA=ON, but no nvcc that works was found")
