"""Log lines and OpenTelemetry's spans and counters: what they say, by its in-memory exporter, and what they never say."""

from __future__ import annotations

import itertools
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from icelock import metrics, telemetry
from icelock.errors import IntegrityError, KmsError
from icelock.kms import ask
from icelock.kms.retry import RetryingKms, RetryPolicy
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.test_metrics import Flaky


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    return TestLake.with_namespace(tmp_path)


class Lines(logging.Handler):
    """The records of icelock's loggers."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, event: str) -> list[logging.LogRecord]:
        return [record for record in self.records if getattr(record, "event", None) == event]


@pytest.fixture
def lines():
    handler, logger = Lines(), logging.getLogger("icelock")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield lambda: {span.name: span for span in exporter.get_finished_spans()}
    provider.shutdown()


def test_a_commit_is_one_line_at_info_with_the_same_fields_for_json(lake: TestLake, lines: Lines):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    [record] = lines.of("commit")
    assert (record.name, record.levelno) == ("icelock.catalog", logging.INFO)
    assert record.getMessage().startswith(
        f"event=commit catalog=test table=db.t operation=append snapshot={table.current_snapshot().snapshot_id} added_files=1 added_rows=10"
    )
    assert (record.table, record.operation, record.added_rows) == ("db.t", "append", 10)  # type: ignore[attr-defined]
    [created] = lines.of("create")
    assert created.getMessage() == "event=create catalog=test table=db.t key_id=keyA"


def test_calls_and_uses_of_keys_are_told_by_ids_at_debug(lake: TestLake, lines: Lines):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    called = [(record.operation, record.key_id, record.outcome, record.attempts) for record in lines.of("kms-call")]
    assert called == [("wrap", "keyA", "done", 1), ("wrap", "keyA", "done", 1), ("unwrap", "keyA", "done", 1)]
    assert {record.levelno for record in (*lines.of("kms-call"), *lines.of("key-use"))} == {logging.DEBUG}
    keys = {key.key_id for key in table.metadata.encryption_keys}
    used = {record.key_id for record in lines.of("key-use")} | {record.kek_id for record in lines.of("key-use")}
    assert used == keys


def test_an_attempt_that_is_repeated_is_a_warning_and_the_call_says_how_many(lines: Lines):
    ask.wrapped(RetryingKms(Flaky(2), RetryPolicy(), sleep=lambda _: None), b"0123456789012345", "keyA")
    assert [(record.levelname, record.provider, record.attempt) for record in lines.of("kms-retry")] == [
        ("WARNING", "Flaky", 1),
        ("WARNING", "Flaky", 2),
    ]
    [called] = lines.of("kms-call")
    assert (called.attempts, called.outcome) == (3, "done")
    lines.records.clear()
    with pytest.raises(KmsError):
        ask.wrapped(RetryingKms(Flaky(9), RetryPolicy(), sleep=lambda _: None), b"0123456789012345", "keyA")
    [called] = lines.of("kms-call")
    assert (called.levelname, called.attempts, called.outcome) == ("INFO", 5, "unavailable")


def test_changed_bytes_are_a_warning_and_other_refusals_are_not(lake: TestLake, lines: Lines):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    with pytest.raises(ValueError, match="other"):
        table.append(people().rename_columns(["id", "name", "other"]))
    [data] = lake.warehouse.rglob("*.parquet")
    data.write_bytes(data.read_bytes()[:-100] + bytes(100))
    with pytest.raises(IntegrityError):
        table.scan().to_arrow()
    told = [(record.levelname, record.operation, record.target, record.error) for record in lines.of("refusal")]
    assert told == [("INFO", "change", "db.t", "PolicyError"), ("WARNING", "read", "db.t", "IntegrityError")]


def test_names_that_others_chose_stay_within_their_line():
    text = telemetry.logfmt({"event": "load", "table": 'db.a b"\nevent=commit\x1b[2J', "n": 3, "none": None, "yes": True})
    assert text == 'event=load table="db.a b\\"\\nevent=commit\\u001b[2J" n=3 yes=true'


def test_spans_of_a_commit_and_a_read_follow_the_conventions_for_databases(lake: TestLake, spans):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    commit: ReadableSpan = spans()["commit db.t"]
    assert dict(commit.attributes or {}) == {
        "db.system.name": "iceberg",
        "db.operation.name": "commit",
        "db.collection.name": "db.t",
        "db.namespace": "test.db",
        "icelock.commit.attempts": 1,
        "icelock.snapshot.id": table.current_snapshot().snapshot_id,
    }
    assert commit.status.status_code is StatusCode.UNSET
    lake.catalog().load_table("db.t").scan().to_arrow()
    read, plan, unwrap = (spans()[name] for name in ("read db.t", "plan db.t", "unwrap CountingKms"))
    assert read.attributes["db.response.returned_rows"] == 10
    assert plan.parent.span_id == read.context.span_id
    assert unwrap.parent.span_id == plan.context.span_id
    assert (unwrap.kind, read.kind) == (SpanKind.CLIENT, SpanKind.INTERNAL)
    assert (unwrap.attributes["icelock.kms.key_id"], unwrap.attributes["icelock.kms.attempts"]) == ("keyA", 1)


def test_a_reader_of_batches_ends_its_span_with_the_last_batch(lake: TestLake, spans):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    reader = table.scan().to_arrow_batch_reader()
    assert "read db.t" not in spans()
    reader.read_all()
    assert spans()["read db.t"].status.status_code is StatusCode.UNSET


def test_an_error_has_its_class_in_the_span_and_nothing_else(lake: TestLake, spans):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError):
        lake.catalog().load_table("db.t").scan().to_arrow()
    for name in ("unwrap CountingKms", "plan db.t", "read db.t"):
        span = spans()[name]
        assert (span.attributes["error.type"], span.status.status_code, span.status.description) == ("KmsError", StatusCode.ERROR, None)
        assert span.events == ()


WITH_METER = """
import json, sys
import icelock
assert "opentelemetry" not in sys.modules
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pathlib import Path
from tests.lakes.sqlite import KEYED, TestLake, people
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
import opentelemetry.trace
lake = TestLake.with_namespace(Path(sys.argv[1]))
lake.catalog().create_table("db.t", people().schema, properties=KEYED).append(people())
icelock.metrics.reset()  # which a meter must not notice
found = {m.name: (m.unit, m.data.is_monotonic, m.data.data_points[0].value)
         for r in reader.get_metrics_data().resource_metrics for s in r.scope_metrics for m in s.metrics}
