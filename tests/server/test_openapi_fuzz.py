"""schemathesis against the OpenAPI description: what the description allows and what it does not, by the hundred.

Bounded: so many examples for each operation and no more. A 500, an answer that the description does not have, and a
refusal of what it allows are failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.serving import live, service
from whatelse.server import Service

EXAMPLES = 15  # of each operation
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


@pytest.fixture(scope="module")
def api(opened: Service) -> Iterator[Any]:
    with live(opened) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


METHODS = ("GET", "POST", "DELETE")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("method", METHODS)
def test_every_operation_as_described(api: Any, opened: Service, method: str, mode: GenerationMode) -> None:
    operations = [found.ok() for found in api.get_all_operations() if found.ok().method.upper() == method]
    assert operations
    for operation in operations:
        cases = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=cases)
        def ask(case: Any) -> None:
            if case.path_parameters and len(str(case.path_parameters.get("key"))) % 2:
                case.path_parameters["key"] = opened.worklist.keys[7]  # half of them about a visit that is there
            case.call_and_validate(checks=CHECKS, timeout=60)

        try:
            ask()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # an operation without anything to be wrong about


def test_every_method_is_tried(api: Any) -> None:
    assert {found.ok().method.upper() for found in api.get_all_operations()} == set(METHODS)
