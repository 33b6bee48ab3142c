# The language, the warnings and the flags that all code of the project shares (target motley_options).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Not in the cache: project() has put an empty value there. Reports name functions and lines: -g1 has those, in
# three quarters of the compile time of -g and a third of its objects. To optimise sanitizers' checks takes two thirds
# of the compile time, so only what computes is (MotleyModules.cmake).
set(CMAKE_CXX_FLAGS_SANITIZE "-O0 -g1 -fno-omit-frame-pointer")
# clang only: tools/coverage.sh reads what programs count.
set(CMAKE_CXX_FLAGS_COVERAGE "-O1 -g1 -fprofile-instr-generate -fcoverage-mapping")

find_program(MOTLEY_CCACHE ccache)
if(MOTLEY_CCACHE)
  # The base directory makes a clone at another path hit the same cache. The sloppiness is what it asks for where
  # headers are precompiled.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${MOTLEY_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

find_package(Threads REQUIRED)

add_library(motley_options INTERFACE)
target_link_libraries(motley_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

set(warnings -Wall -Wextra -Wpedantic -Werror -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast
             -Wcast-qual -Wformat=2 -Wundef -Wconversion -Wno-sign-conversion
             -Wno-missing-field-initializers)  # designated initialisers leave out what has its default
# Where files are compiled together, one's names stand in the scope of the others, and none is the main file.
if(NOT MOTLEY_UNITY)
  list(APPEND warnings -Wshadow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wshadow=local -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND warnings -Wno-restrict)  # false alarms on std::string in g++ 12 (its bug 105651)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND MOTLEY_SANITIZE)
  list(APPEND warnings -Wno-maybe-uninitialized)  # false alarms where the sanitizers' code stands between
endif()
# Contraction off: a sum rounds the same whatever instruction set a file is compiled for; fused
# multiply-adds are written out where they are meant.
set(semantics -ffp-contract=off -fno-math-errno -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
target_compile_options(motley_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};${semantics}>")
target_compile_options(motley_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;-Werror=all-warnings>")
target_compile_definitions(motley_options INTERFACE $<$<CONFIG:Debug,Sanitize>:_GLIBCXX_ASSERTIONS MOTLEY_DEBUG=1>)

if(MOTLEY_SANITIZE)
  target_compile_options(motley_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MOTLEY_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  # g++ has a macro for each sanitizer, clang asks otherwise.
  target_compile_definitions(motley_options INTERFACE MOTLEY_SANITIZED=1)
  target_link_options(motley_options INTERFACE -fsanitize=${MOTLEY_SANITIZE})
else()
  # One binary for any x86-64 Linux with this glibc or a newer one: only glibc stays dynamic.
  target_link_options(motley_options INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endif()
if(MOTLEY_LIBFUZZER)
  target_compile_options(motley_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
