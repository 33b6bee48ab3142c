# A module of the architecture is a folder of src/ and a library. It sees the headers of the modules that it
# declares (and of theirs), because only their folders are on its include path:
# <build>/architecture/MODULE holds nothing but a link named MODULE to src/MODULE, so "base/error.h" is found by
# modules that depend on base, and by no others. Modules stand on levels; a module may only depend on
# modules of lower levels. docs/design/architecture.md says why.

# The plan of the architecture: every module and its level, also of modules that are not built yet.
set(MOTLEY_LEVELS
  base 1
  tensor 2  kernels 2  net 2  text 2
  quant 3  dist 3  hub 3
  ops 4  plan 4
  lora 5
  moe 6
  model 7
  runner 8  grammar 8
  engine 9
  serving 10
  server 11
  cli 12)

function(motley_level module result)
  list(FIND MOTLEY_LEVELS ${module} at)
  if(at EQUAL -1)
    message(FATAL_ERROR "module ${module}: not in the plan of the architecture (cmake/MotleyModules.cmake)")
  endif()
  math(EXPR at "${at} + 1")
  list(GET MOTLEY_LEVELS ${at} level)
  set(${result} ${level} PARENT_SCOPE)
endfunction()

# With sanitizers: modules whose loops are what all tests of models wait for. Elsewhere the compiler's time is what counts.
set(computing_modules quant kernels lora moe)

# motley_module(NAME [FOLDERS folders...] [DEPENDS modules...] SOURCES files... [LIBRARIES targets...] [TESTS files...])
# FOLDERS: all sub-folders in order, the lowest first, and `.` for the files that lie in none. A file includes no header of
# a later one, which the test architecture.FoldersAreInOrder checks. A folder in a folder that is listed (http/wire) has its
# own place in the order; one that is not belongs to the folder around it.
function(motley_module name)
  cmake_parse_arguments(MODULE "" "" "FOLDERS;DEPENDS;SOURCES;LIBRARIES;TESTS" ${ARGN})
  if(MODULE_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "motley_module(${name}): can't read: ${MODULE_UNPARSED_ARGUMENTS}")
  endif()
  motley_level(${name} level)

  set(below "")
  set(seen ${name})
  foreach(dependency IN LISTS MODULE_DEPENDS)
    motley_level(${dependency} dependency_level)
    if(NOT dependency_level LESS level)
      message(FATAL_ERROR "module ${name} (level ${level}) may not depend on ${dependency} (level "
                          "${dependency_level}): a module sees lower levels only")
    endif()
    if(NOT TARGET motley_${dependency})
      message(FATAL_ERROR "module ${name} depends on ${dependency}, which is not declared before it")
    endif()
    list(APPEND below motley_${dependency})
    get_property(theirs GLOBAL PROPERTY motley_sees_${dependency})
    list(APPEND seen ${theirs})
  endforeach()
  list(REMOVE_DUPLICATES seen)
  set_property(GLOBAL PROPERTY motley_sees_${name} ${seen})
  set_property(GLOBAL APPEND PROPERTY motley_modules ${name})
  set_property(GLOBAL PROPERTY motley_folders_${name} ${MODULE_FOLDERS})

  set(door ${CMAKE_BINARY_DIR}/architecture/${name})
  file(MAKE_DIRECTORY ${door})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${name} ${door}/${name} SYMBOLIC)

  add_library(motley_${name} STATIC ${MODULE_SOURCES})
  target_include_directories(motley_${name} PUBLIC ${door})
  target_link_libraries(motley_${name} PUBLIC ${below} motley_options PRIVATE ${MODULE_LIBRARIES})
  if(name IN_LIST computing_modules)
    target_compile_options(motley_${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Sanitize>>:-O1>)
  endif()
  # When the folder has been read: it may add sources.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL motley_unity motley_${name})")
  if(MODULE_TESTS AND MOTLEY_TESTS)
    motley_test(${name} SOURCES ${MODULE_TESTS} MODULES ${name})
  endif()
endfunction()
