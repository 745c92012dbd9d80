"""Mistakes in Python, without Spark."""

from __future__ import annotations

from typing import Final

from tools.mistakes.mistake import Mistake

# fmt: off

NAMES: Final = (
    Mistake(title="A table's name with a slip", code='catalog.load_table("shop.odrers")', says=("shop.odrers", "did you mean table shop.orders?"), why="The catalog has no table of that name.", remedy='Take the name that it offers, or list those that there are: `catalog.list_tables("shop")`.'),
    Mistake(title="A namespace with a slip", code='catalog.load_table("shpo.orders")', says=("shpo.orders", "did you mean namespace shop?"), why="The namespace is not there.", remedy="Take the one that it offers, or list them: `catalog.list_namespaces()`."),
    Mistake(title="A name without its namespace", code='catalog.load_table("orders")', says=("orders", "namespace.table"), why="Every table is in a namespace.", remedy="Name both: `shop.orders`."),
    Mistake(title="The catalog's name before the table's, in Python", code='catalog.load_table("lake.shop.orders")', says=("leave its name out: shop.orders",), why="A catalog object is that catalog already; the name goes before the table's in Spark and on the command line.", remedy="Leave it out."),
    Mistake(title="Dropping a table that is not there", code='catalog.drop_table("shop.odrers")', says=("shop.odrers", "shop.orders"), why="As above; nothing was dropped.", remedy="Correct the name."),
    Mistake(title="Renaming a table that is not there", code='catalog.rename_table("shop.odrers", "shop.sales")', says=("shop.odrers", "shop.orders"), why="As above; nothing was renamed.", remedy="Correct the name."),
    Mistake(title="Creating a table twice", code='catalog.create_table("shop.orders", schema, properties={"encryption.key-id": "lake-key"})', says=("shop.orders", "already exists"), why="There is a table of that name.", remedy="Load it, or call `create_table_if_not_exists`."),
    Mistake(title="Creating a table in a namespace that is not there", code='catalog.create_table("shpo.new", schema, properties={"encryption.key-id": "lake-key"})', says=("shpo", "did you mean namespace shop?"), why="Namespaces are made first.", remedy='Correct the name, or call `catalog.create_namespace("shpo")`.'),
    Mistake(title="A snapshot that is not there", code="table.scan(snapshot_id=7).to_arrow()", says=("snapshot 7", "table.snapshots()"), why="It was expired, or is another table's.", remedy="Choose one of `table.snapshots()`."),
    Mistake(title="A branch or tag with a slip", code='table.scan().use_ref("mian").to_arrow()', says=("'mian'", "did you mean 'main'?"), why="The table has no branch or tag of that name.", remedy="Take the one that it offers."),
    Mistake(title="Writing to a branch that is not there", code='table.append(rows, branch="audit")', says=("'audit'", "create_branch"), why="A branch is made first, so that a slip makes none.", remedy="Create it, as the message says."),
)

