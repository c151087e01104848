"""Kubernetes manifests of training jobs: what one node runs, on how many, with how many GPUs."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from infrarsi.contract.document import Document
from infrarsi.errors import UserError

KINDS = ("PyTorchJob", "TrainJob", "RayJob", "Job", "Pod")
SUFFIXES = (".yaml", ".yml", ".json")
_OTHERS = (
    "MPIJob TFJob XGBoostJob PaddleJob JAXJob JobSet RayCluster LeaderWorkerSet CronJob Workflow "
    "Notebook RayService"
)
_GPU = re.compile(r"^(nvidia\.com/(gpu|mig-.*)|amd\.com/gpu)$")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_KIND = re.compile(r"^\s*[\"']?kind[\"']?\s*:", re.M)
_API = re.compile(r"^\s*[\"']?apiVersion[\"']?\s*:", re.M)
_FIX_COMMAND = "give the command that one node runs with --command"
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Count:
    """A number with the place that says it."""

    number: int
    place: str


@dataclass(frozen=True)
class Manifest:
    """One job of a manifest, as a shell command for one node.

    `lines` are what stands before the command: exported variables. `folder` is the container's
    working folder, None where the image decides. `mounts` are names of volumes by their folder.
    """

    where: str
    kind: str
    words: tuple[str, ...]
    variables: Mapping[str, str]
    place: str
    nodes: Count
    gpus: Count | None
    folder: str | None = None
    notes: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)  # ConfigMap files by container path

    @property
    def text(self) -> str:
        """The text that a shell runs in the container, or the words as one line."""
        words = self.words
        shell = words[0].rpartition("/")[2] if words else ""
        if shell in ("bash", "sh", "dash", "ash"):
            for at, word in enumerate(words[1:], start=1):
                if re.fullmatch(r"-[a-z]*c", word) and at + 1 < len(words):
                    return words[at + 1].strip() if at + 2 == len(words) else shlex.join(words)
                if not word.startswith("-"):
                    break
        return shlex.join(words)


def looks_like_manifest(path: Path) -> bool:
    """Whether a file is meant for Kubernetes, by its name and its keys."""
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(_KIND.search(text) and _API.search(text))


def read_manifest(text: str, where: str) -> Manifest:
    """The one training job of a manifest file.

    Raises UserError with the line where there is none or more than one, where its parts differ, or
    where something of it only a run can tell.
    """
    template = _TEMPLATE.search(text)
    if template is not None:
        line = text.count("\n", 0, template.start()) + 1
        raise UserError(
            f"this is a template ({template.group(0)!r}), whose values are not known here",
            where=f"{where}:{line}",
            fix="render it first (`helm template ...`), and name what comes out",
        )
    documents = Document.parse_all(text, where=where)
    jobs = [d for d in documents if isinstance(d.data, dict) and d.data.get("kind") in KINDS]
    if not jobs:
        raise _no_job(documents, where)
    if len(jobs) > 1:
        listed = ", ".join(f"{d.data['kind']} in line {d.line(('kind',))}" for d in jobs)
        raise UserError(
            f"{len(jobs)} jobs are in this file: {listed}",
            where=f"{where}:{jobs[1].line(('kind',))}",
            fix="make a file that holds only the one to be made faster",
        )
    job = _Job(jobs[0], where, [d for d in documents if d is not jobs[0]])
    return _READERS[jobs[0].data["kind"]](job)


def _no_job(documents: Sequence[Document], where: str) -> UserError:
    kinds = {}
    for document in documents:
        if isinstance(document.data, dict) and document.data.get("kind"):
            kinds[str(document.data["kind"])] = document.line(("kind",))
    other = next((kind for kind in kinds if kind in _OTHERS.split()), None)
    if other is not None:
        return UserError(
            f"a {other} is not read; of Kubernetes, {', '.join(KINDS)} are",
            where=f"{where}:{kinds[other]}",
            fix=_FIX_COMMAND,
        )
    return UserError(
        f"no training job is in this file, only {', '.join(sorted(kinds)) or 'no objects'}",
        where=where,
        fix=f"name the manifest that holds the {', '.join(KINDS[:3])}, or the launch script",
    )


@dataclass(frozen=True)
class _Job:
    """One object of a manifest, with its file's other objects."""

    document: Document
    where: str
    others: Sequence[Document]

    def get(self, *path: str | int) -> Any:
        """The value at a path, None where it is absent."""
        found = self.document.data
        for key in path:
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and isinstance(key, int) and key < len(found):
                found = found[key]
            else:
                return None
        return found

    def place(self, *path: str | int) -> str:
        """The file and line of a path."""
        return f"{self.where}:{self.document.line(path)}"

    def fail(self, what: str, *path: str | int, fix: str = _FIX_COMMAND) -> UserError:
        """What cannot be understood, at a path."""
        return UserError(what, where=self.place(*path), fix=fix)

    def count(self, *path: str | int, default: int | None = None) -> Count | None:
        """A whole number; raises UserError for anything else."""
        value = self.get(*path)
        if value is None:
            return None if default is None else Count(default, self.place(*path))
        if isinstance(value, bool) or not str(value).isdigit():
            name = ".".join(str(key) for key in path)
            raise self.fail(f"`{name}` is {value!r}, but must be a number", *path)
        return Count(int(value), self.place(*path))

    def gpus(self, *path: str | int) -> Count | None:
        """The GPUs of a `resources` section."""
        for part in ("limits", "requests"):
            for name in self.get(*path, part) or {}:
                if _GPU.match(str(name)):
                    return self.count(*path, part, name)
        return None

    def words(self, *path: str | int) -> tuple[str, ...]:
        """A list of words; raises UserError for anything else."""
        value = self.get(*path)
        if value is None:
            return ()
        if not isinstance(value, list) or any(isinstance(v, dict | list) for v in value):
            name = ".".join(str(key) for key in path)
            raise self.fail(f"`{name}` is {value!r}, but must be a list of words", *path)
        return tuple("" if v is None else str(v) for v in value)

    def environment(self, *path: str | int) -> tuple[dict[str, str], list[str]]:
        """The variables of an `env` list that are written out, and notes on the others."""
        found: dict[str, str] = {}
        notes: list[str] = []
        for at, item in enumerate(self.get(*path) or []):
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(name, str):
                raise self.fail("an item of `env` has no name", *path, at, fix="name it")
            if "valueFrom" in item:
                notes.append(
                    f"{self.place(*path, at)}: `{name}` comes from the cluster (valueFrom); where "
                    "the job needs it, set it in your shell"
                )
            else:
                value = item.get("value", "")
                found[name] = _expanded("" if value is None else str(value), found)
        return found, notes


