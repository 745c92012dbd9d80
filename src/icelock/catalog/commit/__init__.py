"""How a commit is made and what became of it, the same for all catalogs."""
