"""Settings of the session and options of reads and writes."""
