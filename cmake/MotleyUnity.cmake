# Unity builds: most of a file's compile time goes into the headers that it includes, so several files are compiled as
# one. Files that declare the same name for themselves are kept apart; tools/together.py reads which. It is asked
# anew whenever CMake configures, as every make target does.

option(MOTLEY_UNITY "Compile several files of a target as one" ON)
set(unity_files 12)  # that one translation unit has at most

# motley_unity(TARGET): the target's sources, which are of the current folder.
function(motley_unity target)
  if(NOT MOTLEY_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(together "")
  set(paths "")
  foreach(source IN LISTS sources)
    # CMake compiles a file with flags of its own alone.
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(NOT options AND NOT definitions)
      get_filename_component(path ${source} ABSOLUTE)
      list(APPEND together ${source})
      list(APPEND paths ${path})
    endif()
  endforeach()
  execute_process(COMMAND ${MOTLEY_PYTHON} ${CMAKE_SOURCE_DIR}/tools/together.py ${unity_files} ${paths}
    OUTPUT_VARIABLE groups OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" groups "${groups}")
  foreach(source group IN ZIP_LISTS together groups)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
