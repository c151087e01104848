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


def test_a_secret_in_a_line_without_end_is_withheld_wherever_it_is_cut(tmp_path: Path) -> None:
    secret = b"s3cret-value-0123456789"
    for shift in (0, 7, 15, 22):
        data = b"." * ((1 << 17) - shift) + secret + b"." * (1 << 17)
        kept = captured(
            tmp_path / "log", data, max_bytes=10**7, secrets=(secret.decode(), "another-one")
        )
        assert secret[:12] not in kept
        assert secret[-12:] not in kept
        assert kept.count(b"[withheld]") == 1


def test_a_full_disk_does_not_hold_up_the_command_and_is_told(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.symlink_to("/dev/full")
    read_end, write_end = os.pipe()
    log = CapturedLog(os.fdopen(read_end, "rb"), place, max_bytes=10**6)
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(b"a line\n" * 50_000)  # more than the pipe holds
    with pytest.raises(OSError, match="No space left"):
        log.close()


TOKEN = b"hf_" + b"aB3" * 9


@pytest.mark.parametrize("end", [b"\n", b""], ids=["whole-line", "no-newline"])
def test_a_token_that_nobody_named_is_replaced(tmp_path: Path, end: bytes) -> None:
    data = b"login with " + TOKEN + b"\xff, --api-key hunter22" + end
    kept = captured(tmp_path / "log", data, max_bytes=1000)
    assert kept == b"login with [withheld]\xff, --api-key [withheld]" + end


def test_a_token_in_an_endless_line_is_replaced_wherever_it_is_cut(tmp_path: Path) -> None:
    data = b"".join(b" " * (65530 + shift) + TOKEN for shift in range(8))
    kept = captured(tmp_path / "log", data, max_bytes=10**6)
    assert TOKEN not in kept
    assert kept.count(b"[withheld]") == 8
