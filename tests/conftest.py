"""What all tests share: an Airflow home of their own, set before anything imports Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("draftmill", deadline=None)  # how long an example takes says something of the machine, not of the code
settings.load_profile("draftmill")

_HOME = tempfile.mkdtemp(prefix="draftmill-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ["AIRFLOW_HOME"] = _HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "false"
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{_HOME}/airflow.db"
_FOR_TESTS = {"DRAFTMILL_SGLANG_PYTHON", "DRAFTMILL_TEST_SSH", "DRAFTMILL_TRAINERS_PYTHON", "DRAFTMILL_TRANSFORMERS4_PYTHON"}
for _name in [name for name in os.environ if name.startswith("DRAFTMILL_") and name not in _FOR_TESTS]:
    del os.environ[_name]  # what the caller's own deployment is told is not for the tests
