"""The user's process and Spark's planning processes: catalogs, keys and commits are here."""