def _pytorch_job(job: _Job) -> Manifest:
    specs = ("spec", "pytorchReplicaSpecs")
    roles = [role for role in ("Master", "Worker") if job.get(*specs, role) is not None]
    if not roles:
        raise job.fail("this PyTorchJob has neither a Master nor a Worker", *specs)
    parts = [_pod(job, (*specs, role, "template", "spec")) for role in roles]
    first = parts[0]
    for role, part in zip(roles[1:], parts[1:], strict=True):
        if part.runs != first.runs:
            raise job.fail(
                f"the {role} runs something else than the {roles[0]}",
                *specs,
                role,
                fix="make them the same, or " + _FIX_COMMAND,
            )
        if _number(part.gpus) != _number(first.gpus):
            raise job.fail(
                f"a {role} has {_number(part.gpus)} GPUs, but a {roles[0]} {_number(first.gpus)}",
                *specs,
                role,
            )
    counts = [job.count(*specs, role, "replicas", default=1) for role in roles]
    nodes = sum(count.number for count in counts if count is not None)
    variables = dict(first.variables)
    elastic = ("spec", "elasticPolicy")
    per_node = job.get("spec", "nprocPerNode") or job.get(*elastic, "nProcPerNode")
    if per_node is not None:
        variables.setdefault("PET_NPROC_PER_NODE", str(per_node))
    least, most = job.get(*elastic, "minReplicas"), job.get(*elastic, "maxReplicas")
    if least != most:
        told = f"{job.place(*elastic)}: from {least} to {most} workers may take part; every run "
        first = replace(first, notes=(*first.notes, f"{told}here has {nodes} nodes"))
    place = counts[-1].place if counts[-1] is not None else job.place(*specs)
    return _manifest(job, first, Count(nodes, place), variables)


