"""The captured output."""

import os
from pathlib import Path

import pytest

from infrarsi.node.captured_log import CapturedLog


def captured(path: Path, data: bytes, *, max_bytes: int, secrets: tuple[str, ...] = ()) -> bytes:
    read_end, write_end = os.pipe()
    log = CapturedLog(os.fdopen(read_end, "rb"), path, max_bytes=max_bytes, secrets=secrets)
    with os.fdopen(write_end, "wb") as out:
        out.write(data)
    log.close()
    return path.read_bytes()


def test_short_output_is_kept_to_the_byte(tmp_path: Path) -> None:
    data = b"step 1\xff\nstep 2 without an end"
    assert captured(tmp_path / "log", data, max_bytes=1000) == data


def test_of_long_output_the_head_and_the_tail_are_kept_and_the_gap_is_told(
    tmp_path: Path,
) -> None:
    lines = [b"line %06d\n" % number for number in range(100_000)]
    kept = captured(tmp_path / "log", b"".join(lines), max_bytes=200_000)
    assert kept.startswith(b"line 000000\n")
    assert kept.endswith(b"line 099999\n")
    assert b"bytes were left out here" in kept
    assert 200_000 <= len(kept) < 400_000


@pytest.mark.parametrize("secret", ["sk-0123456789"])
def test_a_secret_is_replaced_wherever_the_chunks_break(tmp_path: Path, secret: str) -> None:
    data = (b"x" * 65530 + secret.encode() + b"\n") * 3 + b"end " + secret.encode()
    kept = captured(tmp_path / "log", data, max_bytes=10**6, secrets=(secret,))
    assert secret.encode() not in kept
    assert kept.count(b"[withheld]") == 4
