"""The static audit of a patch: what it may not do at all, and what each changed line touches."""

from infrarsi.workspace.patch_audit.audit import Audit, Refusal, audit

__all__ = ["Audit", "Refusal", "audit"]
