"""The words by which the parts of a training stack say why they failed.

Patterns for the texts of torch, NCCL, gloo, triton, the C library, the kernel and the schedulers,
by the outcome that they mean. `KINDS` are causes; `CONSEQUENCES` are what is left to say where
nobody names a cause: a process that waits for another one that is gone says so as well.
"""

import re

from infrarsi.contract import Outcome

_GPU_MEMORY = (
    r"\b(CUDA|HIP|XPU|NPU|MUSA|MPS backend) out of memory",
    r"\b(CUDA|HIP) (driver )?error: out of memory|Triton Error \[(CUDA|HIP)\]: out of memory",
    r"\b(CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b",
    r"cudaMalloc\w* failed: out of memory",
    r"\btorch(\.cuda)?\.OutOfMemoryError\b|(?<![\w.])OutOfMemoryError: (CUDA|HIP|XPU|Allocation)",
    r"\b(CUBLAS|CUDNN|CUSOLVER|HIPBLAS)_STATUS_ALLOC_FAILED|\bCUFFT_ALLOC_FAILED",
    r"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    r"(Cuda|HIP) failure (\d+ )?'out of memory'|Failed to CUDA calloc",
    r"No available memory for the cache blocks",
)
_HOST_MEMORY = (
    r"DefaultCPUAllocator: (can't|not enough)",
    r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (is killed by signal: (Bus error|Killed)"
    r"|exited unexpectedly with exit code -?(7|9)\b)",
    r"insufficient shared memory \(shm\)",
    r"unable to (mmap|allocate shared memory).*(Cannot allocate memory|\(shm\))",
    r"unable to write to file </torch_\w+>",  # torch's own segments in /dev/shm
    r"No space left on device: '?(/dev/shm/|/psm_)",
    r"Error while (creating|attaching to) shared memory segment /dev/shm/nccl",
    r"/dev/shm/nccl-\w+.*No space left on device",
    r"\[Errno 12\] Cannot allocate memory",
    r"^(MemoryError|numpy\.\S*MemoryError)\b|\bstd::bad_alloc\b|\bbad alloc\b",
    r"(?i:Detected \d+ oom[-_ ]kill event)|\bOOMKilled\b",
    r"Out of memory: Killed process|cgroup out of memory|\boom-kill:constraint=",
    r"srun: error: .*: Out Of Memory",
    r"ray\.exceptions\.OutOfMemoryError|due to the node running low on memory",
    r"Unable to allocate [\d.]+ [KMGT]iB for an array",
    r"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED|Failed to CUDA host alloc",
)
_COMPILER = (
    r"\btorch\._inductor\.exc\.|\bInductorError\b|\bCppCompileError\b",
    r"\btorch\._dynamo\.exc\.|\bBackendCompilerFailed\b|\bdynamo is not supported on\b",
    r"(?i:dynamo (is )?not supported on Python)|torch\.compile is not supported",
    r"\btriton\.(compiler|runtime)\.[\w.]+\.(CompilationError|OutOfResources|PTXASError)\b",
    r"out of resource: (shared memory|threads|registers|tensor memory)",
    r"Error building extension '|Error compiling objects for extension",
    r"\bPTXASError\b|ptxas fatal|\bnvrtc: error|\bnvcc fatal\b",
    r"PassManager::run failed|\bLLVM ERROR\b",
    r"CalledProcessError: Command '?\[?'?\S*\b(gcc|g\+\+|cc|clang|clang\+\+|nvcc|ptxas|ninja)\b",
)
_HARDWARE = (
    r"uncorrectable ECC error|fallen off the bus|NVLink error|GPU is lost",
    r"\bXid \([^)]*\): (48|6[23]|64|74|79|92|9[45]|119|120)\b",  # others are the program's own
)
_WORLD = (
    *_HARDWARE,
    r"\bEADDRINUSE\b|Address already in use",
    r"CUDA error: device is busy|CUDA-capable device\(s\) is/are busy or unavailable",
    r"Driver/library version mismatch|system not yet initialized",
    r"No space left on device|\bENOSPC\b|\[Errno 122\] Disk quota exceeded",
    r"Temporary failure in name resolution|Max retries exceeded with url",
    r"[Cc]ouldn't connect to 'https?://",
    r"PytorchStreamWriter failed writing file|enforce fail at inline_container\.cc",
    r"\[Errno (5|107|116)\]|Stale file handle|Transport endpoint is not connected",
    r"failed with Input/output error",
    r"Got completion from peer .*with (error|status)|\bibv_\w+ failed|transport retry counter",
    r"NCCL WARN NET/IB ?: .*(error|failed)|No route to host|Network is unreachable",
    r"Rendezvous(Timeout|Connection|Closed)Error|\d+/\d+ clients joined",
    r"CANCELLED AT \S+ DUE TO (PREEMPTION|NODE FAILURE|TIME LIMIT)|Node failure on ",
    r"ray\.exceptions\.(NodeDiedError|ActorDiedError|WorkerCrashedError|ActorUnavailableError)",
)
_NUMBERS = (
    r"found (NaN|Inf) in local (grad norm|forward loss)",
    r"returned nan values in its \d+th output",
    r"^FloatingPointError\b",
    r"(?i:\bloss (is|was|became|turned) (nan|inf|infinite|infinity|non-finite|not finite)\b)",
    r"(?i:^[\w.]*(Error|Exception)\b.*(\bloss\b.*\b(nan|inf|infinite|non-finite|not finite)\b"
    r"|\bnan (loss|gradient|detected)|\bnon-finite (loss|grad)|\bnans? in (the )?(loss|grad)))",
    r"The total norm .* for gradients .* is non-finite|Gradient norm is (nan|inf)",
    r"loss returned in `training_step` is (nan|inf)",
    r"Current loss scale already at minimum|Minimum loss scale reached",
    r"probability tensor contains either `inf`, `nan`|cannot convert float NaN to integer",
)
_RAISED = r"^(?!ImportError|ModuleNotFoundError)[\w.]*(Error|Exception)\b.*"
_CONFLICT = (
    _RAISED + r"(?i:\b(is|are|be) (not )?(evenly )?(divisible|a multiple|divided)\b"
    r"|\bnot (evenly )?divisible\b|\bmust (evenly )?divide\b|\bmutually exclusive\b)",
    _RAISED + r"(?i:\b(in|not )compatible with\b|\bconflicts with\b"
    r"|\bnot supported (together )?(with|when)\b|\bcannot both be\b"
    r"|\b(cannot|can't|can not|must not) be (used|combined|set|enabled|specified) (together )?"
    r"(with|when|together|simultaneously)\b"
    r"|\b(does not|doesn't|cannot) (work|support) (together )?with\b"
    r"|\b(can )?only (be )?(used|supported|works?) (with|when|if)\b)",
    r"^(AssertionError|ValueError)\b(?!.*\binstall).*(?i:\brequires\b(?! grad))",
    _RAISED + r"(?i:(!=|does not (equal|match)|must (be )?equal( to)?) (the )?world.?size)",
    _RAISED + r"(?i:\bonly supports? (`?torch\.)?(fp16|bf16|half|float16|bfloat16))",
    _RAISED + r"train_batch_size is not equal to micro_batch_per_gpu",
    r"error: argument \S+: not allowed with argument",
    _RAISED + r"compute capability .* (is )?required for\b",
    _RAISED + r"output of CUDAGraphs that has been overwritten by a subsequent run",
)
_STOPPED = (
    r"^KeyboardInterrupt\b",
    r"CANCELLED AT \S+ \*\*\*|got signal: 2\b",
)

KINDS: dict[Outcome, re.Pattern[str]] = {
    outcome: re.compile("|".join(f"(?:{text})" for text in texts), re.MULTILINE)
    for outcome, texts in (
        (Outcome.OOM_HOST, _HOST_MEMORY),  # before the GPU's: Ray has an OutOfMemoryError too
        (Outcome.OOM_GPU, _GPU_MEMORY),
        (Outcome.COMPILE_FAILED, _COMPILER),
        (Outcome.INFRA, _WORLD),
        (Outcome.NUMERIC, _NUMBERS),
        (Outcome.CONFLICT, _CONFLICT),
    )
}
"""Causes, in the order in which they are looked for."""

CONSEQUENCES: dict[Outcome, re.Pattern[str]] = {
    outcome: re.compile("|".join(f"(?:{text})" for text in texts), re.MULTILINE)
    for outcome, texts in (
        (
            Outcome.TIMEOUT,
            (
                r"[Ww]atchdog caught collective operation timeout",
                r"Some NCCL operations have failed or timed out",
                r"ProcessGroupNCCL's watchdog got stuck|[Hh]eartbeat monitor timed? ?out",
                r"failed to pass monitoredBarrier|Timed out waiting \d+ms for (recv|send)",
                r"DistStoreError: (wait|[Ss]ocket) [Tt]imeout|got error: Socket Timeout",
                r"NCCL timeout|collective operation timed out|DistBackendError.*\btimed out\b",
            ),
        ),
        (Outcome.STOPPED, _STOPPED),
        (
            Outcome.INFRA,
            (
                r"SignalException: Process \d+ got signal: (15|1|10|12)\b",
                r"Received (15|1|10|12) death signal|\bReceived (Signals\.)?SIGTERM\b",
                r"\bncclRemoteError\b|remote process exited or there was a network error",
                r"store->get\('\d+'\) got error: Connection (reset|closed)",
                r"\bncclSystemError\b|\bncclInternalError\b|\[Errno 110\] Connection timed out",
                r"NCCL error in: .*unhandled (system|internal) error",
                r"DataLoader worker .* is killed by signal: (Terminated|Hangup)",
                r"gloo/transport/.*Connection (closed|reset) by peer",
            ),
        ),
    )
}
"""What is said where there is no cause, in the order in which it is looked for."""

HARDWARE = re.compile("|".join(f"(?:{text})" for text in _HARDWARE), re.MULTILINE)
"""A fault of a GPU, by the driver's or the kernel's word."""

UNEXPLAINED = re.compile(
    r"CUDA error: (unknown error|unspecified launch failure|device not ready|operation not"
    r" supported|initialization error)|CUDA call failed|cuda runtime error \((30|719|999)\)"
)
"""A call of CUDA that failed without a reason; a fault of the GPU explains it."""

SECONDARY = re.compile(
    r"ChildFailedError|SignalException|Connection (closed|reset) by peer|Broken pipe"
    r"|ConnectionResetError|ncclRemoteError|remote process exited"
    r"|Rank \d+ successfully reached monitoredBarrier|failed to pass monitoredBarrier"
    r"|[Ww]atchdog|TCPStore|DistBackendError|DistStoreError|KeyboardInterrupt"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for (recv|send)"
    r"|Process(Raised|Exited)Exception|returned non-zero exit status|died with <Signals"
    r"|NCCL (communicator was aborted|operations have failed)|MPI_ABORT"
    r"|NCCL error in: .*unhandled (system|internal) error"
    r"|DataLoader worker .* is killed by signal: (Terminated|Hangup)"
    r"|^\w+: Caught \w+ in (DataLoader worker|pin memory|replica)"
    r"|ActorDiedError|RayTaskError|WorkerGroupError|TrainingFailedError"
)
"""A line of an exception by which it only reports that another process failed."""

KILLED = re.compile(
    r"exitcode\s*: -9\b|Signal 9 \(SIGKILL\) received|\(exitcode: -9\)|return code = -9\b"
    r"|^Killed$|: line \d+:.*Killed|srun: error: .*: task \S+: Killed|died with <Signals\.SIGKILL"
    r"|exited on signal 9\b|terminated with signal SIGKILL|non-zero exit status 137\b",
    re.MULTILINE,
)
"""A process of the job was ended by SIGKILL."""

BUS_ERROR = re.compile(
    r"exitcode\s*: -7\b|Signal 7 \(SIGBUS\) received|\(exitcode: -7\)|return code = -7\b"
    r"|^Bus error|: line \d+:.*Bus error|srun: error: .*: task \S+: Bus error"
    r"|died with <Signals\.SIGBUS|terminated with signal SIGBUS",
    re.MULTILINE,
)
"""A process of the job was ended by SIGBUS."""
