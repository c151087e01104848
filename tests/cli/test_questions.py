"""The question before anything is started, in a real terminal."""

import signal

import pytest
from spawned import Site
from terminal import ended, in_terminal

STARTED = r"Start\? \[Enter: yes; q: quit\] "


@pytest.mark.parametrize(
    "answer", ["q\r", "n\r", "\x04", "\x03"], ids=["q", "n", "ctrl-d", "ctrl-c"]
)
def test_whoever_declines_the_plan_has_started_nothing(site: Site, answer: str) -> None:
    site.fill()
    before = site.tree()
    child = in_terminal(site, "optimize", "job/train.sh")
    child.expect(STARTED)
    plan = child.before
    child.send(answer)
    code, text = ended(child)
    assert code == 130
    assert text.count("infrarsi: ") == 1
    assert "infrarsi: stopped; nothing was started" in text
    assert "budget    16 trials" in plan
    assert site.tree() == before
    assert site.runs() == []


def test_a_request_to_end_is_answered_like_ctrl_c(site: Site) -> None:
    site.fill()
    child = in_terminal(site, "optimize", "job/train.sh")
    child.expect(STARTED)
    child.kill(signal.SIGTERM)
    assert ended(child)[0] == 130


def test_without_a_terminal_nobody_is_asked(site: Site) -> None:
    site.fill()
    done = site.infrarsi("optimize", "job/train.sh", "--ray-address", "127.0.0.1:1")
    assert done.code == 3, "the world failed: nobody answers at that port"
    assert "--ray-address: no Ray answers at 127.0.0.1:1" in done.message
    assert "Start?" not in done.out
    assert site.runs() == [], "a run that never began leaves no directory"
