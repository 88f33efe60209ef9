"""What commands on recipes, the live page, schemas and completion print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from cosmic.base.json_types import AnyOf, Count, Keywords, NonNegative, PositiveCount, described, one_of


class RecipeStepRow(TypedDict):
    """One step of a recipe."""

    id: str
    """Name of the step."""
    command: str
    """The command as it is typed."""
    key: str
    """Digest of all that it depends on."""
    output: Mapping[str, Any]
    """What the command printed with --json."""


class RecipeRunRow(TypedDict):
    """One combination of the grid."""

    variables: Mapping[str, Any]
    """Variables of the row."""
    status: Literal["ok", "failed", "unexpected"]
    """As above."""
    error: str
    """What went wrong; empty if nothing did."""
    steps: Sequence[RecipeStepRow]
    """Its steps."""
    results: Mapping[str, Any]
    """Results by name."""


class RecipeRunAnswer(TypedDict):
    """What a recipe gave."""

    run: str
    """Name of the run in the store."""
    name: str
    """Name of the recipe."""
    tags: Sequence[str]
    """Tags of the recipe."""
    status: Literal["ok", "failed", "unexpected"]
    """ok, failed (a step), or unexpected (a condition of expect does not hold)."""
    version: str
    """Version of COSMIC."""
    sources: str
    """Digest of the sources that results follow from."""
    began: str
    """When the run began (UTC)."""
    elapsed_s: NonNegative
    """Seconds that it took."""
    executed: Count
    """Steps that were run."""
    cached: Count
    """Steps whose results were known."""
    rows: Sequence[RecipeRunRow]
    """A row for each combination of the grid."""


class StoredRunRow(TypedDict):
    """A run of the store."""

    run: str
    """Name of the run."""
    name: str
    """Name of the recipe."""
    tags: Sequence[str]
    """Its tags."""
    status: Literal["ok", "failed", "unexpected"]
    """How it ended."""
    began: str
    """When it began (UTC)."""
    executed: Count
    """Steps that were run."""
    cached: Count
    """Steps whose results were known."""


class ReplayedValue(TypedDict):
    """A value that came out otherwise."""

    where: str
    """Place of the value."""
    before: Any
    """What it was."""
    now: Any
    """What it is."""


class RecipeReplayAnswer(TypedDict):
    """With --replay: what came out otherwise."""

    run: str
    """The run that was repeated."""
    same: bool
    """Whether everything came out again."""
    differences: Sequence[ReplayedValue]
    """Values that differ by more than 1e-9."""
    sources_before: str
    """Digest of the sources then."""
    sources_now: str
    """Digest of the sources now."""


RunAnswer = Annotated[
    AnyOf[RecipeRunAnswer, Sequence[StoredRunRow], RecipeReplayAnswer],
    described("What a recipe gave; with --list, the runs of the store; with --replay, a comparison."),
]


class UiAnswer(TypedDict):
    """The address of the live page, printed when it can be opened; the command keeps running."""

    url: str
    """The address to open, with a token that works once."""
    port: Annotated[PositiveCount, Keywords(maximum=65535)]
    """The port."""
    directory: str
    """The directory that holds the studies."""


class PublishedCommandRow(TypedDict):
    """A command."""

    command: str
    """The command, such as 'space count'."""
    prints: str
    """What its --json prints."""


_PublishedSchemaKeys = TypedDict(
    "_PublishedSchemaKeys",
    {
        "$schema": Annotated[
            Literal["https://json-schema.org/draft/2020-12/schema"], described("The dialect of JSON Schema.")
        ]
    },
)


class PublishedSchema(_PublishedSchemaKeys):
    """A schema."""

    title: str
    """The command."""
    description: str
    """What it prints."""


SchemaAnswer = Annotated[
    AnyOf[Sequence[PublishedCommandRow], PublishedSchema],
    described("Without a command, the commands that have a schema; with one, its JSON Schema."),
]


class CompletionAnswer(TypedDict):
    """The completion script."""

    shell: Annotated[str, one_of("bash", "zsh", "fish")]
    """The shell."""
    script: str
    """Text of the script."""
