// RUN: disc-opt %s --verify-diagnostics --pass-pipeline='builtin.module(%nvvm-passes,disc-nvvm-serialize{arch=sm_80 ptxas=/nowhere/ptxas})'

// expected-error @below {{ptxas: '/nowhere/ptxas' is not an executable program}}
module {
  gpu.module @kernels {
    gpu.func @k() kernel attributes {known_block_size = array<i32: 32, 1, 1>} { gpu.return }
  }
}
