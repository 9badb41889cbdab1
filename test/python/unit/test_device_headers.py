"""What lib/Runtime/Device declares of the vendors' libraries, compared with their own headers, where there are any."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEVICE = ROOT / "lib/Runtime/Device"
COMPILER = shutil.which("clang++-22") or shutil.which("g++")
SITE = Path(sysconfig.get_path("purelib")) / "nvidia"
FOLDERS = [*SITE.glob("*/include"), *map(Path, ("/usr/local/cuda/include", "/opt/rocm/include", "/usr/include"))]

# Arguments that are passed in the same way: as many bytes, and pointers to as many.
COMPARE = """
#include <cstddef>
#include <type_traits>
template <typename A, typename B> constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using P = std::remove_cv_t<std::remove_pointer_t<A>>;
    using Q = std::remove_cv_t<std::remove_pointer_t<B>>;
    if constexpr (std::is_void_v<P> || std::is_void_v<Q> || std::is_class_v<P> || std::is_class_v<Q>)
      return true;
    else
      return std::is_same_v<P, Q> || alike<P, Q>();
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_same_v<A, B>;
  else
    return std::is_scalar_v<A> && std::is_scalar_v<B> && !std::is_floating_point_v<A> && sizeof(A) == sizeof(B);
}
template <typename A, typename B> constexpr bool same = false;
template <typename R, typename... A, typename S, typename... B> constexpr bool same<R (*)(A...), S (*)(B...)> = [] {
  if constexpr (sizeof...(A) == sizeof...(B))
    return alike<R, S>() && (alike<A, B>() && ...);
  else
    return false;
}();
using namespace disc::rt;
"""
DRIVER = """
static_assert(sizeof({p}) == sizeof(PoolProperties));
static_assert(offsetof({p}, location.type) == offsetof(PoolProperties, locationType));
static_assert(offsetof({p}, location.id) == offsetof(PoolProperties, locationId));
static_assert(offsetof({p}, win32SecurityAttributes) == offsetof(PoolProperties, security));
"""
# Structs of nodes: our fields are at the offsets of theirs, in structs of the same size.
NODES = {
    "cuda": {
        ("KernelParams", "CUDA_KERNEL_NODE_PARAMS_v1"): {
            "function": "func",
            "gridX": "gridDimX",
            "blockX": "blockDimX",
            "blockZ": "blockDimZ",
            "sharedBytes": "sharedMemBytes",
            "args": "kernelParams",
            "extra": "extra",
        },
        ("LaunchConfig", "CUlaunchConfig"): {
            "gridX": "gridDimX",
            "blockZ": "blockDimZ",
            "sharedBytes": "sharedMemBytes",
            "stream": "hStream",
            "attributes": "attrs",
            "count": "numAttrs",
        },
        ("LaunchAttribute", "CUlaunchAttribute"): {
            "id": "id",
            "value": "value.programmaticStreamSerializationAllowed",
        },
        ("EdgeData", "CUgraphEdgeData"): {"from": "from_port", "to": "to_port", "type": "type"},
        ("CopyParams", "CUDA_MEMCPY3D"): {
            "from.x": "srcXInBytes",
            "from.level": "srcLOD",
            "from.memory": "srcMemoryType",
            "from.host": "srcHost",
            "from.device": "srcDevice",
            "from.array": "srcArray",
            "from.pitch": "srcPitch",
            "to.x": "dstXInBytes",
            "to.memory": "dstMemoryType",
            "to.device": "dstDevice",
            "to.height": "dstHeight",
            "width": "WidthInBytes",
            "height": "Height",
            "depth": "Depth",
        },
    },
    "hip": {
        ("KernelParams", "hipKernelNodeParams"): {
            "block": "blockDim",
            "extra": "extra",
            "function": "func",
            "grid": "gridDim",
            "args": "kernelParams",
            "sharedBytes": "sharedMemBytes",
        }
    },
}
CUDA = {
    "kDriverOk": "CUDA_SUCCESS",
    "kDriverNoMemory": "CUDA_ERROR_OUT_OF_MEMORY",
    "kDriverNoDevice": "CUDA_ERROR_NO_DEVICE",
    "kDriverNotReady": "CUDA_ERROR_NOT_READY",
    "kHostPortable": "CU_MEMHOSTALLOC_PORTABLE",
    "kHostMapped": "CU_MEMHOSTALLOC_DEVICEMAP",
    "kEventWithoutTiming": "CU_EVENT_DISABLE_TIMING",
    "kStreamNonBlocking": "CU_STREAM_NON_BLOCKING",
    "kCaptureRelaxed": "CU_STREAM_CAPTURE_MODE_RELAXED",
    "memory": "CU_MEMORYTYPE_DEVICE",
    "kPoolReleaseThreshold": "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD",
    "kJitErrorLog": "CU_JIT_ERROR_LOG_BUFFER",
    "kJitErrorLogBytes": "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
    "kDynamicSharedBytes": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "id": "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
    "from": "CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC",
    "type": "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC",
    "kMajor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "kMinor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
    "allocationType": "CU_MEM_ALLOCATION_TYPE_PINNED",
    "locationType": "CU_MEM_LOCATION_TYPE_DEVICE",
}
HIP = {
    "kDriverOk": "hipSuccess",
    "kDriverNoMemory": "hipErrorOutOfMemory",
    "kDriverNoDevice": "hipErrorNoDevice",
    "kDriverNotReady": "hipErrorNotReady",
    "kHostPortable": "hipHostMallocPortable",
    "kHostMapped": "hipHostMallocMapped",
    "kEventWithoutTiming": "hipEventDisableTiming",
    "kStreamNonBlocking": "hipStreamNonBlocking",
    "kCaptureRelaxed": "hipStreamCaptureModeRelaxed",
    "kCopyWithinDevice": "hipMemcpyDeviceToDevice",
    "kPoolReleaseThreshold": "hipMemPoolAttrReleaseThreshold",
    "kJitErrorLog": "hipJitOptionErrorLogBuffer",
    "kJitErrorLogBytes": "hipJitOptionErrorLogBufferSizeBytes",
    "allocationType": "hipMemAllocationTypePinned",
    "locationType": "hipMemLocationTypeDevice",
}
BLAS = {
    "compute": "{v}_COMPUTE_32F",
    "computeTf32": "{v}_COMPUTE_32F_FAST_TF32",
    "plain": "{v}_OP_N",
    "transposed": "{v}_OP_T",
    "transposeA": "{v}LT_MATMUL_DESC_TRANSA",
    "transposeB": "{v}LT_MATMUL_DESC_TRANSB",
    "epilogue": "{v}LT_MATMUL_DESC_EPILOGUE",
    "bias": "{v}LT_MATMUL_DESC_BIAS_POINTER",
    "biasType": "{v}LT_MATMUL_DESC_BIAS_DATA_TYPE",
    "batch": "{v}LT_MATRIX_LAYOUT_BATCH_COUNT",
    "batchStride": "{v}LT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET",
    "invalid": "{v}_STATUS_INVALID_VALUE",
    "mismatch": "{v}_STATUS_ARCH_MISMATCH",
    "unsupported": "{v}_STATUS_NOT_SUPPORTED",
    "kPreferredWorkspace": "{v}LT_MATMUL_PREF_MAX_WORKSPACE_BYTES",
    "kEpilogueBias": "{v}LT_EPILOGUE_BIAS",
    "kEpilogueGeluBias": "{v}LT_EPILOGUE_GELU_BIAS",
}
RESULT = """
using Result = {v}LtMatmulHeuristicResult_t;
static_assert(sizeof({v}LtMatmulAlgo_t) == algorithmBytes && offsetof(Result, workspaceSize) == algorithmBytes);
static_assert(offsetof(Result, state) == algorithmBytes + 8 && sizeof(Result) <= 256 && alignof(Result) <= 16);
"""
HEADERS = ("cuda.h", "cublasLt.h", "hip/hip_runtime_api.h", "hipblaslt/hipblaslt.h")
FOUND = {name: [folder for folder in FOLDERS if (folder / name).is_file()] for name in HEADERS}


def compare(tmp_path, source, header, table, prefix, numbers, more=""):
    """What the compiler says of our declarations beside those of `header`; "" if they are the same."""
    if not COMPILER or not FOUND[header]:
        pytest.skip(f"no {header} here" if COMPILER else "no compiler for C++")
    text = (DEVICE / source).read_text()
    part = re.search(r"static Status open" + prefix.capitalize() + r"\(.*?^}", text, re.S | re.M)
    body = part[0] if part else text
    known = dict(re.findall(r"\b(\w+) = (\d+)[,;]", (DEVICE / "Driver.h").read_text() + text))
    known |= dict(re.findall(r"table\.(\w+) = (\d+)", body))
    lines = [f'#include <{header}>\n#include "{DEVICE / source}"', COMPARE]
    public = (FOUND[header][0] / header).read_text()
    asked = re.findall(r'(?:library|newer)\.find\((\w+)\.(\w+), "(\w+)"\)', body)
    assert len(asked) > 10
    for owner, member, function in asked:
        # A template beside it has the same name.
        if not re.search(rf"static inline \w+ {function}\(", public):
            kind = table if owner == "table" else owner.capitalize()
            lines.append(f'static_assert(same<decltype({kind}::{member}), decltype(&::{function})>, "{function}");')
    for ours, theirs in numbers.items():
        lines.append(f'static_assert({known[ours]} == int({theirs}), "{ours}");')
    lines.append(f"constexpr size_t algorithmBytes = {known.get('algorithmBytes', 0)};\n{more}")
    # Headers of types that no function of ours has, and that come in other packages.
    for name in ("cuda_fp16.h", "cuda_bf16.h"):
        (tmp_path / name).write_text("#pragma once\nstruct __half; struct __half2; struct __nv_bfloat16;\n")
    (tmp_path / "check.cpp").write_text("\n".join(lines))
    folders = [tmp_path, ROOT, *FOUND[header], *(f for f in FOLDERS if SITE in f.parents)]
    defines = ["__CUDA_API_VERSION_INTERNAL", "__HIP_PLATFORM_AMD__", "__HIP_DISABLE_CPP_FUNCTIONS__"]
    command = [COMPILER, "-std=c++17", "-fsyntax-only", "-w", *(f"-D{name}" for name in defines)]
    command += [f"-I{folder}" for folder in folders if folder != Path("/usr/include")]
    return subprocess.run([*command, tmp_path / "check.cpp"], capture_output=True, text=True).stderr


def nodes(driver):
    """Assertions on the layout of nodes' structs."""
    lines = []
    for (ours, theirs), fields in NODES[driver].items():
        lines.append(f"static_assert(sizeof({ours}) == sizeof({theirs}));")
        lines += [f"static_assert(offsetof({ours}, {a}) == offsetof({theirs}, {b}));" for a, b in fields.items()]
    return "\n".join(lines)


