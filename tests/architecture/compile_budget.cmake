# tools/compile_cuda.py keeps an object that is within the budget, and refuses one that is not: a
# compiler that only says what ptxas would.
file(MAKE_DIRECTORY ${SCRATCH})
set(kernel "_ZN6motley7kernels4cuda11count_pairsEi")

function(compile says expected)
  file(WRITE ${SCRATCH}/says "ptxas info    : Compiling entry function '${kernel}' for 'sm_90a'\n${says}\n")
  file(WRITE ${SCRATCH}/compiler "#!/bin/sh\ncat ${SCRATCH}/says\necho > ${SCRATCH}/out.o\n")
  file(CHMOD ${SCRATCH}/compiler PERMISSIONS OWNER_READ OWNER_EXECUTE)
  execute_process(COMMAND ${PYTHON} ${ROOT}/tools/compile_cuda.py ${SCRATCH}/compiler -c in.cu -o ${SCRATCH}/out.o
    RESULT_VARIABLE status OUTPUT_VARIABLE output)
  if(expected STREQUAL "" AND (NOT status EQUAL 0 OR NOT output STREQUAL "" OR NOT EXISTS ${SCRATCH}/out.o))
    message(FATAL_ERROR "refused, or not silent: ${output}")
  elseif(NOT expected STREQUAL "" AND (status EQUAL 0 OR NOT output MATCHES "${expected}" OR EXISTS ${SCRATCH}/out.o))
    message(FATAL_ERROR "not refused with '${expected}': ${output}")
  endif()
  file(REMOVE ${SCRATCH}/compiler)
endfunction()

set(spills "    8 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads")
compile("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 80 registers" "")
compile("${spills}" "in.cu: refused: count_pairs.* spills 16 bytes")
compile("ptxas info    : (C7510) Potential Performance Loss: wgmma" "in.cu: refused: .*C7510")
set(kernel "_ZN6motley7kernels4cuda5otherEi")
compile("${spills}" "")

execute_process(COMMAND ${PYTHON} ${ROOT}/tools/compile_cuda.py --table ${SCRATCH} OUTPUT_VARIABLE table)
if(NOT table MATCHES "in.cu +[0-9.]+ +[0-9]+ +1 +0 +16")
  message(FATAL_ERROR "no table of the records: ${table}")
endif()
