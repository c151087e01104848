"""A short infrarsi.yaml, with what its author left out drafted in."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from infrarsi.contract import Project
from infrarsi.contract.files import LoadedProject
from infrarsi.contract.mistakes import mistakes_of
from infrarsi.draft.drafting import Draft, draft
from infrarsi.draft.machine import Machine
from infrarsi.errors import UserError

DRAFTED = ("workload", "knobs", "sinks", "editable", "frozen")
"""The sections that the short form leaves out."""

_BY_KEY = ("launch", "workload", "verify")


def is_short(project: Project) -> bool:
    """Whether the file leaves out a section that a draft would fill in."""
    return not set(DRAFTED) <= project.model_fields_set


def complete(
    loaded: LoadedProject,
    *,
    machine: Machine | None = None,
    environ: Mapping[str, str] | None = None,
) -> Draft:
    """The project with the sections that its file leaves out; what the file says always stays.

    Raises UserError like `draft`, and for a file whose own values do not fit the drafted ones.
    """
    own = loaded.project
    drafted = draft(
        loaded.root,
        command=own.launch.command,
        requirements=own.requirements.text,
        machine=machine,
        environ=environ,
        root=loaded.root,
    )
    data = drafted.project.model_dump(by_alias=True)
    for name in own.model_fields_set:
        key = Project.model_fields[name].alias or name
        value = getattr(own, name)
        if key in _BY_KEY:
            data[key].update(value.model_dump(include=value.model_fields_set))
        else:
            data[key] = own.model_dump(by_alias=True, include={name})[key]
    _settle(data, own)
    try:
        project = Project.model_validate(data)
    except ValidationError as error:
        first = mistakes_of(error, loaded.document)[0]
        where = f"{loaded.path}:{first.line}"
        raise UserError(first.what, where=where, fix=first.fix) from error
    said = {key for key in own.model_fields_set if key not in _BY_KEY}
    kept = tuple(item for item in drafted.evidence if item.path[0] not in said)
    return replace(drafted, project=project, evidence=kept)


def _settle(data: dict[str, Any], own: Project) -> None:
    """A file that the author froze is not drafted as editable, and the other way round."""
    if "editable" not in own.model_fields_set:
        data["editable"] = [path for path in data["editable"] if path not in own.frozen]
    if "frozen" not in own.model_fields_set:
        for path in own.editable:
            data["frozen"].pop(path, None)
