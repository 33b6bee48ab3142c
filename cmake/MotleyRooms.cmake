# A room of the house is a folder of src/ and a library. It sees the headers of the rooms that it
# declares (and of theirs), because only their folders are on its include path:
# <build>/house/ROOM holds nothing but a link named ROOM to src/ROOM, so "base/error.h" is found by
# whoever depends on base, and by nobody else. Rooms stand on floors; a room may only depend on
# rooms of lower floors. docs/design/house.md says why.

# The plan of the house: every room and its floor, also of rooms that are not built yet.
set(MOTLEY_FLOORS
  base 1
  tensor 2  kernels 2  text 2
  quant 3  dist 3
  ops 4  plan 4
  lora 5
  moe 6
  model 7
  runner 8
  engine 9
  server 10
  cli 11)

function(motley_floor room result)
  list(FIND MOTLEY_FLOORS ${room} at)
  if(at EQUAL -1)
    message(FATAL_ERROR "room ${room}: not in the plan of the house (cmake/MotleyRooms.cmake)")
  endif()
  math(EXPR at "${at} + 1")
  list(GET MOTLEY_FLOORS ${at} floor)
  set(${result} ${floor} PARENT_SCOPE)
endfunction()

# motley_room(NAME [DEPENDS rooms...] SOURCES files... [LIBRARIES targets...] [TESTS files...])
function(motley_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;SOURCES;LIBRARIES;TESTS" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "motley_room(${name}): can't read: ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  motley_floor(${name} floor)

  set(below "")
  set(seen ${name})
  foreach(dependency IN LISTS ROOM_DEPENDS)
    motley_floor(${dependency} dependency_floor)
    if(NOT dependency_floor LESS floor)
      message(FATAL_ERROR "room ${name} (floor ${floor}) may not depend on ${dependency} (floor "
                          "${dependency_floor}): a room sees lower floors only")
    endif()
    if(NOT TARGET motley_${dependency})
      message(FATAL_ERROR "room ${name} depends on ${dependency}, which is not declared before it")
    endif()
    list(APPEND below motley_${dependency})
    get_property(theirs GLOBAL PROPERTY motley_sees_${dependency})
    list(APPEND seen ${theirs})
  endforeach()
  list(REMOVE_DUPLICATES seen)
  set_property(GLOBAL PROPERTY motley_sees_${name} ${seen})
  set_property(GLOBAL APPEND PROPERTY motley_rooms ${name})

  set(door ${CMAKE_BINARY_DIR}/house/${name})
  file(MAKE_DIRECTORY ${door})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${name} ${door}/${name} SYMBOLIC)

  add_library(motley_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(motley_${name} PUBLIC ${door})
  target_link_libraries(motley_${name} PUBLIC ${below} motley_options PRIVATE ${ROOM_LIBRARIES})
  if(ROOM_TESTS AND MOTLEY_TESTS)
    motley_test(${name}_tests SOURCES ${ROOM_TESTS} ROOMS ${name} LABELS cpu)
  endif()
endfunction()