CONFIGURATION: Final = (
    Mistake(title="A catalog that is not configured", code='icelock.load_catalog("laek")', configured=True, says=("laek", "did you mean 'lake'?", ".pyiceberg.yaml"), why="PyIceberg's configuration has no catalog of that name, and no properties were given.", remedy="Correct the name, or give `type` and `uri`."),
    Mistake(title="A catalog's type with a slip", code='icelock.load_catalog("lake", **{**settings, "type": "sqlite"})', says=("'sqlite'", "sql"), why="There is no such type of catalog.", remedy="Use one of those that it lists; SQLite is `sql`."),
    Mistake(title="A setting with a slip", code='icelock.load_catalog("lake", **{**settings, "encription.kms-type": "local"})', says=("encription.kms-type", "did you mean 'encryption.kms-type'?"), why="A misspelt setting would have no effect, and tables might be plain.", remedy="Take the name that it offers."),
    Mistake(title="A KMS type with a slip", code='icelock.load_catalog("lake", **{**settings, "encryption.kms-type": "locall"})', says=("locall", "did you mean 'local'?"), why="There is no such KMS.", remedy="Take the one that it offers."),
    Mistake(title="A KMS setting with a slip", code='icelock.load_catalog("lake", **{**settings, "kms.local.pth": "keyring.json"})', says=("kms.local.pth", "did you mean 'kms.local.path'?"), why="As above.", remedy="Take the name that it offers."),
    Mistake(title="Settings of two key services", code='icelock.load_catalog("lake", **{**settings, "encryption.kms-type": "aws"})', says=("kms.local.path", "'aws'", "remove one"), why="A setting belongs to one KMS, and the type names another.", remedy="Remove the one that is left over."),
    Mistake(title="A relative warehouse", code="""lake = icelock.load_catalog("lake", **{**settings, "warehouse": "warehouse"})
lake.create_table("shop.new", schema, properties={"encryption.key-id": "lake-key"})""", says=("warehouse", "absolute", "file:///"), why="A relative path means another folder in each process, and tables keep it for good.", remedy="Write an absolute path."),
    Mistake(title="A warehouse that cannot be written", code="""lake = icelock.load_catalog("lake", **{**settings, "warehouse": "file:///dev/null/warehouse"})
lake.create_table("shop.new", schema, properties={"encryption.key-id": "lake-key"})""", says=("/dev/null/warehouse/shop/new", "nothing was changed", "warehouse of catalog lake", "let this user write there"), why="The folder cannot be made, or this user may not write in it; the class of the error is that which the storage gave, such as `PermissionError`.", remedy="Correct `warehouse`, or the rights on it."),
    Mistake(title="A database that is not there", code='icelock.load_catalog("lake", **{**settings, "uri": "sqlite:////nowhere/lake.db"})', says=("catalog lake", "sqlite:////nowhere/lake.db", "correct its uri"), why="The folder is not there, or this user may not write in it.", remedy="Correct `uri`, or make the folder."),
    Mistake(title="No type and no uri", code='icelock.load_catalog("other", warehouse="file:///lake")', says=("catalog other", "type", "uri"), why="Nothing says what catalog it is.", remedy="Set `type`, and `uri` to where it is."),
    Mistake(title="A block of settings in Python", code='icelock.load_catalog("lake", **{**settings, "encryption": {"kms-type": "local"}})', says=("encryption",), why="Settings are flat names with dots here; blocks are for YAML.", remedy='Write `"encryption.kms-type": "local"`.'),
    Mistake(title="Two catalogs of one name", code='icelock.load_catalog("lake")', before="""
import os
from pathlib import Path
Path("twice").mkdir(exist_ok=True)
Path("twice/.pyiceberg.yaml").write_text("catalog:\\n  lake:\\n    type: sql\\n  lake:\\n    type: rest\\n")
os.environ['PYICEBERG_HOME'] = 'twice'""", says=("twice/.pyiceberg.yaml", "line 4", "'lake'"), why="The file has the catalog twice, and one would hide the other.", remedy="Give one of them another name."),
    Mistake(title="A REST server that does not answer", code='icelock.load_catalog("lake", type="rest", uri="http://127.0.0.1:1/api")', says=("catalog lake", "http://127.0.0.1:1", "start the server", "correct the catalog's uri"), why="Nobody listens at that address, or a firewall drops what is sent there. It is a `CatalogUnreachableError`.", remedy="Start the server, or correct `uri`."),
    Mistake(title="A metastore that does not answer", code='icelock.load_catalog("lake", type="hive", uri="thrift://127.0.0.1:1").list_namespaces()', says=("catalog lake", "127.0.0.1:1", "start it", "correct the catalog's uri"), why="The same; of several addresses none answers.", remedy="Start it, or correct `uri`."),
)

