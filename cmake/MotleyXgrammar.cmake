# XGrammar's C++ core as a static library, from the sources that `tools/setup.sh build` has fetched: what makes
# token masks of grammars. Only src/grammar/ sees it. Its own CMake wants Python's bindings.

file(STRINGS ${CMAKE_SOURCE_DIR}/tools/packages/sources.txt pins REGEX "^xgrammar==")
if(NOT pins MATCHES "^xgrammar==([0-9.]+)")
  message(FATAL_ERROR "xgrammar: tools/packages/sources.txt does not name its version")
endif()
set(MOTLEY_XGRAMMAR ${CMAKE_SOURCE_DIR}/.cache/packages/xgrammar-${CMAKE_MATCH_1}
  CACHE PATH "Sources of XGrammar, as its source distribution on PyPI has them")
if(NOT EXISTS ${MOTLEY_XGRAMMAR}/include/xgrammar/xgrammar.h)
  message(FATAL_ERROR "xgrammar: no sources in ${MOTLEY_XGRAMMAR}: run 'tools/setup.sh build', or name their folder "
                      "with -DMOTLEY_XGRAMMAR=")
endif()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${MOTLEY_XGRAMMAR}/cpp/*.cc)
list(FILTER sources EXCLUDE REGEX "/cpp/tvm_ffi/")
add_library(xgrammar STATIC ${sources})
motley_unity(xgrammar)
# The standard that it is written in: clang refuses one of its headers as C++20.
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
# What it logs becomes an error of the request: src/grammar/ says how.
target_compile_definitions(xgrammar PUBLIC
  XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${MOTLEY_XGRAMMAR}/include ${MOTLEY_XGRAMMAR}/cpp ${MOTLEY_XGRAMMAR}/3rdparty/picojson
  ${MOTLEY_XGRAMMAR}/3rdparty/dlpack/include)
# Not our code: no warnings, and of the sanitizers those that must see all memory and threads. -O2 takes half the
# time of -O3 and gives the same. In sections, so that programs hold only the functions that they call.
target_compile_options(xgrammar PRIVATE -w "$<IF:$<CONFIG:Sanitize>,-O0;-g0,-O2>"
  -ffunction-sections -fdata-sections -fmacro-prefix-map=${MOTLEY_XGRAMMAR}/=)
string(REPLACE "," ";" sanitizers "${MOTLEY_SANITIZE}")
list(REMOVE_ITEM sanitizers undefined)
if(sanitizers)
  list(JOIN sanitizers "," sanitizers)
  target_compile_options(xgrammar PRIVATE -fsanitize=${sanitizers})
endif()
