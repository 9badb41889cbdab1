# Defaults for a plain `cmake -S . -B build -G Ninja` (and for pip, which runs the same). Included before project();
# everything here can be set on the command line or in the environment instead.

# Debian's LLVM packages do not put themselves on CMake's search path.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/llvm-22)

# The compiler LLVM itself was built with, and the one the warnings-as-errors setting is tested with.
# Under pip the environment names the compiler that Python was built with, which says nothing about us.
if(NOT DEFINED CMAKE_CXX_COMPILER AND (NOT DEFINED ENV{CXX} OR SKBUILD))
  find_program(DISC_CLANG clang-22)
  find_program(DISC_CLANGXX clang++-22)
  if(DISC_CLANG AND DISC_CLANGXX)
    set(CMAKE_C_COMPILER "${DISC_CLANG}" CACHE FILEPATH "C compiler")
    set(CMAKE_CXX_COMPILER "${DISC_CLANGXX}" CACHE FILEPATH "C++ compiler")
    find_program(DISC_LLD ld.lld PATHS /usr/lib/llvm-22/bin)
    if(DISC_LLD)
      # Linking is most of an incremental build; lld halves it.
      foreach(kind EXE SHARED MODULE)
        set(CMAKE_${kind}_LINKER_FLAGS_INIT "-fuse-ld=lld")
      endforeach()
    endif()
  endif()
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(DISC_CCACHE ccache)
  if(DISC_CCACHE)
    # Paths relative to the tree: another checkout of the same sources hits the same entries. The sloppiness is what
    # ccache asks for when there are precompiled headers.
    set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR}"
        CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros "${DISC_CCACHE}")
    set(CMAKE_C_COMPILER_LAUNCHER "${launcher}" CACHE STRING "C compiler launcher")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}" CACHE STRING "C++ compiler launcher")
  endif()
endif()
