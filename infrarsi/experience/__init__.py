"""Packs: write what a run measured, and read it back."""

from infrarsi.experience.pack import SCHEMA, Pack, dumps, load, pack_of

__all__ = ["SCHEMA", "Pack", "dumps", "load", "pack_of"]
