# make demo    a lake in ./demo-lake: PySpark writes encrypted flights and reads them back
# make test    the whole test suite (Spark 4.1 in .venv; the quick tests and those marked spark43 on Spark 4.3, and Python 3.13 where there is
#              one, in .venv-spark43)
# make test42  the same tests as on Spark 4.3 on Spark 4.2, in .venv-spark42; neither make test nor make ci has them
# make check   the static part: the site, ruff, mypy, clang-format and javac for the Java files, layers, doctests, README against the command's help
# make ci      check and test side by side
# make interop the tests against Java Iceberg alone; interop-docs writes docs/interop.md from such a run
# make spark-sql-docs  runs every SQL case on Java Iceberg and on icelock, and writes docs/spark-sql.md
# make test-next PYICEBERG=...  unit and golden tests on another PyIceberg: what pip calls it, or the path of its source
# make operations-docs  tries every operation and writes docs/operations.md
# make errors-docs  makes the mistakes that users make and writes docs/errors.md
# make site    the documentation as a site, in build/site; make site-open shows it on http://127.0.0.1:8000, where its search works too
# make dist    wheel, source archive and bill of materials in dist; the same source gives the same bytes
# make bench   benchmarks
# make bench-check  what icelock costs beside PyIceberg, compared with what was recorded: ends with 1 if a case is slower; RECORD=1 records it
# make venv    the environment for development only
# make clean   remove what the others made

# Images of containers often forbid Python to keep what it compiled: each of the hundreds of processes that tests start would compile
# PyIceberg and PySpark for itself, which takes longer than most of what they do.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
# The second environment has a newer Python, if this machine has one: on PATH, or pyenv's.
NEWER := python3.13 $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python3.13)
PYTHON43 ?= $(firstword $(foreach python,$(NEWER),$(shell $(python) -c 'import ensurepip, venv; print("$(python)")' 2>/dev/null)) $(PYTHON))
PYTEST_ARGS ?=
VENV := .venv
VENV43 := .venv-spark43
SPARK43 := constraints/spark43.txt
VENV42 := .venv-spark42
VENV_NEXT := .venv-next
DBT := .venv-dbt
DOCS := .venv-docs
TYPED := .venv-typed
BUILD := .venv-build
BILL := .venv-bill
# The extras of users, without those for work on icelock itself.
OF_USERS := aws,azure,connect,duckdb,fast,gcp,glue,hive,keystore,otel,pandas,pkcs11,polars,postgres,spark,vault
PYICEBERG ?= pyiceberg
BIN := $(VENV)/bin
INSTALL := -m tools.environment
# What installs packages in a fortieth of pip's time; a machine that cannot have it is served by pip.
UV := .cache/uv/.tried

.PHONY: dist site site-open test-site test-typed demo test ci test42 test43 test-dbt test-spark test-interop test-others test-services test-quick test-next tools
.PHONY: interop interop-docs spark-sql-docs operations-docs errors-docs check static bench bench-check venv clean java python
.DELETE_ON_ERROR:

demo: java $(VENV)/.demo
	$(BIN)/icelock demo

# The test suite in lanes, each a process of its own, four of them at once: much of what they do is waiting. The longest come first, and
# the one that mostly waits for servers: last, it would leave the cores idle. AFTER keeps the lanes of the second environment from starting
# early, because theirs is ready first. What no lane names is in test-others. A lane's output comes when it has ended.
LANES := test-spark test-services test-interop test-others test-quick test43 test-dbt test-site test-typed
SIDE_BY_SIDE := --no-print-directory --jobs=4 --keep-going --output-sync=target AFTER="$(VENV)/.dev tools" QUICK_PROCESSES=0
AFTER ?=
SPARK := tests/spark
INTEROP := tests/interop tests/faults
SERVICES := tests/catalogs tests/concurrency tests/services
QUICK := tests/fuzz tests/golden tests/mistakes tests/pages tests/property tests/unit
# On all cores where it runs alone. Beside other lanes in one process: each process imports and collects all of it for itself.
QUICK_PROCESSES ?= auto
# Each lane has a cache of its own.
LANE = -m pytest --durations=25 --weekly -o cache_dir=.pytest_cache/$@ $(PYTEST_ARGS)

