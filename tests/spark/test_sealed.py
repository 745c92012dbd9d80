"""What tasks tell the driver is sealed: who can open it, and what happens to a message that is not what its task sent."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from pyspark import cloudpickle

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.source import data_source
from icelock.spark.sealed.hpke import Place, Recipient
from icelock.spark.sealed.job import Action
from icelock.spark.sealed.messages import SealedFiles
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE, RewriteRun, as_task, delete_job, job_of, paths, sent, settings, told

SECRET = bytes(range(32))
JOB = ("5f0c5f4e-3c43-4b0c-a9a5-1f6b8f2c9a11", "append")
RECIPIENT = Recipient.of(SECRET, JOB)


def by_hand():
    """Derive the private key as RFC 5869 says (no salt, one block)."""
    extracted = hmac.digest(bytes(32), SECRET, hashlib.sha256)
    return X25519PrivateKey.from_private_bytes(hmac.digest(extracted, b"icelock spark message key\x01", hashlib.sha256))


def test_the_construction_is_the_one_that_is_written_down():
    """RFC 9180 in base mode, opened with nothing of ours."""
    sealed = RECIPIENT.sender.seal(b"keys", Place(task=7, part=2, last=False))
    assert RECIPIENT.sender.public_key == by_hand().public_key().public_bytes_raw()
    assert len(sealed) == 32 + 4 + 16
    info = b"icelock spark message\n5f0c5f4e-3c43-4b0c-a9a5-1f6b8f2c9a11\nappend\n7\n2\nmore"
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    assert suite.decrypt(sealed, by_hand(), info=info) == b"keys"
    with pytest.raises(InvalidTag):
        suite.decrypt(sealed, X25519PrivateKey.generate(), info=info)


@pytest.mark.parametrize(
    ("secret", "job", "place"),
    [
        (bytes(32), JOB, Place(task=0)),
        (SECRET, (JOB[0], "rewrite"), Place(task=0)),
        (SECRET, ("another", JOB[1]), Place(task=0)),
        (SECRET, JOB, Place(task=1)),
        (SECRET, JOB, Place(task=0, part=1)),
        (SECRET, JOB, Place(task=0, last=False)),
    ],
)
def test_what_was_sealed_elsewhere_does_not_open(secret, job, place):
    sealed = RECIPIENT.sender.seal(b"keys", Place(task=0))
    assert RECIPIENT.open(sealed, Place(task=0)) == b"keys"
    with pytest.raises(IntegrityError, match="does not authenticate"):
        Recipient.of(secret, job).open(sealed, place)


def test_a_job_of_one_process_has_a_key_of_its_own():
    one, other = Recipient.new(*JOB), Recipient.new(*JOB)
    sealed = one.sender.seal(b"keys", Place(task=0))
    assert one.open(sealed, Place(task=0)) == b"keys"
    with pytest.raises(IntegrityError, match="does not authenticate"):
        other.open(sealed, Place(task=0))


def test_a_byte_more_less_or_changed_does_not_open():
    sealed = RECIPIENT.sender.seal(b"keys", Place(task=0))
    changed = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
    for wrong in (*changed, *(sealed[:length] for length in range(len(sealed))), sealed + b"\0", b"\0" + sealed):
        with pytest.raises(IntegrityError, match="does not authenticate"):
            RECIPIENT.open(wrong, Place(task=0))
    assert SECRET.hex() not in repr(RECIPIENT)


def make(lake, *starts):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    for start in starts:
        table.append(people(start))
    return table


def writer_of(lake):
    source = data_source(settings(lake))(options={"path": TABLE})
    return source.writer(spark_schema(lake.catalog().load_table("db.t").schema(), table="t"), False)  # noqa: FBT003 - Spark's signature


def written(writer, *starts):
    """Return the messages of tasks that write people, as they arrive in the driver."""
    messages = []
    for number, start in enumerate(starts):
        with as_task(number):
            messages.append(sent(sent(writer).write(iter(people(start).to_batches()))))
    return messages


def ids(lake):
    return sorted(lake.catalog().load_table("db.t").scan().to_arrow().column("id").to_pylist())


def changed(message):
    return SealedFiles([message.parts[0][:-1] + bytes([message.parts[0][-1] ^ 1])])


@pytest.mark.parametrize(
    "arrives",
    [
        pytest.param(lambda own, _foreign: [own[0], changed(own[1])], id="changed"),
        pytest.param(lambda own, _foreign: [own[1], own[0]], id="exchanged"),
        pytest.param(lambda own, _foreign: [own[0], own[0]], id="twice"),
        pytest.param(lambda own, _foreign: [*own, own[0]], id="again"),
        pytest.param(lambda own, foreign: [own[0], foreign[1]], id="of another write"),
        pytest.param(lambda own, _foreign: [own[0], SealedFiles([])], id="emptied"),
        pytest.param(lambda own, _foreign: [own[0], SealedFiles([*own[1].parts, *own[1].parts])], id="doubled"),
    ],
)
def test_a_message_that_is_not_what_its_task_sent_is_not_committed(lake, arrives):
    """Neither is any other of that write, and its files go; the other write's stay."""
    make(lake, 0)
    before = lake.files()
    other = writer_of(lake)
    foreign = written(other, 100, 110)
    kept = {path.partition("/db/")[2] for path in paths(other, *foreign)}
    writer = writer_of(lake)
    own = written(writer, 10, 20)
    arrived = sent(writer)
    with pytest.raises(IntegrityError):
        arrived.commit(arrives(own, foreign))
    sent(writer).abort(own)
    assert ids(lake) == [*range(10)]
    assert {path.removeprefix("db/") for path in set(lake.files()) - set(before)} == kept
    other.commit(foreign)
    assert ids(lake) == [*range(10), *range(100, 120)]


