"""``CALL catalog.system.procedure(...)``: Java's procedures, and others in place of Iceberg's own DDL, which needs a parser."""
