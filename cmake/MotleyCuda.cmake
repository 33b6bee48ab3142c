# Finds CUDA, or leaves it out with one line. Sets MOTLEY_HAS_CUDA and MOTLEY_COMPUTE_CAPABILITIES.

set(MOTLEY_HAS_CUDA OFF)
if(MOTLEY_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: left out (MOTLEY_CUDA=OFF); the CPU path is complete without it")
  return()
endif()

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(ENV{CUDACXX} /usr/local/cuda/bin/nvcc)  # and not CMAKE_CUDA_COMPILER, which is taken unchecked
endif()
set(CMAKE_CUDA_ARCHITECTURES ${MOTLEY_CUDA_ARCHITECTURES})
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(MOTLEY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: MOTLEY_CUDA=ON, but no nvcc that works was found: put it on PATH or set CUDACXX")
  endif()
  message(STATUS "CUDA: no nvcc that works was found, so it is left out; the CPU path is complete without it")
  return()
endif()

enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20: tell it the flag.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
find_package(CUDAToolkit)
if(NOT TARGET CUDA::cudart_static)
  if(MOTLEY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: MOTLEY_CUDA=ON, but there is no toolkit with libcudart_static.a behind "
                        "${CMAKE_CUDA_COMPILER}: install it, or name another nvcc with CUDACXX")
  endif()
  message(STATUS "CUDA: no toolkit behind ${CMAKE_CUDA_COMPILER}, so it is left out; the CPU path is "
                 "complete without it")
  return()
endif()

# The GPUs that the kernels are compiled for, as a C++ list: 90a-real is "9.0".
set(MOTLEY_COMPUTE_CAPABILITIES "")
foreach(architecture IN LISTS MOTLEY_CUDA_ARCHITECTURES)
  if(NOT architecture MATCHES "^([0-9]+)([0-9])[a-z]?(-real|-virtual)?$")
    message(FATAL_ERROR "CUDA: MOTLEY_CUDA_ARCHITECTURES: can't read '${architecture}', write e.g. 90a-real")
  endif()
  list(APPEND MOTLEY_COMPUTE_CAPABILITIES "\"${CMAKE_MATCH_1}.${CMAKE_MATCH_2}\"")
endforeach()
list(REMOVE_DUPLICATES MOTLEY_COMPUTE_CAPABILITIES)
list(JOIN MOTLEY_COMPUTE_CAPABILITIES "," MOTLEY_COMPUTE_CAPABILITIES)
set(MOTLEY_HAS_CUDA ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, for ${MOTLEY_CUDA_ARCHITECTURES}")

# Code for a GPU packs to a fifth; it is unpacked when it is loaded.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
endif()

# Every CUDA file is compiled within a budget of time, memory and registers, and leaves a record.
set(CMAKE_CUDA_COMPILER_LAUNCHER ${MOTLEY_PYTHON} ${CMAKE_SOURCE_DIR}/tools/compile_cuda.py
    ${CMAKE_CUDA_COMPILER_LAUNCHER})

# The records of a target of this folder, printed when it is built.
function(motley_print_compile_table target)
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND ${MOTLEY_PYTHON} ${CMAKE_SOURCE_DIR}/tools/compile_cuda.py --table
      ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir)
endfunction()
