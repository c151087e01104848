"""Guest code that records, inside the user's training processes, what was really trained.

Nothing of ours is imported here, and nothing here is imported by the guest's host: the folder
`inject` goes first on PYTHONPATH (`infrarsi.node.collector` does it) and Python itself runs
`inject/sitecustomize.py`, which loads the package `guest` under a private name.
"""