test: java
	$(MAKE) $(SIDE_BY_SIDE) $(LANES)

# make check and make test at once; the tests that check runs are in the lanes.
ci: java
	$(MAKE) $(SIDE_BY_SIDE) static $(LANES)

test43: java $(VENV43)/.test $(AFTER)
	$(VENV43)/bin/python $(LANE) -m 'spark43 or newest' $$(grep -rlE --include='test_*.py' 'mark\.(spark43|newest)|on_second\(' tests | sort)

test-spark: java $(VENV)/.dev tools
	$(BIN)/python $(LANE) -m 'not newest' $(SPARK)

test-interop: java $(VENV)/.dev tools
	$(BIN)/python $(LANE) $(INTEROP)

test-others: java $(VENV)/.dev tools
	$(BIN)/python $(LANE) -m 'not newest' $(patsubst %,--ignore=%,$(SPARK) $(INTEROP) $(SERVICES) $(QUICK) tests/dbt tests/site tests/typed)

# dbt wants an older protobuf than the rest: it is in a folder of its own, which goes before the environment.
test-dbt: java $(DBT)/.dbt tools
	PYTHONPATH=$(DBT) $(BIN)/python $(LANE) tests/dbt

# The same for what builds the site.
test-site: $(DOCS)/.docs tools
	PYTHONPATH=$(DOCS) $(BIN)/python $(LANE) tests/site

# The same for pyright, with a Node.js that comes as a wheel, and types for PyArrow.
test-typed: $(TYPED)/.typed
	PYTHONPATH=$(TYPED) $(BIN)/python $(LANE) tests/typed

test-services: java $(VENV)/.dev tools
	$(BIN)/python $(LANE) $(SERVICES)

test-quick: $(VENV43)/.test $(AFTER)
	$(VENV43)/bin/python $(LANE) --numprocesses=$(QUICK_PROCESSES) $(QUICK)

# Not part of CI: what is marked spark43 on PySpark 4.2, which is between the two that CI has.
test42:
	$(MAKE) test43 VENV43=$(VENV42) SPARK43=constraints/spark42.txt

# Not part of CI. pip says that icelock wants another PyIceberg: that is what is tried here.
test-next: | python
	$(PYTHON) -m venv --clear $(VENV_NEXT)
	$(VENV_NEXT)/bin/pip install --quiet -c constraints/dev.txt -e '.[test]'
	$(VENV_NEXT)/bin/pip install --quiet --pre --upgrade '$(PYICEBERG)'
	$(VENV_NEXT)/bin/pip freeze | grep -i '^pyiceberg'
	$(VENV_NEXT)/bin/python $(LANE) --numprocesses=auto tests/golden tests/unit

# What Maven downloads, before two lanes ask for it at once. Without Maven the tests that need it say so. And the classes that a Spark
# session loads, so that a JVM of a test starts with 11 s of CPU instead of 18; without them it takes longer.
tools: java python $(VENV)/.dev
	-@test -f $(VENV)/spark-classes.jsa || $(BIN)/python -m tests.helpers.class_archive
	-@$(PYTHON) -c 'from tests.interop import toolchain; from tests.servers import rest; toolchain.class_path(); rest.jars()'

site: $(DOCS)/.docs
	PYTHONPATH=src:$(DOCS) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# What is in the bill of materials is installed first.
dist: $(BUILD)/.build
	rm -rf dist $(BILL)
	PYTHONPATH=$(BUILD) $(BIN)/python -m hatchling build -d dist
	$(BIN)/python $(INSTALL) $(BILL) -c constraints/dev.txt "$$(echo dist/*.whl)[$(OF_USERS)]"
	PYTHONPATH=$(BUILD) $(BIN)/python -m cyclonedx_py environment --output-reproducible --pyproject pyproject.toml -o dist/icelock.cdx.json $(BILL)/bin/python

site-open: site
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

interop: java $(VENV)/.dev
	ICELOCK_MATRIX=all ICELOCK_SWEEPS=all $(BIN)/python -m pytest $(PYTEST_ARGS) tests/interop tests/faults

interop-docs: java $(VENV)/.dev
	ICELOCK_MATRIX=all $(BIN)/python -m pytest $(PYTEST_ARGS) tests/interop/test_matrix.py
	$(BIN)/python -m tests.interop.page

