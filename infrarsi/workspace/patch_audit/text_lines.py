"""Lines of shell scripts and configuration files: what they may not say, and what they touch."""

import re
from collections.abc import Collection

from infrarsi.workspace.patch_audit import rules
from infrarsi.workspace.patch_audit.areas import areas_of_name

_WORD = re.compile(r"--?[A-Za-z][\w.-]*|[A-Za-z_][\w.]*")
_QUOTES = re.compile(r"[\"'\\]|\$\{?(?:_|x|EMPTY)\}?")
_PROCESS = re.compile(
    r"\b(trap|nohup|setsid|eval|source|exec|ulimit|taskset|numactl|pip|conda|curl|wget|timeout"
    r"|LD_PRELOAD|PYTHON\w+|faketime)\b|&\s*$"
)
_REFUSED_SHELL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"infrarsi", re.IGNORECASE), rules.WITNESS),
    (re.compile(r"/proc/"), rules.SYSTEM),
    (re.compile(r"/dev/(tcp|udp|fd|mem|kmem)\b"), rules.SYSTEM),
    (re.compile(r"\bunset\b[^;&|#]*\bPYTHON(PATH|STARTUP|HOME)\b"), rules.PYTHON_START),
    (re.compile(r"\benv\b\s+(?:[^;&|#]*\s)?(-i\b|-\s|--ignore-environment\b)"), rules.PYTHON_START),
    (re.compile(r"\benv\b[^;&|#]*\s(-u|--unset[= ])\s*PYTHON"), rules.PYTHON_START),
    (re.compile(r"\bPYTHON(STARTUP|HOME|SAFEPATH|NOUSERSITE|INSPECT)="), rules.PYTHON_START),
    (re.compile(r"\bPYTHONPATH=(?!\S*\$\{?PYTHONPATH)"), rules.PYTHON_START),
    (re.compile(r"\bpython[\d.]*(?:\s+-(?!c\b|m\b)\S+)*\s+-[A-Za-z]*[SIE]\b"), rules.PYTHON_START),
    (re.compile(r"\b(sitecustomize|usercustomize)\b"), rules.PYTHON_START),
    (re.compile(r"\b(kill|pkill|killall|gdb|strace|ltrace|nsenter|unshare)\b"), rules.PROCESS),
    (re.compile(r"\b(setsid|disown)\b"), rules.DETACHED),
    (re.compile(r"\b(nc|ncat|netcat|socat)\s"), rules.NETWORK),
    (re.compile(r"\bbase64\s+(-d|-D|--decode)\b|\bxxd\s+-r\b"), rules.COMPUTED),
    (re.compile(r"\|\s*(ba|da|z)?sh\b|\|\s*python"), rules.COMPUTED),
    (re.compile(r"\b(libfaketime|faketime)\b"), rules.CLOCK),
    (re.compile(r"(?:\d|&)?>>?\s*(?!/dev/(?:null|stdout|stderr)\b)(?:/|~|\.\./)"), rules.OUTSIDE),
    (re.compile(r"\b(tee|cp|mv|ln|rm|touch|mkdir|install|rsync)\b[^;&|#]*\s(~|/(?!dev/null)|\.\./)"),
     rules.OUTSIDE),
)  # fmt: skip
_REFUSED_ELSEWHERE = rules.REFUSED_TEXTS


def is_shell(path: str, text: str) -> bool:
    """Whether a file is a shell script, by its name or its first line."""
    return path.endswith((".sh", ".bash", ".zsh", ".slurm", ".sbatch")) or bool(
        re.match(r"#!.*\b(ba|da|z|k)?sh\b", text)
    )


def refused_in(text: str, *, shell: bool) -> list[tuple[int, str, str]]:
    """Lines that are refused: number, the line, why; a continued line counts as one."""
    found = []
    for number, line in _logical(text):
        plain = _QUOTES.sub("", line)
        checks = _REFUSED_SHELL if shell else _REFUSED_ELSEWHERE
        for pattern, why in checks:
            if pattern.search(line) or pattern.search(plain):
                found.append((number, line.strip(), why))
                break
    return found


def touched_in(text: str, lines: Collection[int]) -> dict[int, set[str]]:
    """The areas of each of `lines`, by the words in them; lines without any are left out."""
    found: dict[int, set[str]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if number not in lines or line.lstrip().startswith("#"):
            continue
        areas = {area for word in _WORD.findall(line) for area in areas_of_name(word)}
        if _PROCESS.search(line):
            areas.add("process")
        if areas:
            found[number] = areas
    return found


def _logical(text: str) -> list[tuple[int, str]]:
    """Lines without comments, continued ones joined, with the number of their first."""
    found: list[tuple[int, str]] = []
    held, first = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        first = first or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        whole = held + line
        if whole.strip() and not whole.lstrip().startswith("#"):
            found.append((first, re.sub(r"\s#.*$", "", whole)))
        held, first = "", 0
    if held.strip():
        found.append((first, held))
    return found
