# The runtime for machines other than this one, as custom commands of the one build: clang is a cross compiler where it
# finds the other machine's C and C++ libraries, which Debian's packages g++-MACHINE bring. Machines without are left
# out; compiling for them says so.

set(DISC_FOREIGN_MACHINES)
# Atomics out of line would need a library that a machine without a compiler lacks.
set(DISC_FOREIGN_FLAGS_aarch64-linux-gnu -mno-outline-atomics)
set(DISC_FOREIGN_FLAGS_arm-linux-gnueabihf -march=armv7-a -mfpu=neon)
foreach(machine x86_64-linux-gnu aarch64-linux-gnu arm-linux-gnueabihf)
  string(REGEX REPLACE "-.*" "" arch ${machine})
  find_program(DISC_GXX_${machine} ${machine}-g++)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND DISC_GXX_${machine} AND NOT CMAKE_SYSTEM_PROCESSOR STREQUAL arch)
    list(APPEND DISC_FOREIGN_MACHINES ${machine})
  endif()
endforeach()
message(STATUS "Runtimes for other machines: ${DISC_FOREIGN_MACHINES}")

# Where the Python package looks for what belongs to a machine.
function(disc_foreign_folder machine result)
  set(${result} "${DISC_PACKAGE_DIR}/lib/${machine}" PARENT_SCOPE)
  file(MAKE_DIRECTORY "${DISC_PACKAGE_DIR}/lib/${machine}")
endfunction()

# disc_foreign_objects(<machine> <result> SRCS ... [HEADERS ...]): the objects of sources, which are relative to the
# current folder, with folders of other projects' headers.
function(disc_foreign_objects machine result)
  cmake_parse_arguments(ARG "" "" "SRCS;HEADERS" ${ARGN})
  list(TRANSFORM ARG_HEADERS PREPEND "-isystem" OUTPUT_VARIABLE headers)
  separate_arguments(optimise NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}")
  set(objects)
  foreach(source IN LISTS ARG_SRCS)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${machine}/${source}.o")
    get_filename_component(folder "${object}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(OUTPUT "${object}" DEPFILE "${object}.d" VERBATIM
      DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" COMMENT "Building for ${machine}: ${source}"
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${CMAKE_CXX_COMPILER}" --target=${machine}
        ${DISC_FOREIGN_FLAGS_${machine}} ${optimise} -std=c++17 -fPIC -Wall -Wextra ${DISC_WERROR} -fexceptions
        -fno-rtti -fvisibility=hidden -ffunction-sections -fdata-sections "-I${PROJECT_SOURCE_DIR}"
        ${headers} -MD -MF "${object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}")
    list(APPEND objects "${object}")
  endforeach()
  set(${result} "${objects}" PARENT_SCOPE)
endfunction()

# disc_foreign_archive(<machine> <name> SRCS ... [HEADERS ...]): lib<name>.a.
function(disc_foreign_archive machine name)
  disc_foreign_objects(${machine} objects ${ARGN})
  disc_foreign_folder(${machine} folder)
  set(archive "${folder}/lib${name}.a")
  add_custom_command(OUTPUT "${archive}" DEPENDS ${objects} VERBATIM
    COMMAND "${CMAKE_COMMAND}" -E rm -f "${archive}"
    COMMAND "${CMAKE_AR}" rcs "${archive}" ${objects})
  add_custom_target(${name}-${machine} ALL DEPENDS "${archive}")
  install(FILES "${archive}" DESTINATION disc/lib/${machine})
endfunction()

# disc_foreign_program(<machine> <name> SRCS ...): linked with the runtime's archive.
function(disc_foreign_program machine name)
  disc_foreign_objects(${machine} objects ${ARGN})
  disc_foreign_folder(${machine} folder)
  set(program "${folder}/${name}")
  add_custom_command(OUTPUT "${program}" DEPENDS ${objects} "${folder}/libdisc_runtime.a" VERBATIM
    COMMAND "${CMAKE_CXX_COMPILER}" --target=${machine} -fuse-ld=lld ${objects} "${folder}/libdisc_runtime.a" -pthread
      -o "${program}")
  add_custom_target(${name}-${machine} ALL DEPENDS "${program}")
  add_dependencies(${name}-${machine} disc_runtime-${machine})
  install(PROGRAMS "${program}" DESTINATION disc/lib/${machine})
endfunction()

# The runtime without a model, for disc_load: as DiscShared of lib/Runtime.
function(disc_foreign_shared machine exports)
  disc_foreign_folder(${machine} folder)
  set(library "${folder}/libdisc.so")
  add_custom_command(OUTPUT "${library}" DEPENDS "${folder}/libdisc_runtime.a" "${exports}" VERBATIM
    COMMAND "${CMAKE_CXX_COMPILER}" --target=${machine} -fuse-ld=lld -shared -Wl,-soname,libdisc.so
      -Wl,--whole-archive "${folder}/libdisc_runtime.a" -Wl,--no-whole-archive "-Wl,--version-script=${exports}"
      -Wl,-Bsymbolic -Wl,-z,defs -Wl,--as-needed -Wl,--gc-sections -pthread -o "${library}")
  add_custom_target(disc-${machine} ALL DEPENDS "${library}")
  add_dependencies(disc-${machine} disc_runtime-${machine})
  install(FILES "${library}" DESTINATION disc/lib/${machine})
endfunction()