spark-sql-docs: java $(VENV)/.dev
	ICELOCK_SQL_CASES=all $(BIN)/python -m pytest $(PYTEST_ARGS) tests/interop/test_sql.py
	$(BIN)/python -m tests.interop.sql_page

operations-docs: java $(VENV)/.dev
	ICELOCK_SWEEPS=all $(BIN)/python -m pytest $(PYTEST_ARGS) tests/operations --ignore=tests/operations/test_page.py
	$(BIN)/python -m tools.operations.page

errors-docs: $(VENV)/.dev
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tools.mistakes.page

# What no lane does, which is what make ci has beside the lanes.
static: java $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror src/icelock/spark/jvm/java/*.java
	$(BIN)/python -m pytest -q -p no:cacheprovider --doctest-modules $$(grep -rl --include='*.py' '>>> ' src/icelock)

check: static site
	$(BIN)/python -m pytest -q -p no:cacheprovider -m "not spark" tests/test_java.py tests/test_layers.py tests/test_sources.py tests/test_readme.py tests/interop/test_page.py tests/interop/test_sql_page.py tests/operations/test_page.py

bench: $(VENV)/.dev
	for script in benchmarks/*.py; do $(BIN)/python "$$script" || exit 1; done

RECORD ?=
bench-check: $(VENV)/.dev
	$(BIN)/python benchmarks/check.py $(if $(RECORD),--record)

venv: $(VENV)/.dev

clean:
	rm -rf $(VENV) $(VENV43) $(VENV42) $(VENV_NEXT) $(DBT) $(DOCS) $(TYPED) $(BUILD) $(BILL) .cache demo-lake build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One sentence each when Python or Java is not what is needed.
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "icelock needs Python 3.11 or later as $(PYTHON); name another one with: make PYTHON=/path/to/python3" >&2; exit 1; }

java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	  case "$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)" in 17|21) ;; \
	  *) echo "Spark needs a JDK 17 or 21, on PATH or named by JAVA_HOME: install one, on Debian with apt-get install openjdk-17-jdk-headless" >&2; exit 1 ;; esac

# Stamp files: an environment is installed again only when what it is made from has changed.
$(UV): constraints/common.txt | python
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --target $(@D) -c $< uv 2>/dev/null || \
	  echo "pip cannot install uv here, so pip installs everything, which takes longer"
	@mkdir -p $(@D) && touch $@

# pip is for those who work in the environment, and for the tests of packaging.
$(VENV)/.demo: pyproject.toml constraints/common.txt constraints/dev.txt | python $(UV)
	$(PYTHON) $(INSTALL) $(VENV) -c constraints/dev.txt -e '.[demo]' pip
	touch $@

$(VENV)/.dev: pyproject.toml constraints/common.txt constraints/dev.txt | python $(UV)
	$(PYTHON) $(INSTALL) $(VENV) -c constraints/dev.txt -e '.[dev]' pip
	touch $@ $(VENV)/.demo

$(DBT)/.dbt: $(VENV)/.dev constraints/dbt.txt
	rm -rf $(DBT)
	$(PYTHON) $(INSTALL) $(VENV) --no-deps --target $(DBT) -r constraints/dbt.txt
	touch $@

$(BUILD)/.build: $(VENV)/.dev constraints/build.txt
	rm -rf $(BUILD)
	$(PYTHON) $(INSTALL) $(VENV) --no-deps --target $(BUILD) -r constraints/build.txt
	touch $@

$(DOCS)/.docs: $(VENV)/.dev constraints/docs.txt
	rm -rf $(DOCS)
	$(PYTHON) $(INSTALL) $(VENV) --no-deps --target $(DOCS) -r constraints/docs.txt
	touch $@

$(TYPED)/.typed: $(VENV)/.dev constraints/typed.txt
	rm -rf $(TYPED)
	$(PYTHON) $(INSTALL) $(VENV) --no-deps --target $(TYPED) -r constraints/typed.txt
	touch $@

$(VENV43)/.test: pyproject.toml constraints/common.txt $(SPARK43) | python $(UV)
	rm -rf $(VENV43)
	$(PYTHON43) $(INSTALL) $(VENV43) -c $(SPARK43) -e '.[test]' pip
	touch $@
