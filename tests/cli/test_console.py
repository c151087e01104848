"""What a terminal shows: lines broken between words, a status that goes with the next line."""

import io

import pytest

from infrarsi.cli.console import Console


class Terminal(io.StringIO):
    """A terminal of 40 columns that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_long_line_is_broken_between_words(terminal: Terminal) -> None:
    words = "  go on with `infrarsi run --resume .infrarsi/runs/20260101-000000-aaaa-more` or not"
    Console(verbose=False, out=terminal).say(words)
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 1
    assert " ".join(line.strip() for line in lines) == words.strip()
    assert all(line.startswith("  ") for line in lines)


def test_a_diff_stays_as_it_is(terminal: Terminal) -> None:
    diff = "+" + "long word " * 20
    Console(verbose=False, out=terminal).show(diff)
    assert terminal.getvalue() == diff + "\n"


def test_what_is_no_terminal_gets_whole_lines_and_no_status() -> None:
    out = io.StringIO()
    console = Console(verbose=False, out=out)
    console.status("the job is running")
    console.say("word " * 60)
    console.close()
    assert out.getvalue() == "word " * 60 + "\n"


def test_a_status_is_shown_until_the_next_line(terminal: Terminal) -> None:
    console = Console(verbose=False, out=terminal)
    console.status("the job is running")
    assert terminal.getvalue().endswith("the job is running")
    console.say("done")
    console.close()
    assert terminal.getvalue().endswith("\r\x1b[Kdone\n")
