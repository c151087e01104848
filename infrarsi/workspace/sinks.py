"""Redirecting the places that a job writes to into the execution's own folder."""

from dataclasses import dataclass, field

from infrarsi.contract import SINKS_TOKEN, Place, PlaceKind, Project
from infrarsi.workspace.launch_text import LaunchText

FRESH = "fresh"


@dataclass(frozen=True)
class Redirected:
    """The launch text with its sinks redirected, variables to set, and paths to remove."""

    launch: LaunchText
    env: dict[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


def redirect(launch: LaunchText, project: Project) -> Redirected:
    """Every sink of the contract put in place.

    `fresh` is a folder of the execution's own (SINKS_TOKEN and a name); another value is taken as
    it is (`offline`). A `path:` sink is removed from the copy. Raises UserError for a sink that
    cannot be redirected: nothing may run then.
    """
    env: dict[str, str] = {}
    remove: list[str] = []
    for text, value in project.sinks.items():
        place = Place.parse(text)
        if place.kind is PlaceKind.PATH:
            remove.append(place.name)
            continue
        wanted = f"{SINKS_TOKEN}/{place.sink_folder}" if value == FRESH else value
        if place.kind is PlaceKind.ENV:
            env[place.name] = wanted
            if not launch.assigns(place.name):
                continue  # the environment reaches the job by itself
        launch = launch.with_place(place, wanted)
    return Redirected(launch, env, tuple(remove))
