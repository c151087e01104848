"""What makes a candidate's copy of the project differ from the snapshot."""

from infrarsi.contract import Candidate, Overlay, PlaceKind, Project
from infrarsi.errors import UserError
from infrarsi.workspace.launch_text import LaunchText
from infrarsi.workspace.patch_audit import audit
from infrarsi.workspace.patching import PatchFailed, apply
from infrarsi.workspace.sinks import redirect
from infrarsi.workspace.sources import Sources


def overlay(project: Project, sources: Sources, candidate: Candidate) -> Overlay:
    """Settings, patch and sinks as one overlay; the reference gets the sinks alone.

    Raises PatchFailed if the patch does not fit exactly, UserError if a setting or a sink cannot be
    put in place safely.
    """
    files = patched(project, sources, candidate)
    launch = LaunchText.of(project, sources, files)
    redirected = redirect(_set(launch, project, sources, candidate, files), project)
    final = redirected.launch
    files |= final.configs
    if final.path is not None and final.script.text != launch.script.text:
        if final.path in files:
            raise PatchFailed(f"{final.path}: both the patch and the settings change this file")
        files[final.path] = final.script.text
    return Overlay(
        command=final.command,
        files=dict(sorted(files.items())),
        remove=redirected.remove,
        env=redirected.env,
        unset_env=_unset(project, candidate),
    )


def _set(
    launch: LaunchText,
    project: Project,
    sources: Sources,
    candidate: Candidate,
    files: dict[str, str],
) -> LaunchText:
    """With the settings; where only the patch stands in their way, the patch is at fault."""
    try:
        return launch.with_settings(project, candidate.settings)
    except UserError as error:
        if not files:
            raise
        LaunchText.of(project, sources).with_settings(project, candidate.settings)
        raise PatchFailed(
            f"the settings cannot be put into what the patch made: {error}"
        ) from error


def resuming(project: Project, sources: Sources) -> Overlay:
    """The untouched job, told to go on from a checkpoint as `verify.resume` says.

    Raises UserError where the contract does not say how, or where that cannot be put in place.
    """
    resume = project.verify.resume
    if resume is None:
        raise UserError(
            "nothing says how this job goes on from a checkpoint",
            where="infrarsi.yaml",
            fix='write `verify: {resume: {set: {"flag:--resume": "@CHECKPOINT@"}}}`',
        )
    launch = LaunchText.of(project, sources).with_change(resume.parsed())
    redirected = redirect(launch, project)
    final = redirected.launch
    files = dict(final.configs)
    if final.path is not None:
        files[final.path] = final.script.text
    return Overlay(final.command, files, remove=redirected.remove, env=redirected.env)


def patched(project: Project, sources: Sources, candidate: Candidate) -> dict[str, str]:
    """The new text of every file that the candidate's patch changes.

    Raises PatchFailed if it does not fit, or if the audit refuses it, whoever made it.
    """
    if candidate.patch is None:
        return {}
    texts = {path: sources.text(path) for path in project.editable if sources.exists(path)}
    changed = apply(candidate.patch.diff, texts, editable=project.editable)
    after = {path: text for path, text in changed.items() if text is not None}
    refusals = audit({path: texts.get(path, "") for path in after}, after).refusals
    if refusals:
        raise PatchFailed(str(refusals[0]))
    return after


def _unset(project: Project, candidate: Candidate) -> tuple[str, ...]:
    found = []
    for knob in project.knobs:
        if knob.name in candidate.settings:
            change = knob.change(candidate.settings[knob.name])
            found += [place.name for place in change.remove if place.kind is PlaceKind.ENV]
    return tuple(found)
