"""How deploy/Dockerfile has its image started, for who builds the same image without a container engine."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.cluster.programs import ProgramFailed
from tests.e2e.archive import Settings

DOCKERFILE = Path(__file__).parents[2] / "deploy/Dockerfile"
# They make the root file system, which rootfs.sh makes as well.
OF_THE_BUILD = ("ARG", "COPY", "FROM", "RUN")


def settings(text: str) -> Settings:
    """Of the last stage. Raises ProgramFailed for an instruction that would be lost."""
    found = Settings()
    for instruction, words in _last_stage(text):
        match instruction:
            case "ENTRYPOINT":
                found = replace(found, entrypoint=tuple(json.loads(words)))
            case "CMD":
                found = replace(found, command=tuple(json.loads(words)))
            case "USER":
                found = replace(found, user=words)
            case "ENV":
                found = replace(found, environment=(*found.environment, *shlex.split(words)))
            case "LABEL":
                found = replace(found, labels={**found.labels, **_pairs(words)})
            case _ if instruction not in OF_THE_BUILD:
                raise ProgramFailed(f"{instruction} of the Dockerfile is not known to the builder of archives")
    return found


def _pairs(words: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(words))
    return {name: value for name, _, value in pairs}


def _last_stage(text: str) -> Iterator[tuple[str, str]]:
    instructions = list(_instructions(text))
    last = max(number for number, (name, _) in enumerate(instructions) if name == "FROM")
    yield from instructions[last:]


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, words = line.split(maxsplit=1)
        yield name.upper(), words.strip()
