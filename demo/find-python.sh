#!/bin/sh
# Prints the Python that the environments are made with: the first argument if there is one, else the first fit one on PATH.
# Fit is 3.11 or 3.12 (what Airflow's lock covers), with venv and pip. A candidate is run, not only found: version managers
# leave launchers on PATH for versions that are not there.
fit='import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))'
for candidate in ${1:-python3.11 python3.12 python3}; do
    path=$(command -v "$candidate") || continue
    if "$path" -c "$fit" 2>/dev/null; then
        echo "$path"
        exit 0
    fi
done
echo "No Python 3.11 or 3.12 with venv and pip was found${1:+ at $1}; install one (on Debian: python3.11 and python3.11-venv), or name it: make PYTHON=/path/to/python3.11" >&2
exit 1
