"""Other processes open an audit's files: what becomes of them, of their keys, and of a report when one is lost.

What they find is compared with what this process finds by the planted faults (``test_faults``).
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyiceberg.io import FileIO

from icelock.audit import processes
from icelock.audit.cpus import usable_cpus
from icelock.audit.file_check import Checked, FileTask, check_files
from icelock.audit.findings import Findings
from icelock.audit.processes import CheckByProcesses, OtherProcess
from icelock.io.storage import ArrowFileIO
from tests.helpers.places import python_path
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.conftest import Elsewhere, look
from tests.unit.audit.surgery import Patient

FILES = 4  # three data files and a deletion vector


@pytest.fixture
def own() -> Iterator[Elsewhere]:
    """Another process to do anything to."""
    checks = Elsewhere()
    yield checks
    checks.end()


@pytest.fixture
def begins_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a process began")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def tasks_of(patient: Patient) -> list[FileTask]:
    """Return what an audit of the table has opened."""
    met: list[FileTask] = []

    def keep(io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        met.extend(tasks)
        yield from check_files(io, met, threads=threads)

    assert look(patient.file, "bytes", check=keep).verdict == "sound"
    assert len(met) == FILES
    return met


def begun(own: Elsewhere, patient: Patient) -> OtherProcess:
    assert look(patient.file, "bytes", check=own).verdict == "sound"
    assert own.process is not None
    assert [lane.works for lane in own.process.lanes].count(True) > 0
    return own.process


def test_a_process_that_is_killed_is_told_and_is_no_verdict_of_sound(patient: Patient, own: Elsewhere) -> None:
    process = begun(own, patient)
    os.kill(process.pid, signal.SIGKILL)
    (lane, *_) = (lane for lane in process.lanes if lane.works)
    first, *rest = tasks_of(patient)
    (found,) = lane.check(ArrowFileIO({}), [first])
    assert (found.path, found.code) == (first.path, None)
    assert "was ended by SIGKILL" in found.sentence
    assert "threads=1" in found.sentence
    assert [one.sentence for one in lane.check(ArrowFileIO({}), rest)] == [""] * 3  # by this process, which is there


def test_a_report_names_the_files_that_a_killed_process_had(patient: Patient, own: Elsewhere) -> None:
    process = begun(own, patient)
    for lane in process.lanes:
        lane.works = True
    os.kill(process.pid, signal.SIGKILL)
    report = look(patient.file, "bytes", check=own)
    assert report.verdict == "could not look"
    assert 0 < report.unseen_count <= len(process.lanes)
    assert {one.what for one in report.unseen} <= {task.path for task in tasks_of(patient)}
    assert all("SIGKILL" in one.why for one in report.unseen)


def test_an_answer_that_is_none_is_not_taken_for_sound(patient: Patient, own: Elsewhere) -> None:
    """What a process may say that a file took over."""
    lane, tasks = begun(own, patient).lanes[0], tasks_of(patient)[:1]
    answers = [
        b"[" * 99_999,
        b"",
        b"[]",
        b"null",
        b"[null]",
        b"[[null]]",
        b"[[null, 1, 2]]",
        b"[[null, null]]",
        b'[["x", 1]]',
        b'[[5, ""]]',
        b"\xff",
    ]

    class Liar:
        def send_bytes(self, _request: bytes) -> None: ...

        def poll(self, _seconds: float) -> bool:
            return True

        def recv_bytes(self) -> bytes:
            return answer

    lane._pipe = Liar()  # type: ignore[assignment]
    for answer in answers:
        lane.works = True
        (found,) = lane.check(ArrowFileIO({}), tasks)
        assert found.code is None, answer
        assert "the process that opened it" in found.sentence, answer


def test_ctrl_c_ends_a_process_that_hangs(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, so that nothing but SIGKILL reaches it, and has files that are waited for."""
    monkeypatch.setattr(processes, "_BATCH", 1)  # so that both have files
    with CheckByProcesses(processes=2, worth=0) as check:
        assert look(patient.file, "bytes", check=check).verdict == "sound"
        (other,) = check.others
        assert other.lanes[0].check(ArrowFileIO({}), tasks_of(patient)[:1])[0].sentence == ""
        os.kill(other.pid, signal.SIGSTOP)

        def interrupt(_done: int, _of: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            look(patient.file, "bytes", check=check, progress=interrupt)
        assert not Path(f"/proc/{other.pid}").exists()


def test_a_process_that_is_stopped_is_not_waited_for_without_end(patient: Patient, own: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    process, (task, *_) = begun(own, patient), tasks_of(patient)
    (lane, *_) = (lane for lane in process.lanes if lane.works)
    monkeypatch.setattr(processes, "_ASKED", 0.01)
    monkeypatch.setattr(processes, "_ANSWERS", 0.01)
    os.kill(process.pid, signal.SIGSTOP)
    (found,) = lane.check(ArrowFileIO({}), [task])
    assert (found.path, found.code) == (task.path, None)
    assert "did not answer" in found.sentence
    assert not Path(f"/proc/{process.pid}").exists()
    assert lane.check(ArrowFileIO({}), [task])[0].sentence == ""  # by this process


def test_a_process_whose_storage_is_slow_is_waited_for(patient: Patient, own: Elsewhere) -> None:
    """Its result is not there three times, and each time it is asked whether it is: a thread that opens no files answers."""
    process, (task, *_) = begun(own, patient), tasks_of(patient)
    (lane, *_) = (lane for lane in process.lanes if lane.works)
    there, waited = lane._pipe, list[float]()

    class Slow:
        send_bytes, recv_bytes = there.send_bytes, there.recv_bytes

        def poll(self, seconds: float) -> bool:
            waited.append(seconds)
            return len(waited) > 3 and there.poll(seconds)

    lane._pipe = Slow()  # type: ignore[assignment]
    assert lane.check(ArrowFileIO({}), [task])[0].sentence == ""
    assert (len(waited), lane.works) == (4, True)


def test_a_signal_without_a_name_is_told_by_its_number(patient: Patient, own: Elsewhere) -> None:
    process, (task, *_) = begun(own, patient), tasks_of(patient)
    (lane, *_) = (lane for lane in process.lanes if lane.works)
    os.kill(process.pid, signal.SIGRTMIN + 1)  # 35 on Linux
    assert f"was ended by signal {int(signal.SIGRTMIN) + 1};" in lane.check(ArrowFileIO({}), [task])[0].sentence


def test_without_file_descriptors_this_process_opens_all(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(processes, "Pipe", refuse)
    with caplog.at_level(logging.WARNING, "icelock"), CheckByProcesses(processes=2, worth=0) as check:
        assert look(patient.file, "bytes", check=check).verdict == "sound"
    assert "did not begin ([Errno 24] Too many open files)" in caplog.text


def test_it_ends_with_the_one_that_began_it(patient: Patient, own: Elsewhere) -> None:
    """Whose end closes the sockets, also where it is killed."""
    process = begun(own, patient)
    process._control.close()
    assert process.fate() == "ended with code 0"


def test_nobody_else_sees_what_it_is_given(patient: Patient, own: Elsewhere) -> None:
    """Neither arguments, environment nor open files have a key or a way to one: /dev/null, and sockets without a name."""
    process = begun(own, patient)
    place = Path(f"/proc/{process.pid}")
    shown = place.joinpath("cmdline").read_bytes() + place.joinpath("environ").read_bytes()
    for task in tasks_of(patient):
        key = task.key.dek.reveal()
        assert key not in shown
        assert key.hex().encode() not in shown
    opened = {str(one.readlink()).partition(":")[0] for one in place.joinpath("fd").iterdir()}
    assert opened == {"/dev/null", "socket"}


def test_a_users_script_is_not_run_again(tmp_path: Path) -> None:
    """One without ``if __name__ == "__main__"``, which multiprocessing would run once for each process."""
    lake = TestLake(tmp_path)
    catalog = lake.with_namespace(tmp_path).catalog()
    catalog.create_table("db.t", people().schema, properties=KEYED).append(people())
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from icelock.audit import processes, run\n"
        "from tests.lakes.sqlite import TestLake\n"
        "print('once')\n"
        "run.CheckByProcesses = lambda: processes.CheckByProcesses(processes=2, worth=0)\n"
        "print(run.audit(TestLake(Path(__file__).parent).catalog(), 'db.t', depth='bytes').verdict)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": python_path()}
    )
    assert (done.stdout.split("\n"), done.stderr) == (["once", "sound", ""], "")


def test_where_none_can_begin_this_process_opens_all(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "python-that-fails"
    shutil.copy("/bin/false", program)
    monkeypatch.setattr(sys, "executable", str(program))
    with caplog.at_level(logging.WARNING, "icelock"), CheckByProcesses(processes=2, worth=0) as check:
        other = OtherProcess(1)
        (found,) = other.lanes[0].check(ArrowFileIO({}), tasks_of(patient)[:1])
        other.end()
        assert found.sentence == ""
        assert look(patient.file, "bytes", check=check).verdict == "sound"
    assert "did not begin (it ended with code 1)" in caplog.text


def test_one_that_does_not_begin_is_told_once_with_the_reason(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "python-that-hangs"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(processes, "_BEGINS", 0.01)
    other, (task, *_) = OtherProcess(2), tasks_of(patient)
    assert [lane.check(ArrowFileIO({}), [task])[0].sentence for lane in other.lanes] == ["", ""]
    assert [one.getMessage() for one in caplog.records] == [
        "a process of the audit did not begin (it said nothing for 0 s): the others have its work"
    ]
    other.end()


def test_one_that_has_no_time_to_begin_is_not_told(patient: Patient, caplog: pytest.LogCaptureFixture) -> None:
    """Its lane waits for it while the audit ends, as by Ctrl-C."""
    other, (task, *_) = OtherProcess(1), tasks_of(patient)
    other.end()
    assert other.lanes[0].check(ArrowFileIO({}), [task])[0].sentence == ""
    assert caplog.records == []


@pytest.mark.usefixtures("begins_none")
@pytest.mark.parametrize("program", ["", "/usr/bin/uwsgi", "/opt/app/app"])
def test_a_program_with_python_inside_does_not_begin_itself_again(patient: Patient, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with CheckByProcesses(processes=2, worth=0) as check:
        assert look(patient.file, "bytes", check=check).verdict == "sound"


@pytest.mark.usefixtures("begins_none")
def test_little_is_opened_here(patient: Patient) -> None:
    with CheckByProcesses(processes=2) as check:
        assert look(patient.file, "bytes", check=check).verdict == "sound"


@pytest.mark.parametrize(("size", "lanes"), [(1, 2), (1 << 40, 4)])
def test_large_local_files_have_two_threads_of_a_process(patient: Patient, monkeypatch: pytest.MonkeyPatch, size: int, lanes: int) -> None:
    """Eight threads, two processes; ``size``: from which on files are large."""
    monkeypatch.setattr(processes, "_BATCH", size)
    with CheckByProcesses(processes=2, worth=1) as check:
        assert [one.sentence for one in check(ArrowFileIO({}), tasks_of(patient), threads=8)] == [""] * FILES
        assert [len(other.lanes) for other in check.others] == [lanes]


@pytest.mark.usefixtures("begins_none")
def test_a_users_own_fileio_stays_here(patient: Patient) -> None:
    class Own(ArrowFileIO):
        pass

    with CheckByProcesses(processes=2, worth=0) as check:
        assert [one.sentence for one in check(Own({}), tasks_of(patient), threads=2)] == [""] * FILES


def test_tables_that_are_small_begin_one_together(patient: Patient) -> None:
    """A megabyte is counted for each file's opening: four files a table, and it begins in the second one."""
    with CheckByProcesses(processes=2, worth=7 << 20) as check:
        assert look(patient.file, "open", check=check).verdict == "sound"
        assert not check.others
        assert look(patient.file, "open", check=check).verdict == "sound"
        assert len(check.others) == 1


def test_a_report_does_not_depend_on_what_was_found_first() -> None:
    """Processes and threads end in any order: the first three names are kept."""
    reports = []
    for order in ("abcde", "edcba", "cadbe"):
        findings = Findings(3)
        for what in order:
            findings.add("file-missing", what, "is gone")
            findings.could_not_look(what, "no right")
        reports.append(([one.what for one in findings.in_order()], [one.what for one in findings.unseen], findings.unseen_count))
    assert reports == [(["a", "b", "c"], ["a", "b", "c"], 5)] * 3


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/job\n", {"cpu.max": "max 100000\n", "job/cpu.max": "150000 100000\n"}, 1),
        ("0::/job/step\n", {"job/cpu.max": "100000 100000\n"}, 1),
        ("0::/job\n", {"job/cpu.max": "50000 100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n3:memory:/b\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "100000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 1),
        ("4:memory:/\n", {"cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "900000000 100000\n"}, None),
        ("nonsense", {}, None),
    ],
)
def test_the_quota_of_control_groups_counts(tmp_path: Path, own: str, files: dict[str, str], cpus: int | None) -> None:
    """Formats: Linux, Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst."""
    for name, text in files.items():
        place = tmp_path / "groups" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    tmp_path.joinpath("own").write_text(own)
    assert usable_cpus(tmp_path / "groups", tmp_path / "own") == (cpus or len(os.sched_getaffinity(0)))
