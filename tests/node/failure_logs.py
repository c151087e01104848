"""Ends of real logs, shortened, with the outcome that each must get.

The CPU ones were made with torch 2.13 on this project's own jobs; the GPU ones are the wording of
torch 1.13 to 2.8, NCCL, triton and Megatron as users report it.
"""

from dataclasses import dataclass

from infrarsi.contract import Outcome

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class FailureLog:
    """One log: what must come out, a part of the reason, and the memory needed at least."""

    name: str
    outcome: Outcome
    reason: str
    text: str
    exit_code: int = 1
    at_least: int | None = None


_RUN = '  File "/job/copy/train.py", line 88, in main\n    loss.backward()\n'
_TORCH = '  File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 521, in backward\n'
_TRACE = "Traceback (most recent call last):\n"

_ELASTIC = (
    _TRACE
    + '  File "/opt/bin/torchrun", line 6, in <module>\n    sys.exit(main())\n'
    + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    + "=" * 60
    + "\ntrain.py FAILED\n"
)


def elastic(rank: int, code: str) -> str:
    """torchrun's summary of a failed rank."""
    return (
        _ELASTIC + "Failures:\n  <NO_OTHER_FAILURES>\n" + "-" * 60 + "\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-11-29_16:35:29\n"
        f"  host      : localhost\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code}\n  error_file: <N/A>\n"
    )