@pytest.mark.parametrize("merge_on_read", [False, True])
@pytest.mark.parametrize(
    "arrives",
    [
        pytest.param(lambda parts: parts[:-1], id="cut short"),
        pytest.param(lambda parts: parts[1:], id="beginning lost"),
        pytest.param(lambda parts: [parts[1], parts[0], *parts[2:]], id="exchanged"),
        pytest.param(lambda parts: [parts[0], *parts], id="twice"),
        pytest.param(lambda parts: parts[-1:], id="end alone"),
    ],
)
def test_results_of_a_delete_are_all_there_or_nothing_is_committed(lake, arrives, merge_on_read):
    table = make(lake, 0, 10, 20, 30)
    before = lake.files()
    run = RewriteRun(
        lake, delete_job(table, "name in ('canary-00003', 'canary-00013', 'canary-00023', 'canary-00033')", merge_on_read=merge_on_read)
    )
    first, second = run.run()
    assert [len(first.parts), len(second.parts)] == [3, 3]  # two files each, and the end
    with pytest.raises(IntegrityError, match="task 1, part"):
        run.commit([first, SealedFiles(arrives(list(second.parts)))])
    assert ids(lake) == [*range(40)]
    assert lake.files() == before


def test_the_first_jobs_message_is_none_of_the_second_ones(lake):
    """Both jobs of an operation have one id and one key."""
    make(lake, 0)
    writer = writer_of(lake)
    (message,) = written(writer, 10)
    job = job_of(writer)
    assert message.open(job.recipient, task=0).paths == paths(writer, message)
    with pytest.raises(IntegrityError, match="than rewrite"):
        message.open(replace(job, action=Action.REWRITE).recipient, task=0)
    writer.commit([message])
    assert ids(lake) == [*range(20)]


def test_nothing_that_tasks_get_opens_a_message(lake):
    table = make(lake, 0, 10)
    run = RewriteRun(lake, delete_job(table, "name in ('canary-00003', 'canary-00013')"))
    writer = writer_of(lake)
    messages = written(writer, 50)
    private = [job.recipient.private_key.private_bytes_raw() for job in (job_of(writer), job_of(cloudpickle.loads(run.writer)))]
    assert private[0] != private[1]
    for pickled in (run.reader, run.writer, cloudpickle.dumps(writer), *map(cloudpickle.dumps, run.splits)):
        for key in (*private, job_of(writer).key, job_of(cloudpickle.loads(run.writer)).key, settings(lake).session_key, *KEYS.values()):
            assert key not in pickled
    assert job_of(writer).recipient.sender.public_key in cloudpickle.dumps(writer)
    (told_of,) = told(writer, *messages)
    deks = [KeyMetadata.decode(file.key_metadata).dek.reveal() for file in told_of.files]
    assert len(deks) == 1
    assert not any(dek in cloudpickle.dumps(messages) for dek in deks)
    writer.commit(messages)
    run.commit(run.run())
    assert ids(lake) == sorted({*range(20), *range(50, 60)} - {3, 13})
