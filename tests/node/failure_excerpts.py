"""Failures of many stacks, launchers and machines, with what must be said of each.

Written in the manner of the real ones for this table. `at_least` is exact: None means that no bound
may be given. The kinds that are easily taken for another one come last.
"""

from failure_logs import GIB, MIB, FailureLog, elastic

from infrarsi.contract import Outcome

_TRACE = "Traceback (most recent call last):\n"
_LOOP = '  File "/job/copy/pretrain.py", line 41, in step\n    loss.backward()\n'
_LIB = '  File "/opt/env/lib/python3.11/site-packages/lib/core.py", line 7, in call\n'
GB = 10**9


def raised(line: str, frames: str = _LOOP + _LIB) -> str:
    """One traceback that ends with `line`."""
    return f"{_TRACE}{frames}{line}\n"


def on(rank: int, text: str, tag: str = "[rank{}]: ") -> str:
    """The same with the tag of a rank before each line."""
    return "".join(f"{tag.format(rank)}{line}\n" for line in text.splitlines())


def mixed(*texts: str) -> str:
    """The lines of several texts in turn."""
    lines = [text.splitlines() for text in texts]
    longest = max(map(len, lines))
    return "".join(f"{one[i]}\n" for i in range(longest) for one in lines if i < len(one))


def new_oom(asked: str, free: str, allocated: str, unallocated: str, device: str = "CUDA") -> str:
    """The message of torch 2.1 and newer."""
    return (
        f"torch.OutOfMemoryError: {device} out of memory. Tried to allocate {asked}. GPU 2 has a "
        f"total capacity of 79.11 GiB of which {free} is free. Including non-PyTorch memory, this "
        f"process has 78.02 GiB memory in use. Of the allocated memory {allocated} is allocated by "
        f"PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
    )


_REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: /src/ProcessGroupNCCL.cpp:2251, remote "
    "process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call "
    "failed possibly due to a network error or a remote process exiting prematurely."
)
_WATCHDOG = (
    "[rank0]:[E1103 02:11:40.118 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=811, OpType=ALLREDUCE, NumelIn=26214400, "
    "NumelOut=26214400, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
    "[rank0]:[E1103 02:11:41.003 ProcessGroupNCCL.cpp:630] [Rank 0] Some NCCL operations have "
    "failed or timed out. To avoid data inconsistency, we are taking the entire process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
)
_GLOO = (
    "RuntimeError: [/src/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.0.7]:41822"
)

