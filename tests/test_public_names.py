"""`import whatelse`: what it offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import whatelse
from whatelse.visits import Visit


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(whatelse) == sorted(whatelse.__all__) and 10 <= len(whatelse.__all__) <= 16
    for name in whatelse.__all__:
        assert getattr(whatelse, name) is not None


@pytest.mark.parametrize("name", ["AnchorSet", "NoiseRates", "NoisyOr"])
def test_names_of_version_0_2_can_still_be_imported(name: str) -> None:
    assert name not in dir(whatelse) and getattr(whatelse, name).__name__ == name


def test_import_loads_no_large_library() -> None:
    code = "import sys, whatelse, whatelse.errors; print({'numpy', 'sklearn', 'numba', 'pyarrow'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_cohort_from_a_conditions_file_and_how_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "conditions.yaml"
    file.write_text(
        "conditions:\n- {name: fever, anchors: {notes: [fever]}}\n- {name: cough, anchors: {notes: [cough]}}"
    )
    visits = [Visit(id=str(k), triage_note=note) for k, note in enumerate(["fever", "cough and fever", "fall", "pain"])]
    cohort = whatelse.build_cohort(visits, str(file), max_share=1.0)
    lines = repr(cohort).splitlines()
    assert len(lines) == 3 and lines[0] == "Cohort of 4 visits, 0 of them with labels"
    assert lines[2] == "2 conditions: fever, cough"
    html = cohort._repr_html_()
    assert html.count("<tr>") == 3 and '<td style="text-align: right">2</td>' in html
