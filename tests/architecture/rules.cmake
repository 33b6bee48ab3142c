# Shows that the tree keeps the rules of the architecture that a line can break, and that a line which breaks
# one is found. Run by ctest with -DROOT=<source root> -DPYTHON=... -DSCRATCH=...

function(check root expected)
  execute_process(COMMAND ${PYTHON} "${ROOT}/tools/lint.py" --rules-only --root "${root}"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(expected STREQUAL "clean")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${output}")
    endif()
  elseif(NOT status EQUAL 1 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "expected '${expected}', found:\n${output}")
  endif()
endfunction()

function(plant line expected)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/src/base/planted.cc "${line}\n")
  # What is generated or fetched is not checked.
  file(WRITE ${SCRATCH}/build/a.cc "#include \"../b.h\"\n")
  file(WRITE ${SCRATCH}/src/.venv/a.cc "#include \"../b.h\"\n")
  check(${SCRATCH} "${expected}")
endfunction()

check(${ROOT} clean)
plant("int nothing = 0;" clean)
foreach(path ../tensor/shape.h base/../../tensor/shape.h ./shape.h shape.h)
  plant("#include \"${path}\"" "src/base/planted.cc:1: .*: include by module")
endforeach()
plant("using std::string;\nusing std::vector;\nvector<int> none;" "planted.cc: using string")
plant("namespace fs = std::filesystem;  // fs" "planted.cc: using fs")
plant("struct B : A {\n  using A::A;\n};" clean)

# A test that sleeps, and a name in the list of slow tests that is no test's.
file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/src/base/planted_test.cc "TEST(A, B) { std::this_thread::sleep_for(time); }\n")
check(${SCRATCH} "planted_test.cc:1: .*: wait for an event")
file(WRITE ${SCRATCH}/src/base/planted_test.cc "TEST(A, B) {}\n")
file(WRITE ${SCRATCH}/tests/slow_sanitized.txt "# why\nA.B\n")
check(${SCRATCH} clean)
file(WRITE ${SCRATCH}/tests/slow_sanitized.txt "A.B\nA.C\n")
check(${SCRATCH} "A.C: no such test")
file(REMOVE ${SCRATCH}/tests/slow_sanitized.txt)
file(WRITE ${SCRATCH}/tests/goldens/qwen/golden.json "{}")
file(WRITE ${SCRATCH}/tests/long_goldens.txt "*/qwen\n")
check(${SCRATCH} clean)
file(WRITE ${SCRATCH}/tests/long_goldens.txt "*/qwen\n*/mistral\n")
check(${SCRATCH} "mistral: no such golden")
