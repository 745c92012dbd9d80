"""Work on whole tables: what is left over, and removing it."""

from icelock.table.maintenance.leftovers import Content, Kind, Leftover, Leftovers, leftovers, remove_leftovers

__all__ = ["Content", "Kind", "Leftover", "Leftovers", "leftovers", "remove_leftovers"]