def _train_job(job: _Job) -> Manifest:
    trainer = ("spec", "trainer")
    words = job.words(*trainer, "command") + job.words(*trainer, "args")
    runtime = job.get("spec", "runtimeRef", "name")
    if not job.words(*trainer, "command"):
        raise job.fail(
            f"what this TrainJob runs is in the runtime {runtime!r} of the cluster, not here",
            *trainer,
            fix="write `spec.trainer.command` out, or " + _FIX_COMMAND,
        )
    variables, notes = job.environment(*trainer, "env")
    nodes = job.count(*trainer, "numNodes")
    if nodes is None:
        nodes = Count(1, job.place(*trainer))
        notes.append(
            f"{nodes.place}: `numNodes` is left to the runtime {runtime!r}; one node is drafted"
        )
    per_node = job.get(*trainer, "numProcPerNode")
    if per_node is not None:
        variables.setdefault("PET_NPROC_PER_NODE", str(per_node))
    part = _Part(
        _all_expanded(words, variables),
        variables,
        job.gpus(*trainer, "resourcesPerNode"),
        None,
        job.place(*trainer, "command"),
        tuple(notes),
        {},
    )
    return _manifest(job, part, nodes, variables)


def _ray_job(job: _Job) -> Manifest:
    entrypoint = job.get("spec", "entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise job.fail("this RayJob has no `spec.entrypoint`", "spec")
    notes: list[str] = []
    runtime = _runtime_environment(job)
    variables = {str(n): str(v) for n, v in (runtime.get("env_vars") or {}).items()}
    if runtime.get("working_dir"):
        notes.append(
            f"{job.place('spec', 'runtimeEnvYAML')}: Ray fetches `working_dir` "
            f"{runtime['working_dir']!r}; here the job runs in this folder"
        )
    if runtime.get("pip") or runtime.get("conda"):
        notes.append(
            f"{job.place('spec', 'runtimeEnvYAML')}: packages that Ray installs for the job "
            "must be there already"
        )
    cluster = ("spec", "rayClusterSpec")
    nodes, gpus = _ray_nodes(job, cluster)
    part = _Part(
        ("bash", "-c", entrypoint),
        variables,
        gpus,
        None,
        job.place("spec", "entrypoint"),
        tuple(notes),
        {},
    )
    return _manifest(job, part, nodes, variables)


def _runtime_environment(job: _Job) -> dict[str, Any]:
    text = job.get("spec", "runtimeEnvYAML")
    if not text:
        return {}
    where = job.place("spec", "runtimeEnvYAML")
    data = Document.parse(str(text), where=where).data
    return data if isinstance(data, dict) else {}


def _ray_nodes(job: _Job, cluster: _Path) -> tuple[Count, Count | None]:
    """The nodes with GPUs of a Ray cluster: those of one worker group, and the head if it has."""
    container = ("template", "spec", "containers", 0, "resources")
    head = job.gpus(*cluster, "headGroupSpec", *container)
    total, gpus, place = (1, head, head.place) if head is not None else (0, None, "")
    for at, _ in enumerate(job.get(*cluster, "workerGroupSpecs") or []):
        group = (*cluster, "workerGroupSpecs", at)
        own = job.gpus(*group, *container)
        if own is None:
            continue
        if gpus is not None and own.number != gpus.number:
            raise job.fail(
                f"groups with {gpus.number} and with {own.number} GPUs on a node", *group
            )
        count = job.count(*group, "replicas", default=1)
        assert count is not None
        total, gpus, place = total + count.number, own, count.place
    return Count(max(total, 1), place or job.place(*cluster)), gpus


def _one_pod(job: _Job) -> Manifest:
    is_job = job.get("kind") == "Job"
    path: _Path = ("spec", "template", "spec") if is_job else ("spec",)
    for name in ("parallelism", "completions") if is_job else ():
        count = job.count("spec", name)
        if count is not None and count.number > 1:
            raise job.fail(
                f"`{name}` is {count.number}: how its pods work together is not written here",
                "spec",
                name,
            )
    part = _pod(job, path)
    return _manifest(job, part, Count(1, job.place("kind")), dict(part.variables))


@dataclass(frozen=True)
class _Part:
    """What the pods of one kind run."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    gpus: Count | None
    folder: str | None
    place: str
    notes: tuple[str, ...]
    scripts: Mapping[str, str]

    @property
    def runs(self) -> tuple[object, ...]:
        """What must be the same in every pod of a job."""
        return self.words, dict(self.variables), self.folder


def _pod(job: _Job, path: _Path) -> _Part:
    containers = job.get(*path, "containers")
    if not isinstance(containers, list) or not containers:
        raise job.fail("no `containers` are listed here", *path)
    at = _main_container(job, path, len(containers))
    own = (*path, "containers", at)
    variables, notes = job.environment(*own, "env")
    if job.get(*own, "envFrom"):
        notes.append(
            f"{job.place(*own, 'envFrom')}: more variables come from the cluster (envFrom); where "
            "the job needs them, set them in your shell"
        )
    command = job.words(*own, "command")
    if not command:
        raise job.fail(
            f"what the image {job.get(*own, 'image')!r} starts is not written here: there is no "
            "`command`",
            *own,
        )
    words = command + job.words(*own, "args")
    return _Part(
        _all_expanded(words, variables),
        variables,
        job.gpus(*own, "resources"),
        job.get(*own, "workingDir"),
        job.place(*own, "command"),
        tuple(notes),
        _config_scripts(job, path, own),
    )


def _main_container(job: _Job, path: _Path, number: int) -> int:
    """The container that trains: the only one, the one with GPUs, or the one named `pytorch`."""
    if number == 1:
        return 0
    own = [(*path, "containers", at) for at in range(number)]
    with_gpus = [at for at, c in enumerate(own) if job.gpus(*c, "resources") is not None]
    named = [at for at, c in enumerate(own) if job.get(*c, "name") == "pytorch"]
    for found in (with_gpus, named):
        if len(found) == 1:
            return found[0]
    raise job.fail(f"{number} containers, and none of them alone has GPUs", *path, "containers")


def _config_scripts(job: _Job, path: _Path, own: _Path) -> dict[str, str]:
    """The files that a ConfigMap of the same file puts into the container."""
    maps = {
        other.data.get("metadata", {}).get("name"): other.data.get("data") or {}
        for other in job.others
        if isinstance(other.data, dict) and other.data.get("kind") == "ConfigMap"
    }
    volumes = {
        volume.get("name"): maps.get((volume.get("configMap") or {}).get("name"))
        for volume in job.get(*path, "volumes") or []
    }
    found = {}
    for mount in job.get(*own, "volumeMounts") or []:
        for name, text in (volumes.get(mount.get("name")) or {}).items():
            place = str(mount.get("mountPath", "")).rstrip("/")
            found[place if mount.get("subPath") == name else f"{place}/{name}"] = str(text)
    return found


def _manifest(job: _Job, part: _Part, nodes: Count, variables: dict[str, str]) -> Manifest:
    return Manifest(
        job.where,
        str(job.get("kind")),
        part.words,
        variables,
        part.place,
        nodes,
        part.gpus,
        part.folder,
        part.notes,
        part.scripts,
    )


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it; a name that is not listed stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return variables.get(match.group(1), match.group(0))

    return _REFERENCE.sub(value, text)


def _all_expanded(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_expanded(word, variables) for word in words)


def _number(count: Count | None) -> int:
    return 0 if count is None else count.number


_READERS: dict[str, Callable[[_Job], Manifest]] = {
    "PyTorchJob": _pytorch_job,
    "TrainJob": _train_job,
    "RayJob": _ray_job,
    "Job": _one_pod,
    "Pod": _one_pod,
}
