"""Optional libraries: agents start without them being imported, and say what is missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cosmic.accuracy.suites import small_task
from cosmic.base.errors import CosmicError
from cosmic.search.agent import start_agent
from cosmic.search.optional_libraries import how_to_install

NEEDED = {"bayesian": "scikit-learn", "surrogate": "scikit-learn", "tpe": "optuna", "cmaes": "cmaes"}


@pytest.mark.parametrize("name", NEEDED)
def test_an_agent_whose_library_is_missing_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [*sys.modules, "sklearn", "optuna", "cmaes"]:
        if module.partition(".")[0] in ("sklearn", "optuna", "cmaes"):
            monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CosmicError) as caught:
        start_agent(name, small_task(), np.random.default_rng(0))
    install = how_to_install("search", NEEDED[name])
    assert str(caught.value) == f"agent = '{name}': needs {NEEDED[name]}; {install}"


def test_knowing_the_agents_imports_nothing_heavy() -> None:
    code = (
        "import sys; from cosmic.search.agent import agents; len(agents);"
        "print(sorted({'sklearn', 'scipy', 'optuna', 'cmaes', 'gymnasium', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
