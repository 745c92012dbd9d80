"""Filters: their text, their literals, and what they demand of rows by SQL's three-valued logic."""
