"""Reads by Spark's own Parquet reader: the plan of files, columns and filters that it is given."""