print(json.dumps(found))
"""


def test_counters_reach_a_meter(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", WITH_METER, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    files = [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()]
    assert found["icelock.files.written"] == ["{file}", True, len(files)]
    assert found["icelock.bytes.written"] == ["By", True, sum(path.stat().st_size for path in files)]
    assert found["icelock.kms.wraps"] == ["{call}", True, 2]


def test_a_program_without_opentelemetry_never_loads_it(tmp_path: Path):
    code = WITH_METER.partition("from opentelemetry")[0] + WITH_METER[WITH_METER.index("from pathlib") : WITH_METER.index("reader =")]
    code += WITH_METER[WITH_METER.index("lake =") : WITH_METER.index("icelock.metrics")] + "print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "observability.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[str]:
    """The first cells of the table under a heading row of the page."""
    lines = PAGE[PAGE.index(heading) :].splitlines()[2:]
    return [line.split("|")[1] for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]


def test_the_page_has_every_event_logger_and_counter():
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src" / "icelock").rglob("*.py")}
    told = {
        name
        for text in sources.values()
        for name in re.findall(r'\bevent\(\s*"?\w+"?,\s*(?:level|logging\.[^,]+|[^,"]+),\s*"([a-z-]+)"', text)
    }
    assert told >= {"commit", "kms-call", "refusal", "fallback", "key-use"}
    assert set(re.findall(r"`([a-z-]+)`", " ".join(rows_of("| event |")))) == told
    layers = {path.relative_to(ROOT / "src").parts[1] for path, text in sources.items() if "logging.getLogger(__name__)" in text}
    layers |= set(re.findall(r'telemetry\.(?:event|Operation|on_table|refused|fallback)\(\s*"(\w+)"', "\n".join(sources.values())))
    assert set(re.findall(r"`icelock\.(\w+)`", " ".join(rows_of("| logger |")))) == layers
    assert set(re.findall(r"`(\w+)`", " ".join(rows_of("| counters |")))) == set(metrics.NAMES)
