//===- ScheduleInterface.td - what all schedules have in common --*- tablegen -*-===//

#ifndef DISC_DIALECTS_PLAN_SCHEDULE_INTERFACE
#define DISC_DIALECTS_PLAN_SCHEDULE_INTERFACE

include "mlir/IR/OpBase.td"

def Plan_ScheduleInterface : AttrInterface<"ScheduleAttrInterface"> {
  let cppNamespace = "::mlir::disc";
  let description = [{
    How a kernel is computed. Each kind of kernel has a schedule for the host's vectors and one for a device's blocks of
    threads, or several; the emitter of the kind asks for its own class. Numbers that no kernel could have are found
    when the attribute is made, and what must fit the kernel when the kernel is verified.
  }];
  let methods = [
    InterfaceMethod<"Whether kernels of this kind may have it.", "bool", "serves", (ins "::mlir::disc::KernelKind":$kind)>,
    InterfaceMethod<"The threads of a block of a device; 0 on the host.", "int64_t", "getBlockThreads", (ins),
        /*methodBody=*/"", /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<"Whether it is for a product on a matrix unit.", "bool", "usesMatrixUnit", (ins),
        /*methodBody=*/"", /*defaultImplementation=*/"return false;">,
    InterfaceMethod<"(P8): reports what does not fit the operations of `kernel`, whose kind it serves.",
        "::llvm::LogicalResult", "verifyKernel", (ins "::mlir::Operation *":$kernel, "::mlir::Block &":$body),
        /*methodBody=*/"", /*defaultImplementation=*/"return ::llvm::success();">,
  ];
}

#endif // DISC_DIALECTS_PLAN_SCHEDULE_INTERFACE
