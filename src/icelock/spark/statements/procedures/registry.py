"""All procedures of the namespace ``system``, as Spark's catalog class asks for them (``SparkProcedure.java``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from icelock.errors import PolicyError
from icelock.spark.jvm.rules import read_again
from icelock.spark.statements.asked import Answer, Asked, StatementSession
from icelock.spark.statements.procedures import audit, changelog, files, keys, layout, rewrites, snapshots
from icelock.spark.statements.procedures.call import Call, Procedure

_SYSTEM: Final = "system"
_PROCEDURES: Final[Mapping[str, Procedure]] = {
    **snapshots.PROCEDURES,
    **files.PROCEDURES,
    **rewrites.PROCEDURES,
    **layout.PROCEDURES,
    **audit.PROCEDURES,
    **keys.PROCEDURES,
    **changelog.PROCEDURES,
}


def list_procedures(_session: StatementSession, asked: Asked) -> list[str]:
    """Return the names of the procedures; they are in the namespace ``system``, and listed for the catalog too."""
    return sorted(_PROCEDURES) if asked.namespace in {(), (_SYSTEM,)} else []


def load_procedure(_session: StatementSession, asked: Asked) -> dict[str, Any]:
    """Return what Spark has to know of a procedure; no such procedure is a PolicyError."""
    *namespace, given = asked["table"]
    name = given.lower()
    if [part.lower() for part in namespace] != [_SYSTEM] or name not in _PROCEDURES:
        raise PolicyError(
            f"there is no procedure {'.'.join((asked['catalog'], *asked['table']))}; "
            f"{asked['catalog']}.{_SYSTEM} has {', '.join(sorted(_PROCEDURES))}"
        )
    found = _PROCEDURES[name]
    return {
        "name": name,
        "catalog": asked["catalog"],
        "description": found.description,
        "parameters": [
            *([parameter, kind, None] for parameter, kind in found.parameters.items()),
            *([parameter, kind, "NULL"] for parameter, kind in found.optional.items()),
        ],
        "result": found.result,
    }


def call_procedure(session: StatementSession, asked: Asked) -> list[list[Any]]:
    """Run a procedure; return the rows of its result."""
    name = asked["procedure"]
    call = Call(session=session, catalog=asked["catalog"], procedure=name, arguments=asked["arguments"])
    rows = [list(row) for row in _PROCEDURES[name].run(call)]
    if _PROCEDURES[name].changes:
        read_again(session.spark, str(call.name))
    return rows


ANSWERS: Final[Mapping[str, Answer]] = {
    "list procedures": list_procedures,
    "load procedure": load_procedure,
    "call": call_procedure,
}
