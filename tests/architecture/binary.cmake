# Shows that the program needs nothing but glibc to start. Run by ctest with -DBINARY=... -DREADELF=...

execute_process(COMMAND ${READELF} -d ${BINARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "Shared library: \\[[^]]*\\]" needed "${dynamic}")
foreach(entry IN LISTS needed)
  string(REGEX REPLACE ".*\\[(.*)\\]" "\\1" library "${entry}")
  if(NOT library MATCHES "^(libc\\.so\\.6|libm\\.so\\.6|ld-linux-x86-64\\.so\\.2)$")
    message(FATAL_ERROR "${BINARY} needs ${library}: link it in, or open it at run time")
  endif()
endforeach()
execute_process(COMMAND ${BINARY} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
message("${version}${needed}")
