"""`homing verify`: whether affinity does for a cluster what it should, and if not, why."""

from homing.cli.verify.command import command

__all__ = ["command"]