def test_cuda(tmp_path):
    more = DRIVER.format(p="CUmemPoolProps") + nodes("cuda")
    assert compare(tmp_path, "Cuda.cpp", "cuda.h", "Driver", "", CUDA, more) == ""
    # It does find what differs.
    more = "static_assert(same<decltype(Driver::init), decltype(&::cuDeviceGet)>);"
    assert "error: static assertion failed" in compare(tmp_path, "Cuda.cpp", "cuda.h", "Driver", "", CUDA, more)


def test_cublas(tmp_path):
    numbers = {ours: theirs.format(v="CUBLAS") for ours, theirs in BLAS.items()}
    numbers["alignment"] = "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES"
    numbers["reduction"] = "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK"
    numbers["kReductionInComputeType"] = "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"
    more = RESULT.format(v="cublas")
    assert compare(tmp_path, "Blas.cpp", "cublasLt.h", "BlasTable", "cublas", numbers, more) == ""


def test_hip(tmp_path):
    more = "static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == offsetof(Properties, arch));"
    more += "static_assert(sizeof(hipDeviceProp_tR0600) <= sizeof(Properties));" + DRIVER.format(p="hipMemPoolProps")
    more += nodes("hip")
    assert compare(tmp_path, "Hip.cpp", "hip/hip_runtime_api.h", "Driver", "", HIP, more) == ""


def test_hipblas(tmp_path):
    numbers = {ours: theirs.format(v="HIPBLAS") for ours, theirs in BLAS.items()}
    more = RESULT.format(v="hipblas")
    assert compare(tmp_path, "Blas.cpp", "hipblaslt/hipblaslt.h", "BlasTable", "hipblas", numbers, more) == ""
