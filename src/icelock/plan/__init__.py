"""Which files a scan reads: from manifests and a filter to tasks. Knows no table object and no engine."""