KEYS: Final = (
    Mistake(title="A keyring that is not there", code='icelock.load_catalog("lake", **{**settings, "kms.local.path": "nowhere.json"})', says=("nowhere.json", "icelock keyring init", "kms.local.path"), why="The path is wrong, or relative to another folder.", remedy="Correct the path; make a keyring only if there was none."),
    Mistake(title="A key file that is not there", code='icelock.load_catalog("lake", **{**settings, "kms.local.key-file": "nowhere.key"})', says=("nowhere.key", "kms.local.key-file"), why="As above; without the key file the keyring cannot be opened.", remedy="Correct the path, or restore the file."),
    Mistake(title="A key file that others may read", code="""lake = icelock.load_catalog("lake", **{**settings, "kms.local.key-file": "shared.key"})
lake.load_table("shop.orders").scan().to_arrow()""", before="import shutil\nfrom pathlib import Path\nshutil.copy('keyring.key', 'shared.key')\nPath('shared.key').chmod(0o644)", says=("shop.orders", "shared.key", "chmod 600"), why="Whoever reads the key file opens the keyring.", remedy="Take the right away from others, as the message says."),
    Mistake(title="A key service that does not answer", code="""vault = {
    "encryption.kms-type": "vault",
    "kms.vault.address": "https://127.0.0.1:1",
    "kms.vault.token-file": "token",
    "kms.retry.attempts": "1",
}
lake = icelock.load_catalog("lake", type="sql", uri=settings["uri"], warehouse=settings["warehouse"], **vault)
lake.create_table("shop.other", schema, properties={"encryption.key-id": "lake-key"})""", before="from pathlib import Path\nPath('token').write_text('hvs.x')\nPath('token').chmod(0o600)", says=("shop.other", "'lake-key'", "service unavailable", "kms.vault.address"), why="Nobody listens at that address, or Vault is sealed. Without `kms.retry.attempts` it is asked five times.", remedy="Start or unseal it, or correct the address."),
    Mistake(title="A master key that is not there", code='catalog.create_table("shop.new", schema, properties={"encryption.key-id": "lake-kye"})', says=("'lake-kye'", "'lake-key'", "encryption.key-id"), why="The keyring has no key of that name.", remedy="Take one that it has, or add it with `icelock keyring add`."),
    Mistake(title="A new table without a key", code='catalog.create_table("shop.new", schema)', says=("shop.new", "encryption.key-id", "table-default.encryption.key-id", "icelock.plain"), why="The catalog has a KMS, so a table without a key is probably a slip.", remedy="Name the key, or say that the table is to be plain."),
    Mistake(title="A table property with a slip", code='catalog.create_table("shop.new", schema, properties={"encryption.keyid": "lake-key"})', says=("encryption.keyid", "did you mean 'encryption.key-id'?"), why="A misspelt property would make a plain table.", remedy="Take the name that it offers."),
    Mistake(title="Reading an encrypted table without a KMS", code="""bare = {name: value for name, value in settings.items() if not name.startswith(("encryption.", "kms."))}
lake = icelock.load_catalog("lake", **bare)
lake.load_table("shop.orders").scan().to_arrow()""", says=("shop.orders", "lake-key", "no KMS is configured", "encryption.kms-type"), why="Metadata can be read without keys, rows cannot.", remedy="Give the catalog its KMS settings."),
    Mistake(title="Creating an encrypted table without a KMS", code='plain_catalog.create_table("shop.new", schema, properties={"encryption.key-id": "lake-key"})', says=("shop.new", "no KMS is configured", "encryption.kms-type"), why="The catalog names no KMS.", remedy="Give it one."),
    Mistake(title="Another master key for a table", code='table.transaction().set_properties({"encryption.key-id": "other"}).commit_transaction()', says=("shop.orders", "lake-key", "icelock rotate"), why="The keys of the table's files are wrapped by the one that it has.", remedy="Run `icelock rotate`, which wraps them anew."),
    Mistake(title="A KMS whose package is not installed", code='icelock.load_catalog("aws", **{"type": "sql", "uri": settings["uri"], "encryption.kms-type": "aws"})', says=("botocore", "pip install '.[aws]'"), without=("botocore", "botocore.session"), why="Each key service is an extra.", remedy="Install it, as the message says."),
    Mistake(title="Converting a table whose catalog has no KMS", code="""import icelock.maintenance

icelock.maintenance.convert(plain, key_id="lake-key")""", says=("shop.old", "KMS"), why="The plain table's catalog needs the KMS that will wrap its key.", remedy="Load that catalog with KMS settings."),
    Mistake(title="Converting an encrypted table", code="""import icelock.maintenance

icelock.maintenance.convert(table, key_id="lake-key")""", says=("shop.orders", "encrypted"), why="It is encrypted already.", remedy="Nothing is to be done; for another key use `icelock rotate`."),
)

