# Helpers that keep each folder's CMakeLists.txt to one call.

# Warnings are errors with the compiler that we test with; others warn about things of their own.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(DISC_WERROR -Werror)
endif()

# Flags of the compiler's own C++: no exceptions, warnings are errors.
add_library(disc_compiler_flags INTERFACE)
target_include_directories(disc_compiler_flags INTERFACE
  "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
target_include_directories(disc_compiler_flags SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_compile_options(disc_compiler_flags INTERFACE
  -Wall -Wextra -Wno-unused-parameter ${DISC_WERROR} -fno-exceptions)
if(NOT LLVM_ENABLE_RTTI)
  target_compile_options(disc_compiler_flags INTERFACE -fno-rtti)
endif()
separate_arguments(DISC_LLVM_DEFINITIONS NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(disc_compiler_flags INTERFACE ${DISC_LLVM_DEFINITIONS})

# MLIR's headers cost about 8 s a file; parsed once they cost 1. Sources still include all they use.
option(DISC_PCH "Precompile MLIR's headers" ON)
if(DISC_PCH)
  file(WRITE "${PROJECT_BINARY_DIR}/disc_pch.cpp" "")
  add_library(disc_pch STATIC "${PROJECT_BINARY_DIR}/disc_pch.cpp")
  target_link_libraries(disc_pch PUBLIC disc_compiler_flags)
  target_precompile_headers(disc_pch PRIVATE
    <mlir/Dialect/Arith/IR/Arith.h> <mlir/Dialect/Func/IR/FuncOps.h> <mlir/Dialect/LLVMIR/LLVMDialect.h>
    <mlir/Dialect/Linalg/IR/Linalg.h> <mlir/Dialect/Math/IR/Math.h> <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/Dialect/Tensor/IR/Tensor.h> <mlir/Dialect/Vector/IR/VectorOps.h> <mlir/IR/Builders.h>
    <mlir/IR/BuiltinOps.h> <mlir/IR/IRMapping.h> <mlir/Pass/Pass.h> <mlir/Pass/PassManager.h>)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Lets a compiler cache keep files that use it.
    target_compile_options(disc_compiler_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()

# disc_add_library(<name> SRCS ... [DEPS ...] [LINKS ...]): a static library of the compiler.
function(disc_add_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_link_libraries(${name} PUBLIC disc_compiler_flags ${ARG_LINKS})
  add_dependencies(${name} disc_tablegen ${ARG_DEPS})
  if(DISC_PCH)
    target_precompile_headers(${name} REUSE_FROM disc_pch)
  endif()
endfunction()

# Every generated header; all C++ of the compiler waits for them.
add_custom_target(disc_tablegen)

function(disc_tablegen_target name)
  add_public_tablegen_target(${name})
  add_dependencies(disc_tablegen ${name})
endfunction()

# disc_add_dialect(<Name> SRCS ...): <Name>.td in the folder gives <Name>{Dialect,Ops,Attrs,Enums}.{h,cpp}.inc.
function(disc_add_dialect name)
  cmake_parse_arguments(ARG "" "" "SRCS;LINKS" ${ARGN})
  string(TOLOWER ${name} lower)
  set(LLVM_TARGET_DEFINITIONS ${name}.td)
  mlir_tablegen(${name}Dialect.h.inc -gen-dialect-decls -dialect=disc_${lower})
  mlir_tablegen(${name}Dialect.cpp.inc -gen-dialect-defs -dialect=disc_${lower})
  mlir_tablegen(${name}Ops.h.inc -gen-op-decls)
  mlir_tablegen(${name}Ops.cpp.inc -gen-op-defs)
  mlir_tablegen(${name}Attrs.h.inc -gen-attrdef-decls -attrdefs-dialect=disc_${lower})
  mlir_tablegen(${name}Attrs.cpp.inc -gen-attrdef-defs -attrdefs-dialect=disc_${lower})
  mlir_tablegen(${name}Enums.h.inc -gen-enum-decls)
  mlir_tablegen(${name}Enums.cpp.inc -gen-enum-defs)
  disc_tablegen_target(disc_${lower}_inc)
  disc_add_library(DiscDialect${name} SRCS ${ARG_SRCS} LINKS ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY DISC_LIBS DiscDialect${name})
endfunction()

# A folder of passes: Passes.td (if there is one) gives <Name>/Passes.h.inc with registerDisc<Name>Passes(), and Kinds.td
# what the folder wants of kinds of kernels.
function(disc_add_pass_folder library name)
  cmake_parse_arguments(ARG "" "" "SRCS;LINKS" ${ARGN})
  string(TOLOWER ${name} lower)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/Passes.td")
    set(LLVM_TARGET_DEFINITIONS Passes.td)
    mlir_tablegen(Passes.h.inc -gen-pass-decls -name=Disc${name})
    disc_tablegen_target(disc_${lower}_passes_inc)
  endif()
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/Kinds.td")
    set(LLVM_TARGET_DEFINITIONS Kinds.td)
    mlir_tablegen(Kinds.h.inc -gen-attr-interface-decls)
    mlir_tablegen(Kinds.cpp.inc -gen-attr-interface-defs)
    disc_tablegen_target(disc_${lower}_kinds_inc)
  endif()
  disc_add_library(${library} SRCS ${ARG_SRCS} LINKS ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY DISC_LIBS ${library})
endfunction()

# disc_add_stage(<Name> SRCS ...): one folder of lib/Transforms.
function(disc_add_stage name)
  disc_add_pass_folder(Disc${name} ${name} ${ARGN})
endfunction()

# disc_add_target(<Name> SRCS ...): one folder of lib/Target.
function(disc_add_target name)
  disc_add_pass_folder(DiscTarget${name} ${name} ${ARGN})
endfunction()
