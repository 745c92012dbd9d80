"""Where no Java 21 is, Nessie does not run, and there is no test of it; its stub is in ``tests/services/stubs``."""

from __future__ import annotations

from tests.servers.nessie import java

collect_ignore = [] if java() else ["test_nessie.py"]