LOGS = (
    FailureLog(
        "gpu memory, torch 2.5 and later",
        Outcome.OOM_GPU,
        "CUDA out of memory. Tried to allocate 22.00 MiB",
        _TRACE
        + _RUN
        + _TORCH
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a "
        "total capacity of 23.65 GiB of which 11.06 MiB is free. Including non-PyTorch memory, "
        "this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB is allocated "
        "by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
        "to avoid fragmentation.\n",
        at_least=int(22.90 * GIB) + int(194.87 * MIB) + int(11.06 * MIB),
    ),
    FailureLog(
        "gpu memory, a large request",
        Outcome.OOM_GPU,
        "Tried to allocate 3.00 GiB",
        _TRACE
        + _RUN
        + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has "
        "a total capacty of 23.65 GiB of which 1.66 GiB is free. Including non-PyTorch memory, "
        "this process has 20.81 GiB memory in use. Of the allocated memory 12.09 GiB is allocated "
        "by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated.\n",
        at_least=int(12.09 * GIB) + int(4.84 * GIB) + int(1.66 * GIB),
    ),
    FailureLog(
        "gpu memory, torch 1.x",
        Outcome.OOM_GPU,
        "Tried to allocate 192.00 MiB",
        _TRACE
        + _RUN
        + "RuntimeError: CUDA out of memory. Tried to allocate 192.00 MiB (GPU 0; 4.00 GiB total "
        "capacity; 3.08 GiB already allocated; 0 bytes free; 3.47 GiB reserved in total by "
        "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb\n",
        at_least=int(3.47 * GIB),
    ),
    FailureLog(
        "gpu memory on one rank, the other waits",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        "[rank0]: "
        + _TRACE
        + "[rank0]: "
        + _RUN.replace("\n", "\n[rank0]: ", 1)
        + "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/"
        "c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version "
        "2.20.5\n[rank0]: ncclRemoteError: A call failed possibly due to a network error\n"
        "[rank1]: "
        + _TRACE
        + "[rank1]: "
        + _RUN.replace("\n", "\n[rank1]: ", 1)
        + "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 "
        "has a total capacity of 79.15 GiB of which 1.06 GiB is free. Of the allocated memory "
        "76.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but "
        "unallocated.\n" + elastic(1, "1 (pid: 14622)"),
        at_least=78 * GIB,
    ),
    FailureLog(
        "gpu memory inside a compiled graph",
        Outcome.OOM_GPU,
        "Tried to allocate 1.50 GiB",
        _TRACE
        + _RUN
        + "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 1.50 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 GiB is free.\n",
        at_least=int(1.5 * GIB),
    ),
    FailureLog(
        "cublas handle",
        Outcome.OOM_GPU,
        "CUBLAS_STATUS_ALLOC_FAILED",
        _TRACE + _RUN + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
        "`cublasCreate(handle)`\n",
    ),
    FailureLog(
        "cpu allocator",
        Outcome.OOM_HOST,
        "can't allocate memory: you tried to allocate 4503599627370496 bytes",
        _TRACE
        + _RUN
        + "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 4503599627370496 bytes. Error code 12 (Cannot "
        "allocate memory)\n",
    ),
    FailureLog(
        "numpy",
        Outcome.OOM_HOST,
        "Unable to allocate 256. TiB for an array",
        _TRACE
        + _RUN
        + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 256. TiB for an array "
        "with shape (35184372088832,) and data type float64\n",
    ),
    FailureLog("MemoryError", Outcome.OOM_HOST, "MemoryError", _TRACE + _RUN + "MemoryError\n"),
    FailureLog(
        "shared memory of data workers",
        Outcome.OOM_HOST,
        "is killed by signal: Bus error",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).\n"
        + _TRACE
        + _RUN
        + "RuntimeError: DataLoader worker (pid 2991) is killed by signal: Bus error. It is "
        "possible that dataloader's workers are out of shared memory. Please try to raise your "
        "shared memory limit.\n",
    ),
    FailureLog(
        "shared memory of nccl",
        Outcome.OOM_HOST,
        "Error while creating shared memory segment",
        _TRACE
        + _RUN
        + "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled "
        "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
        "device error.\nLast error:\nError while creating shared memory segment "
        "/dev/shm/nccl-4JgT1q (size 9637888)\n",
    ),
    FailureLog(
        "a rank killed by the kernel",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        elastic(1, "-9 (pid: 14622)"),
    ),
    FailureLog(
        "the shell says Killed",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        "train.sh: line 12:  4242 Killed                  python train.py\n",
        exit_code=137,
    ),
    FailureLog(
        "no C++ compiler",
        Outcome.COMPILE_FAILED,
        "InvalidCxxCompiler: No working C++ compiler found",
        _TRACE
        + _RUN
        + "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in "
        "torch._inductor.config.cpp.cxx: (None, '/bin/false')\n\nSet TORCHDYNAMO_VERBOSE=1 for "
        "the internal stack trace\n",
    ),
    FailureLog(
        "C++ compile error",
        Outcome.COMPILE_FAILED,
        "backend='inductor' raised",
        _TRACE + _RUN + "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
        "CppCompileError: C++ compile error\n\nCommand:\ng++ /tmp/x/cwofhk5bheglv.cpp -shared\n",
    ),
    FailureLog(
        "unsupported by dynamo",
        Outcome.COMPILE_FAILED,
        "torch._dynamo.exc.Unsupported",
        _TRACE + _RUN + "torch._dynamo.exc.Unsupported: Data-dependent branching\n",
    ),
    FailureLog(
        "triton shared memory",
        Outcome.COMPILE_FAILED,
        "out of resource: shared memory, Required: 131072",
        _TRACE
        + _RUN
        + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
        "131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n",
    ),
    FailureLog(
        "port of the rendezvous, new wording",
        Outcome.INFRA,
        "EADDRINUSE",
        _TRACE
        + '  File "/opt/bin/torchrun", line 6, in <module>\n    sys.exit(main())\n'
        + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 44983, useIpv6: false, code: -98, name: EADDRINUSE, message: "
        "address already in use\n",
    ),
    FailureLog(
        "port of the rendezvous, old wording",
        Outcome.INFRA,
        "Address already in use",
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
        "Address already in use).\n"
        + _TRACE
        + _RUN
        + "RuntimeError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).\n",
    ),
    FailureLog(
        "a broken GPU",
        Outcome.INFRA,
        "uncorrectable ECC error",
        _TRACE
        + _RUN
        + "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might "
        "be asynchronously reported at some other API call\n",
    ),
    FailureLog(
        "a full disk",
        Outcome.INFRA,
        "No space left on device",
        _TRACE + _RUN + "OSError: [Errno 28] No space left on device: '/out/step40.pt'\n",
    ),
    FailureLog(
        "megatron's own check",
        Outcome.NUMERIC,
        "found NaN in local grad norm",
        _TRACE
        + _RUN
        + "AssertionError: Rank 11: found NaN in local grad norm in backward pass before "
        "data-parallel communication collective. Device: 3\n",
    ),
    FailureLog(
        "anomaly detection",
        Outcome.NUMERIC,
        "returned nan values",
        _TRACE
        + _RUN
        + "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.\n",
    ),
    FailureLog(
        "a rank raises, the other sees the connection close",
        Outcome.USER_ERROR,
        "ValueError: expected 8 heads, got 7 (train.py:88)",
        "[rank0]: "
        + _TRACE
        + '[rank0]:   File "/job/copy/train.py", line 90, in main\n'
        + "[rank0]: RuntimeError: [/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
        "Connection closed by peer [127.0.0.1]:5035. This is typically caused by a remote worker "
        "crashing.\n[rank1]: "
        + _TRACE
        + '[rank1]:   File "/job/copy/train.py", line 88, in main\n'
        + "[rank1]: ValueError: expected 8 heads, got 7\n"
        + elastic(1, "1 (pid: 14654) "),
    ),
    FailureLog(
        "a missing module",
        Outcome.USER_ERROR,
        "exit code 1: ModuleNotFoundError: No module named 'flash_attn' (train.py:3)",
        _TRACE
        + '  File "/job/copy/train.py", line 3, in <module>\n    import flash_attn\n'
        + "ModuleNotFoundError: No module named 'flash_attn'\n",
    ),
    FailureLog(
        "a wrong argument",
        Outcome.USER_ERROR,
        "exit code 2; its output ends with 'train.py: error: unrecognized arguments: --fast'",
        "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --fast\n",
        exit_code=2,
    ),
    FailureLog(
        "a rank crashes",
        Outcome.USER_ERROR,
        "rank 1 ended with signal 11 (SIGSEGV)",
        elastic(1, "-11 (pid: 14622)"),
    ),
    FailureLog(
        "an error chained on a look-up",
        Outcome.USER_ERROR,
        "RuntimeError: no such attention (train.py:88)",
        _TRACE
        + '  File "/job/copy/model.py", line 7, in pick\n'
        + "KeyError: 'sdpa'\n\nThe above exception was the direct cause of the following "
        "exception:\n\n" + _TRACE + _RUN + "RuntimeError: no such attention\n",
    ),
    FailureLog(
        "memory that ran out earlier and was caught",
        Outcome.USER_ERROR,
        "ValueError: bad shape",
        "retrying after CUDA out of memory. Tried to allocate 2.00 GiB\n"
        + _TRACE
        + _RUN
        + "ValueError: bad shape\n",
    ),
)
