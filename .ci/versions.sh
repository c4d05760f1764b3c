# Environments with other versions than those of .venv, for `.ci/run`: the lowest that pyproject.toml allows, and the
# newest Python there is. They hold the core alone, without Flower, torch and matplotlib.

# What depends on versions: compiled kernels (numba), arrays and draws (numpy, scipy), estimators (scikit-learn), tables
# (narwhals, pandas, polars, pyarrow), files, commands (typer, rich) and the report (jinja2). Statistical checks take most
# of the time of `make test` and would find nothing more.
core_tests=(
    tests/_support tests/data tests/kernels tests/posterior
    tests/model/test_cholesky.py tests/model/test_gram.py tests/model/test_regression.py
    tests/samplers/test_merging.py tests/samplers/test_randomness.py
    tests/storage/test_codec.py tests/storage/test_reader.py
    tests/federation/test_messages.py tests/federation/test_sums.py
    tests/estimators/test_estimator.py tests/estimators/test_sklearn_contract.py tests/estimators/test_dataframes.py
    tests/estimators/test_messy_columns.py tests/estimators/test_tidy_tables.py
    tests/cli/test_commands.py tests/cli/test_manual.py tests/cli/test_parameters.py tests/privacy/test_ciphers.py
    tests/report/test_report_findings.py
    tests/test_golden.py tests/test_public_names.py
)

# Interpreters of a Python version, best first: those on the PATH, and pyenv's.
interpreters() {
    command -v "python$1" || true
    if command -v pyenv >/dev/null; then
        pyenv versions --bare | grep -E "^${1//./\\.}\.[0-9]+$" | sort -rV |
            while read -r full; do echo "$(pyenv prefix "$full")/bin/python"; done
    fi
}

# make_environment FOLDER PYTHON_VERSION [pip's options ...]: a virtual environment with the core and its tests' tools.
make_environment() {
    local folder=$1 version=$2 python
    shift 2
    for python in $(interpreters "$version"); do
        # a shim of pyenv may be there without its Python
        "$python" -c pass 2>/dev/null || continue
        rm -rf "$folder"
        "$python" -m venv "$folder" || continue
        # each compiles for itself: numba keeps kernels by its own version and Python's
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ".[test-core]" &&
            nice "$folder/bin/fedhlcr" compile --quiet && return 0
    done
    rm -rf "$folder"
    return 1
}

install_lowest() {
    local folder=$scratch/lowest
    .venv/bin/python .ci/lowest.py pyproject.toml test-core privacy >"$folder.txt"
    make_environment "$folder" 3.11 --constraint "$folder.txt"
}

# The newest Python that has wheels of all compiled dependencies; none newer than .venv's is no failure.
install_newest() {
    local version
    for version in 3.14 3.13 3.12; do
        if .venv/bin/python -c "import sys; sys.exit(sys.version_info[:2] < (${version/./, }))"; then
            break
        fi
        make_environment "$scratch/newest" "$version" --only-binary :all: --no-binary fedhlcr && return 0
        echo "Python $version is not here, or not all dependencies have wheels for it."
    done
    echo "No Python newer than .venv's can be had here, so the tests do not run on a newer one."
}

# test_core FOLDER: the tests above in that environment, or nothing if it could not be made.
test_core() {
    if [ -d "$1" ]; then
        "$1/bin/python" --version
        "$1/bin/python" -m pytest -n 2 --dist worksteal -p no:cacheprovider "${core_tests[@]}"
    else
        echo "Skipped: there is no environment $(basename "$1"); see its log."
    fi
}
