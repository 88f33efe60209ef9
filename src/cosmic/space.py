"""Parameter sets: what may vary around a base design; their points, and proofs about the best of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.search.certify.certificate import write_certificate
    from cosmic.search.certify.certificate_checker import check_certificate
    from cosmic.search.certify.certifying import Certified, certify
    from cosmic.search.learning.agent_memory import Moves
    from cosmic.search.problem import Problem, Results, make_problem
    from cosmic.search.space.diagram import Indices
    from cosmic.search.space.parameter_set import ParameterSet
    from cosmic.search.space.parameters import Parameter
    from cosmic.search.space.space_answers import SpaceSize
    from cosmic.search.space.space_answers import count_points as count
    from cosmic.search.space.space_answers import sample_points as sample
    from cosmic.search.space.space_answers import schema_of_space as schema
    from cosmic.search.space.space_answers import show_space as show
    from cosmic.search.space.space_files import load_space, mapping_space
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Certified": "cosmic.search.certify.certifying",
            "Indices": "cosmic.search.space.diagram",
            "Moves": "cosmic.search.learning.agent_memory",
            "Parameter": "cosmic.search.space.parameters",
            "ParameterSet": "cosmic.search.space.parameter_set",
            "Problem": "cosmic.search.problem",
            "Results": "cosmic.search.problem",
            "SpaceSize": "cosmic.search.space.space_answers",
            "certify": "cosmic.search.certify.certifying",
            "check_certificate": "cosmic.search.certify.certificate_checker",
            "count": "cosmic.search.space.space_answers:count_points",
            "load_space": "cosmic.search.space.space_files",
            "make_problem": "cosmic.search.problem",
            "mapping_space": "cosmic.search.space.space_files",
            "sample": "cosmic.search.space.space_answers:sample_points",
            "schema": "cosmic.search.space.space_answers:schema_of_space",
            "show": "cosmic.search.space.space_answers:show_space",
            "write_certificate": "cosmic.search.certify.certificate",
        },
    )

__all__ = [
    "Certified",
    "Indices",
    "Moves",
    "Parameter",
    "ParameterSet",
    "Problem",
    "Results",
    "SpaceSize",
    "certify",
    "check_certificate",
    "count",
    "load_space",
    "make_problem",
    "mapping_space",
    "sample",
    "schema",
    "show",
    "write_certificate",
]