FILTERS: Final = (
    Mistake(title="A column with a slip in a filter", code="table.scan(row_filter=\"ctiy = 'Oslo'\").to_arrow()", says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="Text in double quotes", code="table.scan(row_filter='city = \"Oslo\"').to_arrow()", says=("single quotes", "'Oslo'"), why="Double quotes are for names, as in SQL.", remedy="Use single quotes for text."),
    Mistake(title="Text without quotes", code='table.scan(row_filter="city = Oslo").to_arrow()', says=("single quotes", "columns cannot be compared"), why="Oslo is taken for a column.", remedy="Use single quotes for text."),
    Mistake(title="A quote that is not closed", code="table.scan(row_filter=\"city = 'Oslo\").to_arrow()", says=("not closed",), why="As it says.", remedy="Close it; write a quote inside text twice."),
    Mistake(title="A filter that ends too early", code="table.scan(row_filter=\"city = 'Oslo' and\").to_arrow()", says=("a condition is missing",), why="After `and` something is missing.", remedy="Add the condition, or take the `and` away."),
    Mistake(title="A function in a filter", code="table.scan(row_filter=\"lower(city) = 'oslo'\").to_arrow()", says=("lower(city)", "functions are not supported"), why="Filters compare columns with values, so that files can be left out.", remedy="Compare the column itself, or filter the rows that were read."),
    Mistake(title="A pattern that Iceberg does not have", code="table.scan(row_filter=\"city like '%slo'\").to_arrow()", says=("%slo", "end of a pattern"), why="Only the beginning of text can be looked for.", remedy="Use `like 'Os%'`, or filter the rows that were read."),
    Mistake(title="Text compared with a number", code="table.scan(row_filter=\"id = 'x'\").to_arrow()", says=("'id'", "long", "'x'"), why="The value has another type than the column.", remedy="Compare with a number."),
    Mistake(title="A time without a zone", code="table.scan(row_filter=\"at > '2026-01-02 10:00:00'\").to_arrow()", says=("'at'", "timestamptz", "+00:00"), why="A moment needs a zone, which is not guessed.", remedy="Write it in ISO 8601 with its zone."),
    Mistake(title="A filter that is no text", code='table.scan(row_filter={"city": "Oslo"}).to_arrow()', says=("dict", "city = 'Oslo'"), why="Filters are text or PyIceberg's expressions.", remedy="Write it as text."),
    Mistake(title="Deleting by a column with a slip", code="table.delete(\"ctiy = 'Oslo'\")", says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column; nothing was deleted.", remedy="Take the one that it offers."),
    Mistake(title="A column with a slip in a scan", code='table.scan(selected_fields=("id", "ctiy")).to_arrow()', says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="One column as text", code='table.scan(selected_fields="city").to_arrow()', says=("selected_fields", "['city']"), why="Columns are a list of names; text would be its letters.", remedy='Write `selected_fields=["city"]`.'),
    Mistake(title="A limit that is no number", code='table.scan(limit="3").to_arrow()', says=("limit", "'3'"), why="A limit is a whole number.", remedy="Write `limit=3`."),
)

ROWS: Final = (
    Mistake(title="A column that the table does not have", code='table.append(rows.rename_columns(["id", "ctiy", "at"]))', says=("'ctiy'", "update_schema", "did you mean 'city'?"), why="Rows are matched by the names of columns.", remedy="Rename it, or add it to the table first."),
    Mistake(title="A required column is missing", code='table.append(rows.drop(["id"]))', says=("'id'", "required"), why="Every row needs a value there.", remedy="Give the column."),
    Mistake(title="A null in a required column", code='table.append(pa.table({"id": pa.array([None], pa.int64())}))', says=("'id'", "required", "null"), why="As above.", remedy="Give values, or make the column optional."),
    Mistake(title="A column of another type", code='table.append(pa.table({"id": ["four"]}))', says=("'id'", "long", "string"), why="Values are not converted where something could be lost.", remedy="Cast the column: `rows.cast(...)`."),
    Mistake(title="Times without a zone", code='table.append(pa.table({"id": [4], "at": [datetime(2026, 1, 4)]}))', says=("'at'", "timestamptz", "time zone", "cast"), why="The column holds moments, and a time without a zone is none.", remedy="Give the times a zone."),
    Mistake(title="A file's name for its rows", code='table.append("orders.csv")', says=("str", "pyarrow"), why="Rows are a table or a frame, and a name is none.", remedy='Read the file first: `pyarrow.csv.read_csv("orders.csv")`.'),
    Mistake(title="A key twice in an upsert", code="table.upsert(pa.concat_tables([rows, rows]))", says=("row 3", "'id'"), why="One row of the table cannot become two.", remedy="Keep one row for each key."),
    Mistake(title="A key column with a slip", code='table.upsert(rows, join_cols=["idd"])', says=("'idd'", "did you mean 'id'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="One key column as text", code='table.upsert(rows, join_cols="id")', says=("join_cols", "['id']"), why="Key columns are a list; text would be its letters.", remedy='Write `join_cols=["id"]`.'),
    Mistake(title="Plain files into an encrypted table", code='table.add_files(["file:///old/2012.parquet"])', says=("shop.orders", "reencrypt=True"), why="The files would stay plain.", remedy="Say `reencrypt=True`: their rows are written again, encrypted."),
)

TABLES: Final = (
    Mistake(title="Dropping a column with a slip", code="""with table.update_schema() as update:
    update.delete_column("ctiy")""", says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="Adding a column that is there", code="""from pyiceberg.types import StringType

with table.update_schema() as update:
    update.add_column("city", StringType())""", says=("city", "already exists"), why="The name is taken.", remedy="Choose another one."),
    Mistake(title="A type that a column cannot become", code="""from pyiceberg.types import IntegerType

with table.update_schema() as update:
    update.update_column("id", IntegerType())""", says=("id", "long", "int"), why="Types only grow: int to long, float to double, decimals to more digits.", remedy="Add a column of the other type, and fill it."),
    Mistake(title="A partition by a column with a slip", code="""with table.update_spec() as update:
    update.add_identity("ctiy")""", says=("'ctiy'", "did you mean 'city'?"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="A branch from a snapshot that is not there", code='table.manage_snapshots().create_branch(7, "audit").commit()', says=("snapshot 7", "table.snapshots()"), why="A branch begins at a snapshot of the table.", remedy="Choose one of `table.snapshots()`."),
    Mistake(title="An option of compaction with a slip", code='table.maintenance.compact(options={"min-input-file": "2"})', says=("min-input-file", "did you mean 'min-input-files'?"), why="There is no such option.", remedy="Take the one that it offers."),
    Mistake(title="A time in words", code='table.maintenance.expire_snapshots().older_than("yesterday").commit()', says=("'yesterday'", "datetime"), why="A time is a `datetime` with a zone, or milliseconds since 1970.", remedy="Write `datetime.now(timezone.utc) - timedelta(days=1)`."),
    Mistake(title="Dropping a namespace that has tables", code='catalog.drop_namespace("shop")', says=("shop", "not empty"), why="Its tables would be lost.", remedy="Drop or move its tables first."),
)

SECTIONS: Final = {
    "Names": NAMES,
    "Configuration": CONFIGURATION,
    "Keys": KEYS,
    "Filters and columns": FILTERS,
    "Writing rows": ROWS,
    "Changing tables": TABLES,
}