MEMORY = (
    FailureLog(
        "old torch, cached instead of reserved",
        Outcome.OOM_GPU,
        "Tried to allocate 1.50 GiB",
        raised(
            "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.75 GiB total "
            "capacity; 13.00 GiB already allocated; 512.00 MiB free; 14.25 GiB cached)"
        ),
        at_least=int(14.75 * GIB),
    ),
    FailureLog(
        "asked for more than was left in the cache",
        Outcome.OOM_GPU,
        "Tried to allocate 12.00 GiB",
        raised(new_oom("12.00 GiB", "1.00 GiB", "70.00 GiB", "512.00 MiB")),
        at_least=82 * GIB,
    ),
    FailureLog(
        "with private pools of CUDA graphs",
        Outcome.OOM_GPU,
        "Tried to allocate 4.00 GiB",
        raised(
            new_oom("4.00 GiB", "256.00 MiB", "74.00 GiB", "1.00 GiB").replace(
                "by PyTorch, and", "by PyTorch, with 3.00 GiB allocated in private pools, and"
            )
        ),
        at_least=78 * GIB,
    ),
    FailureLog(
        "HIP",
        Outcome.OOM_GPU,
        "HIP out of memory",
        raised(new_oom("2.00 GiB", "0 bytes", "60.00 GiB", "1.00 GiB", "HIP")),
        at_least=62 * GIB,
    ),
    FailureLog(
        "HIP with a free figure that no device has",
        Outcome.OOM_GPU,
        "HIP out of memory",
        raised(new_oom("2.00 GiB", "17179869178.00 GiB", "60.00 GiB", "1.00 GiB", "HIP")),
        at_least=62 * GIB,
    ),
    FailureLog(
        "a share of the device was allowed",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        raised(
            new_oom("2.00 GiB", "59.00 GiB", "18.00 GiB", "1.00 GiB").replace(
                "in use. Of", "in use. 20.00 GiB allowed; Of"
            )
        ),
        at_least=20 * GIB,
    ),
    FailureLog(
        "the asynchronous allocator",
        Outcome.OOM_GPU,
        "Allocation on device 0 would exceed allowed memory",
        raised(
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
            "memory)\nCurrently allocated     : 20.00 GiB\nRequested               : 512.00 MiB\n"
            "Device limit            : 23.64 GiB\nFree (according to CUDA): 15.88 MiB\nPyTorch "
            "limit (set by user-supplied memory fraction)\n                        : 17179869184.00"
            " GiB"
        ),
        at_least=20 * GIB + 512 * MIB,
    ),
    FailureLog(
        "MPS says GB, of which the smaller reading is a bound",
        Outcome.OOM_GPU,
        "MPS backend out of memory",
        raised(
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: "
            "193.25 MB, max allowed: 18.13 GB). Tried to allocate 1.50 GB on private pool."
        ),
        at_least=int(18.5 * GB),
    ),
    FailureLog(
        "a message that a terminal broke",
        Outcome.OOM_GPU,
        "CUDA out of memory",
        "\u256d\u2500\u2500 Traceback (most recent call last) \u2500\u2500\u256e\n"
        "\u2502 /job/copy/pretrain.py:41 in step            \u2502\n"
        "\u2502 \u2771 41    loss.backward()                      \u2502\n"
        "\u2570\u2500\u2500\u2500\u2500\u256f\n"
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a\ntotal "
        "capacity of 79.11 GiB of which 2.00 GiB is free. Of the allocated memory\n74.00 GiB is "
        "allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but\nunallocated.\n",
        at_least=80 * GIB,
    ),
    FailureLog(
        "two ranks, lines mixed, each with its own figures",
        Outcome.OOM_GPU,
        "Tried to allocate 3.00 GiB",
        mixed(
            on(1, raised(new_oom("3.00 GiB", "1.00 GiB", "72.00 GiB", "2.00 GiB"))),
            on(3, raised(new_oom("5.00 GiB", "1.00 GiB", "71.00 GiB", "2.00 GiB"))),
        ),
        at_least=76 * GIB,
    ),
    FailureLog(
        "coloured by a newer Python",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        raised(
            "\x1b[1;35mtorch.OutOfMemoryError\x1b[0m: \x1b[35m"
            + new_oom("2.00 GiB", "1.00 GiB", "76.00 GiB", "0 bytes").partition(": ")[2]
            + "\x1b[0m"
        ),
        at_least=78 * GIB,
    ),
    FailureLog(
        "the bound is of what failed, not of a larger batch that was tried before",
        Outcome.OOM_GPU,
        "Tried to allocate 1.00 GiB",
        "batch 64 does not fit: CUDA out of memory. Tried to allocate 90.00 GiB. GPU 0 has a total "
        "capacity of 79.11 GiB of which 9.00 GiB is free. Of the allocated memory 60.00 GiB is "
        "allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n"
        + raised(new_oom("1.00 GiB", "512.00 MiB", "77.00 GiB", "0 bytes")),
        at_least=78 * GIB,
    ),
    FailureLog(
        "wrapped in an error of the trainer",
        Outcome.OOM_GPU,
        "out of memory",
        raised(new_oom("1.00 GiB", "512.00 MiB", "77.00 GiB", "0 bytes"))
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + raised("RuntimeError: training step 3 failed"),
        at_least=78 * GIB,
    ),
    FailureLog(
        "a driver call",
        Outcome.OOM_GPU,
        "CUDA driver error: out of memory",
        raised("RuntimeError: CUDA driver error: out of memory"),
    ),
    FailureLog(
        "the runtime, asynchronously",
        Outcome.OOM_GPU,
        "CUDA error: out of memory",
        raised(
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously "
            "reported at some other API call, so the stacktrace below might be incorrect."
        ),
    ),
    FailureLog(
        "a kernel that triton could not load",
        Outcome.OOM_GPU,
        "Triton Error [CUDA]: out of memory",
        raised("RuntimeError: Triton Error [CUDA]: out of memory"),
    ),
    FailureLog(
        "cudnn",
        Outcome.OOM_GPU,
        "CUDNN_STATUS_ALLOC_FAILED",
        raised("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ),
    FailureLog(
        "a workspace of cudnn 9",
        Outcome.OOM_GPU,
        "DEVICE_ALLOCATION_FAILED",
        raised("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ),
    FailureLog(
        "nccl's own buffers",
        Outcome.OOM_GPU,
        "Cuda failure 2 'out of memory'",
        on(
            0,
            raised(
                "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled "
                "cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\n"
                "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure "
                "2 'out of memory'"
            ),
        ),
    ),
    FailureLog(
        "nccl's buffers, another wording",
        Outcome.OOM_GPU,
        "Failed to CUDA calloc",
        "node3:811:902 [1] include/alloc.h:228 NCCL WARN Failed to CUDA calloc async 4194304 "
        "bytes\n" + raised(_REMOTE) + elastic(1, "1 (pid: 811)"),
    ),
    FailureLog(
        "memory on one rank, all others wait and time out",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        _WATCHDOG
        + on(2, raised(new_oom("2.00 GiB", "1.00 GiB", "76.00 GiB", "0 bytes")))
        + elastic(0, "-6 (pid: 800)"),
        at_least=78 * GIB,
    ),
    FailureLog(
        "the rank's error as torchrun kept it",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        elastic(5, "1 (pid: 77)").replace(
            "error_file: <N/A>\n",
            "error_file: /tmp/torchelastic_x/5/error.json\n  traceback : "
            + raised(new_oom("2.00 GiB", "1.00 GiB", "76.00 GiB", "0 bytes")).replace("\n", "\n  "),
        ),
        at_least=78 * GIB,
    ),
    FailureLog(
        "a child of torch.multiprocessing.spawn",
        Outcome.OOM_GPU,
        "Tried to allocate 2.00 GiB",
        raised("torch.multiprocessing.spawn.ProcessRaisedException: ")
        + "\n-- Process 1 terminated with the following error:\n"
        + raised(new_oom("2.00 GiB", "1.00 GiB", "76.00 GiB", "0 bytes")),
        at_least=78 * GIB,
    ),
)

HOST = (
    FailureLog(
        "segments of Python's own do not fit into shared memory",
        Outcome.OOM_HOST,
        "/psm_81ab",
        raised("OSError: [Errno 28] No space left on device: '/psm_81ab'"),
    ),
    FailureLog(
        "the kernel, in a scheduler's words",
        Outcome.OOM_HOST,
        "Detected 1 oom_kill event",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4411.0. Some of the step tasks "
        "have been OOM Killed.\nsrun: error: gpu07: task 3: Out Of Memory\n",
        exit_code=137,
    ),
    FailureLog(
        "the kernel, in its own words",
        Outcome.OOM_HOST,
        "Out of memory: Killed process",
        "[88123.11] Out of memory: Killed process 9911 (python) total-vm:91823212kB\n",
        exit_code=1,
    ),
    FailureLog("killed, in silence", Outcome.OOM_HOST, "out-of-memory killer", "step 3\n", -9),
    FailureLog(
        "killed under accelerate",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        raised(
            "subprocess.CalledProcessError: Command '['python', 'pretrain.py']' died with "
            "<Signals.SIGKILL: 9>."
        ),
    ),
    FailureLog(
        "killed under deepspeed",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        "[2026-02-11 10:00:03,101] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 71\n"
        "[2026-02-11 10:00:03,202] [ERROR] [launch.py:325:sigkill_handler] ['python', "
        "'pretrain.py'] exits with return code = -9\n",
        exit_code=247,
    ),
    FailureLog(
        "killed under mpirun",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        "mpirun noticed that process rank 3 with PID 0 on node gpu2 exited on signal 9 (Killed).\n",
    ),
    FailureLog(
        "killed, and the other rank lost its peer",
        Outcome.OOM_HOST,
        "out-of-memory killer",
        on(0, raised(_GLOO)) + elastic(1, "-9 (pid: 811)"),
    ),
    FailureLog(
        "a killed data worker",
        Outcome.OOM_HOST,
        "is killed by signal: Killed",
        raised("RuntimeError: DataLoader worker (pid 711) is killed by signal: Killed. "),
    ),
    FailureLog(
        "a bus error and nothing else",
        Outcome.OOM_HOST,
        "SIGBUS",
        elastic(0, "-7 (pid: 811)"),
    ),
    FailureLog(
        "a bus error in the shell's words",
        Outcome.OOM_HOST,
        "SIGBUS",
        "run.sh: line 9: 33121 Bus error               (core dumped) python pretrain.py\n",
        exit_code=135,
    ),
    FailureLog(
        "torch's segments do not fit into shared memory",
        Outcome.OOM_HOST,
        "unable to write to file </torch_8112_41>",
        raised(
            "RuntimeError: unable to write to file </torch_8112_41>: No space left on device (28)"
        ),
    ),
    FailureLog(
        "a fork that found no memory",
        Outcome.OOM_HOST,
        "[Errno 12] Cannot allocate memory",
        raised("OSError: [Errno 12] Cannot allocate memory"),
    ),
    FailureLog(
        "C++ found no memory",
        Outcome.OOM_HOST,
        "std::bad_alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
        "std::bad_alloc\n",
        exit_code=-6,
    ),
    FailureLog(
        "Ray's guard of the node's memory is not about the GPU",
        Outcome.OOM_HOST,
        "running low on memory",
        raised(
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
            "memory."
        ),
    ),
)

COMPILER = (
    FailureLog(
        "shared memory of a block is not device memory",
        Outcome.COMPILE_FAILED,
        "out of resource: shared memory, Required: 172032",
        raised(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
            "172032, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."
        ),
    ),
    FailureLog(
        "the same inside of inductor",
        Outcome.COMPILE_FAILED,
        "No valid triton configs",
        raised(
            "torch._inductor.exc.InductorError: RuntimeError: No valid triton configs. "
            "OutOfResources: out of resource: shared memory, Required: 262144"
        ),
    ),
    FailureLog(
        "a graph that dynamo does not take",
        Outcome.COMPILE_FAILED,
        "torch._dynamo.exc.UserError",
        raised("torch._dynamo.exc.UserError: Dynamic control flow is not supported at the moment."),
    ),
    FailureLog(
        "the host's compiler is missing a header",
        Outcome.COMPILE_FAILED,
        "CalledProcessError",
        "/tmp/tmpk2/main.c:1:10: fatal error: Python.h: No such file or directory\n"
        + raised(
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpk2/main.c', '-O3', "
            "'-shared']' returned non-zero exit status 1."
        ),
    ),
    FailureLog(
        "an extension that does not build",
        Outcome.COMPILE_FAILED,
        "Error building extension 'fused_adam'",
        "ninja: build stopped: subcommand failed.\n"
        + raised("RuntimeError: Error building extension 'fused_adam'"),
    ),
    FailureLog(
        "a pass of triton's compiler",
        Outcome.COMPILE_FAILED,
        "PassManager::run failed",
        raised("RuntimeError: PassManager::run failed"),
    ),
)

WORLD = (
    FailureLog(
        "an older NCCL whose system call failed, raised in the job's own process",
        Outcome.INFRA,
        "unhandled system error",
        raised(
            "RuntimeError: NCCL error in: /src/c10d/ProcessGroupNCCL.cpp:900, unhandled system "
            "error, NCCL version 2.9.9\nncclSystemError: System call (socket, munmap, etc) failed."
        ),
    ),
    FailureLog(
        "an older NCCL that could not bind its port, which only its own line says",
        Outcome.INFRA,
        "Address already in use",
        "host:14:14 [0] socket.h:300 NCCL WARN Call to bind failed : Address already in use\n"
        + raised(
            "RuntimeError: NCCL error in: /src/ProcessGroupNCCL.cpp:264, unhandled system error"
        ),
    ),
    FailureLog(
        "a worker of the loader that somebody ended",
        Outcome.INFRA,
        "killed by signal: Terminated",
        raised("RuntimeError: DataLoader worker (pid 812) is killed by signal: Terminated. "),
    ),
    FailureLog(
        "a worker of the loader that was ended because another rank failed",
        Outcome.USER_ERROR,
        "KeyError: 'labels'",
        on(0, raised("RuntimeError: DataLoader worker (pid 812) is killed by signal: Terminated. "))
        + on(1, raised("KeyError: 'labels'")),
    ),
    FailureLog(
        "a checkpoint that the disk did not take",
        Outcome.INFRA,
        "failed with Input/output error",
        raised("RuntimeError: write(): fd 31 failed with Input/output error"),
    ),
    FailureLog(
        "gloo lost a peer",
        Outcome.INFRA,
        "Connection closed by peer",
        raised(
            "RuntimeError: [/src/gloo/transport/tcp/pair.cc:500] Connection closed by peer "
            "[10.0.0.7]:9100"
        ),
    ),
    FailureLog(
        "a full disk, seen by another language",
        Outcome.INFRA,
        "No space left on device",
        raised(
            "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, "
            'kind: StorageFull, message: "No space left on device" })'
        ),
    ),
    FailureLog(
        "a hub that cannot be reached",
        Outcome.INFRA,
        "Max retries exceeded",
        raised(
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', "
            "port=443): Max retries exceeded with url: /api/models"
        ),
    ),
    FailureLog(
        "a port that is taken, of the C++ store",
        Outcome.INFRA,
        "address already in use",
        raised(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: "
            "address already in use"
        ),
    ),
    FailureLog(
        "a port that is taken, of Python's own server",
        Outcome.INFRA,
        "Address already in use",
        raised("OSError: [Errno 98] Address already in use"),
    ),
    FailureLog(
        "a GPU that the kernel gave up",
        Outcome.INFRA,
        "Xid",
        "NVRM: Xid (PCI:0000:4e:00): 79, pid=9911, GPU has fallen off the bus.\n"
        + raised("RuntimeError: CUDA error: unknown error"),
    ),
    FailureLog(
        "an uncorrectable error of memory",
        Outcome.INFRA,
        "uncorrectable ECC error",
        on(4, raised("RuntimeError: CUDA error: uncorrectable ECC error encountered")),
    ),
    FailureLog(
        "a link of the network",
        Outcome.INFRA,
        "Got completion from peer",
        "gpu3:11:90 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.4<4791> with error 12, "
        "opcode 0, len 0, vendor err 129\n" + on(0, raised(_REMOTE)),
    ),
    FailureLog(
        "a remote process is gone and nobody says why",
        Outcome.INFRA,
        "remote process exited",
        on(0, raised(_REMOTE)) + elastic(0, "1 (pid: 44)"),
    ),
    FailureLog(
        "a node that never came",
        Outcome.INFRA,
        "1/2 clients joined",
        raised(
            "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. "
            "1/2 clients joined."
        ),
    ),
    FailureLog(
        "a rendezvous that nobody opened",
        Outcome.INFRA,
        "RendezvousConnectionError",
        raised(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed. See inner exception for details."
        ),
    ),
    FailureLog(
        "a quota",
        Outcome.INFRA,
        "Disk quota exceeded",
        raised("OSError: [Errno 122] Disk quota exceeded: '/out/model.safetensors'"),
    ),
    FailureLog(
        "a full disk, seen by torch.save",
        Outcome.INFRA,
        "PytorchStreamWriter failed writing file",
        raised("RuntimeError: PytorchStreamWriter failed writing file data/41: file write failed"),
    ),
    FailureLog(
        "preempted",
        Outcome.INFRA,
        "DUE TO PREEMPTION",
        "slurmstepd: error: *** STEP 77.0 ON gpu01 CANCELLED AT 2026-01-11T03:10:00 DUE TO "
        "PREEMPTION ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "W0111 03:10:00 api.py:739] Received 15 death signal, shutting down workers\n",
        exit_code=143,
    ),
    FailureLog(
        "SIGTERM through torchrun",
        Outcome.INFRA,
        "got signal: 15",
        "W0111 03:10:00 api.py:739] Closing process 812 via signal SIGTERM\n"
        + raised(
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 801 got "
            "signal: 15"
        ),
    ),
    FailureLog("SIGTERM in silence", Outcome.INFRA, "SIGTERM", "step 3 loss 2.5\n", 143),
    FailureLog(
        "an old driver library",
        Outcome.INFRA,
        "Driver/library version mismatch",
        raised("pynvml.NVMLError_LibRmVersionMismatch: Driver/library version mismatch"),
    ),
)

HANGS_AND_STOPS = (
    FailureLog(
        "a store that nobody wrote to",
        Outcome.TIMEOUT,
        "wait timeout after 300000ms",
        on(1, raised("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /pg/0")),
    ),
    FailureLog(
        "a collective that never ended",
        Outcome.TIMEOUT,
        "Watchdog caught collective operation timeout",
        _WATCHDOG + elastic(0, "-6 (pid: 811)"),
    ),
    FailureLog(
        "gloo that waited for ever",
        Outcome.TIMEOUT,
        "Timed out waiting 1800000ms for recv",
        raised(
            "RuntimeError: [/src/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
            "1800000ms for recv operation to complete"
        ),
    ),
    FailureLog(
        "a barrier with a list of who is missing",
        Outcome.TIMEOUT,
        "failed to pass monitoredBarrier",
        on(0, raised("RuntimeError: Rank 3 failed to pass monitoredBarrier in 30000 ms")),
    ),
    FailureLog(
        "interrupted",
        Outcome.STOPPED,
        "KeyboardInterrupt",
        raised("KeyboardInterrupt"),
        exit_code=130,
    ),
    FailureLog(
        "cancelled by somebody",
        Outcome.STOPPED,
        "CANCELLED AT",
        "slurmstepd: error: *** JOB 77 ON gpu01 CANCELLED AT 2026-01-11T03:10:00 ***\n",
        exit_code=143,
    ),
)

NUMBERS = (
    FailureLog(
        "a loop that looks at its loss",
        Outcome.NUMERIC,
        "Loss is nan, stopping training",
        "Epoch: [0]  [ 40/1250]  loss: nan\nLoss is nan, stopping training\n",
    ),
    FailureLog(
        "a raised one",
        Outcome.NUMERIC,
        "loss is not finite",
        raised("ValueError: step 12: loss is not finite (nan)"),
    ),
    FailureLog(
        "the loss scale found no end",
        Outcome.NUMERIC,
        "Current loss scale already at minimum",
        raised(
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. "
            "Exiting run."
        ),
    ),
    FailureLog(
        "the norm of the gradients",
        Outcome.NUMERIC,
        "is non-finite",
        raised(
            "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is "
            "non-finite, so it cannot be clipped."
        ),
    ),
    FailureLog(
        "megatron's check of the forward pass",
        Outcome.NUMERIC,
        "found NaN in local forward loss",
        on(
            7,
            raised(
                "RuntimeError: Rank 7, node gpu1, device 7, iteration 12: Unexpected result nan "
                "(message='found NaN in local forward loss calculation')"
            ),
        ),
    ),
)

CONFLICTS = (
    FailureLog(
        "sizes that do not make up the world",
        Outcome.CONFLICT,
        "!= WORLD_SIZE(8)",
        raised("AssertionError: dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)"),
    ),
    FailureLog(
        "one setting that requires another",
        Outcome.CONFLICT,
        "requires tensor parallelism",
        raised("AssertionError: sequence parallelism requires tensor parallelism"),
    ),
    FailureLog(
        "a kernel and a precision",
        Outcome.CONFLICT,
        "only support fp16 and bf16",
        raised("RuntimeError: FlashAttention only support fp16 and bf16 data type"),
    ),
    FailureLog(
        "heads over ranks",
        Outcome.CONFLICT,
        "must be divisible by",
        raised("AssertionError: num_attention_heads (30) must be divisible by tensor size (4)"),
    ),
    FailureLog(
        "batch over ranks, on all of them",
        Outcome.CONFLICT,
        "is not divisible by micro batch size",
        mixed(
            *(
                on(
                    rank,
                    raised(
                        "AssertionError: global batch size (100) is not divisible by micro batch "
                        "size (3) times data parallel size (8)"
                    ),
                )
                for rank in range(3)
            )
        )
        + elastic(2, "1 (pid: 44)"),
    ),
    FailureLog(
        "deepspeed's three batch sizes",
        Outcome.CONFLICT,
        "train_batch_size is not equal",
        raised(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to "
            "micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * 4"
        ),
    ),
    FailureLog(
        "two settings that exclude one another",
        Outcome.CONFLICT,
        "mutually exclusive",
        raised("ValueError: `fp16` and `bf16` are mutually exclusive"),
    ),
    FailureLog(
        "argparse knows that they do",
        Outcome.CONFLICT,
        "not allowed with argument",
        "usage: pretrain.py [-h]\npretrain.py: error: argument --fp16: not allowed with argument "
        "--bf16\n",
        exit_code=2,
    ),
    FailureLog(
        "not together with",
        Outcome.CONFLICT,
        "not compatible with",
        raised("ValueError: --overlap-param-gather is not compatible with --cpu-offload"),
    ),
)

USER = (
    FailureLog(
        "an error of a data worker is named as it was raised there",
        Outcome.USER_ERROR,
        "ValueError: row 7 has no label (rows.py:3)",
        raised(
            "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal "
            + raised("ValueError: row 7 has no label", '  File "/job/copy/rows.py", line 3, in f\n')
        ),
    ),
    FailureLog(
        "what torch says of a tensor without gradient is no setting",
        Outcome.USER_ERROR,
        "does not require grad",
        raised("RuntimeError: element 0 of tensors does not require grad"),
    ),
    FailureLog(
        "two ranks on one GPU",
        Outcome.USER_ERROR,
        "invalid usage",
        raised(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:9, invalid usage, "
            "NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
            "library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device"
        ),
    ),
    FailureLog(
        "a word in a key",
        Outcome.USER_ERROR,
        "KeyError: 'out of memory'",
        raised("KeyError: 'out of memory'"),
    ),
    FailureLog(
        "an argument that nobody knows",
        Outcome.USER_ERROR,
        "unrecognized arguments: --fast-mode",
        "usage: pretrain.py [-h] [--lr LR]\npretrain.py: error: unrecognized arguments: "
        "--fast-mode\n",
        exit_code=2,
    ),
    FailureLog(
        "a value that is no choice",
        Outcome.USER_ERROR,
        "invalid choice: 'flash9'",
        "pretrain.py: error: argument --attn: invalid choice: 'flash9' (choose from sdpa, eager)\n",
        exit_code=2,
    ),
    FailureLog(
        "an import",
        Outcome.USER_ERROR,
        "No module named 'apex' (pretrain.py:2)",
        raised(
            "ModuleNotFoundError: No module named 'apex'",
            '  File "/job/copy/pretrain.py", line 2, in <module>\n',
        ),
    ),
    FailureLog(
        "an import that names what it requires",
        Outcome.USER_ERROR,
        "requires `accelerate",
        raised("ImportError: Using the `Trainer` requires `accelerate>=1.1.0`"),
    ),
    FailureLog(
        "data that is not there",
        Outcome.USER_ERROR,
        "No such file or directory: 'data/train.bin' (pretrain.py:41)",
        raised("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'"),
    ),
    FailureLog(
        "no permission",
        Outcome.USER_ERROR,
        "Permission denied: '/out'",
        raised("PermissionError: [Errno 13] Permission denied: '/out'"),
    ),
    FailureLog(
        "a bad address is the program's own",
        Outcome.USER_ERROR,
        "an illegal memory access",
        "NVRM: Xid (PCI:0000:4e:00): 31, pid=9911, MMU Fault\n"
        + raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
    ),
    FailureLog(
        "an index outside",
        Outcome.USER_ERROR,
        "device-side assert triggered",
        raised("RuntimeError: CUDA error: device-side assert triggered"),
    ),
    FailureLog(
        "one rank raises, the others time out",
        Outcome.USER_ERROR,
        "KeyError: 'labels'",
        _WATCHDOG + on(1, raised("KeyError: 'labels'")) + elastic(1, "1 (pid: 812)"),
    ),
    FailureLog(
        "two ranks raise, and torchrun knows which was first",
        Outcome.USER_ERROR,
        "ValueError: the second in the log, the first in time",
        mixed(
            on(0, raised("TypeError: the first in the log")),
            on(3, raised("ValueError: the second in the log, the first in time")),
        )
        + elastic(3, "1 (pid: 9)"),
    ),
    FailureLog(
        "a rank that srun tags",
        Outcome.USER_ERROR,
        "ValueError: rows differ (pretrain.py:41)",
        mixed(
            on(0, raised(_GLOO), "{}: "),
            on(2, raised("ValueError: rows differ"), "{}: "),
        )
        + "srun: error: gpu01: task 2: Exited with exit code 1\n",
    ),
    FailureLog(
        "a rank that mpirun tags",
        Outcome.USER_ERROR,
        "ValueError: rows differ",
        mixed(
            on(0, raised(_GLOO), "[1,{}]<stderr>:"),
            on(2, raised("ValueError: rows differ"), "[1,{}]<stderr>:"),
        ),
    ),
    FailureLog(
        "a crash, which the peers see as a lost network",
        Outcome.USER_ERROR,
        "rank 1 ended with signal 11",
        on(0, raised(_REMOTE)) + elastic(1, "-11 (pid: 812)"),
    ),
    FailureLog(
        "the launcher ends the others with SIGTERM and SIGKILL, which is no cause",
        Outcome.USER_ERROR,
        "KeyError: 'labels'",
        on(1, raised("KeyError: 'labels'"))
        + "W0111 api.py:900] Sending process 801 closing signal SIGTERM\n"
        "W0111 api.py:910] Unable to shutdown process 801 via SIGTERM, forcefully exiting via "
        "SIGKILL\n"
        + elastic(1, "1 (pid: 812)").replace(
            "  <NO_OTHER_FAILURES>",
            "[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 801)",
        ),
    ),
    FailureLog(
        "words in a warning are no failure",
        Outcome.USER_ERROR,
        "ValueError: rows differ",
        "UserWarning: expandable segments help against CUDA out of memory\nretry on [::]:29500, "
        "Address already in use\n" + raised("ValueError: rows differ"),
    ),
    FailureLog(
        "a loss that is no number, and another end",
        Outcome.USER_ERROR,
        "KeyError: 'labels'",
        "step 4 loss: nan\n" + raised("KeyError: 'labels'"),
    ),
)

OF_LIBRARIES = (
    FailureLog(
        "no memory for the cache of an inference engine",
        Outcome.OOM_GPU,
        "No available memory for the cache blocks",
        raised(
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine."
        ),
    ),
    FailureLog(
        "a hub that is not reached",
        Outcome.INFRA,
        "couldn't connect to",
        raised(
            "OSError: We couldn't connect to 'https://hub.example' to load the files, and couldn't "
            "find them in the cached files."
        ),
    ),
    FailureLog(
        "a precision that the device does not have",
        Outcome.CONFLICT,
        "compute capability",
        raised("AssertionError: Device compute capability 8.9 or higher required for FP8 runs."),
    ),
    FailureLog(
        "an output of a graph that the next run takes",
        Outcome.CONFLICT,
        "overwritten by a subsequent run",
        raised(
            "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten "
            "by a subsequent run."
        ),
    ),
)

EXCERPTS = (
    *OF_LIBRARIES,
    *MEMORY,
    *HOST,
    *COMPILER,
    *WORLD,
    *HANGS_AND_STOPS,
    *NUMBERS,
    *CONFLICTS,
    *USER,
)
