// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-describe-device{device=cuda warp=32 arch=sm_80,sm_90})' | FileCheck %s
// CHECK: disc_plan.target = #disc_plan.target<triple = "x86_64-pc-linux-gnu", device = "cuda", arch = ["sm_80", "sm_90"]>
module attributes {disc_plan.target = #disc_plan.target<triple = "x86_64-pc-linux-gnu">} {
}
