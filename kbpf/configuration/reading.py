"""A configuration file as a tree that `document.decode` takes, and what in it is worth a warning.

kube-proxy's rules: unknown and repeated fields warn, null is the default, and so is zero in some fields. Called by the
command line; raises UsageError with file and line when the file cannot be understood at all.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kbpf.configuration.document import API_VERSION, KIND, ZERO_IS_DEFAULT, KubeProxyConfiguration, Section
from kbpf.errors import UsageError
from kbpf.source.document import SyntaxProblem
from kbpf.source.yaml_documents import Loader, yaml_documents

ZEROS = (0, "", "0s", "0")

Tree = dict[str, Any]


class ConfigurationFile(msgspec.Struct, frozen=True):
    """`text` is kept to see later whether the file has changed."""

    path: Path
    text: bytes
    tree: Tree = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_configuration(path: Path) -> ConfigurationFile:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror or error}") from error
    try:
        documents = [document.value() for document in yaml_documents(text)]
        warnings = [f"{path}:{words}" for words in _repeated(text)]
    except SyntaxProblem as problem:
        raise UsageError(f"{path}:{problem.line}: {problem.words}") from problem
    tree = _only_document(path, documents)
    known, unknown = without_unknown(tree, KubeProxyConfiguration)
    warnings += [f"{path}: {name}: unknown field, ignored" for name in unknown]
    return ConfigurationFile(path, text, without_unset(known), tuple(warnings))


def _only_document(path: Path, documents: list[object]) -> Tree:
    present = [document for document in documents if document is not None]
    if len(present) != 1 or not isinstance(present[0], dict):
        raise UsageError(
            f"{path}: expected one {KIND}, found {len(present)} documents" if present else f"{path}: is empty"
        )
    tree: Tree = present[0]
    for name, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        if tree.get(name) != wanted:
            raise UsageError(f"{path}: {name}: expected {wanted}, got {tree.get(name)!r}")
    return tree


def without_unknown(tree: Tree, section: type[Section], prefix: str = "") -> tuple[Tree, list[str]]:
    """The fields that `section` has, and the paths of the others."""
    types = {found.encode_name: found.type for found in msgspec.structs.fields(section)}
    known: Tree = {}
    unknown: list[str] = []
    for name, value in tree.items():
        type_ = types.get(name)
        if type_ is None:
            unknown.append(f"{prefix}{name}")
        elif isinstance(value, dict) and isinstance(type_, type) and issubclass(type_, Section):
            known[name], below = without_unknown(value, type_, f"{prefix}{name}.")
            unknown += below
        else:
            known[name] = value
    return known, unknown


def without_unset(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """Without null, and without the zeros that stand for a default."""
    kept: Tree = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        is_zero = path in ZERO_IS_DEFAULT and not isinstance(value, bool) and value in ZEROS
        if value is not None and not is_zero:
            kept[name] = without_unset(value, f"{path}.") if isinstance(value, dict) else value
    return kept


def _repeated(text: bytes) -> Iterator[str]:
    """Fields that a mapping has twice: the last one counts, which is seldom what was meant."""
    nodes = list(yaml.compose_all(text, Loader=Loader))
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                nodes.append(value)
                if key.value in names:
                    yield f"{key.start_mark.line + 1}: {key.value}: is there twice, the last one counts"
                names.add(key.value)
