"""Loads the witness into a process that imports torch, if a harness is there to be told.

Standard library only, Python 3.8+. Python runs this file at start-up because its folder is first
on PYTHONPATH; a `sitecustomize` that it hides is run first. Without the harness's socket, or in a
process that never imports torch, nothing else happens.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_hidden():
    """Run the `sitecustomize` that Python would have found without us."""
    import importlib.machinery
    import importlib.util

    paths = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _AfterImport(object):
    """A meta-path finder that runs a function once a named module has been executed.

    `actions` maps a module's name to that function; an entry goes when it was used.
    """

    def __init__(self, actions):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        if name not in self.actions:
            return None
        spec = self._real_spec(name, path, target)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is not None:
            spec.loader.exec_module = self._then(run, name)  # the loader serves this spec alone
        return spec

    def _real_spec(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _then(self, run, name):
        def exec_module(module):
            run(module)
            action = self.actions.pop(name, None)
            try:
                if action is not None:
                    action(module)
            except (
                Exception
            ) as exc:  # the job goes on; its record will be missing, and that is seen
                sys.stderr.write("infrarsi witness: not installed (%s: %r)\n" % (name, exc))

        return exec_module


def _start(torch):
    import importlib.util

    folder = os.path.join(os.path.dirname(_HERE), "guest")
    spec = importlib.util.spec_from_file_location(
        "_infrarsi_witness",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["_infrarsi_witness"] = package
    spec.loader.exec_module(package)
    from _infrarsi_witness.install import install

    install(os.environ["INFRARSI_WITNESS_SOCK"], _FINDER.actions)


_FINDER = _AfterImport({"torch": _start})

try:
    _run_hidden()
finally:
    if os.path.exists(os.environ.get("INFRARSI_WITNESS_SOCK", "")) and "torch" not in sys.modules:
        sys.meta_path.insert(0, _FINDER)
