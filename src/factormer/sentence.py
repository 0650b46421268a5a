"""Sentences that name options, which each reader gets in the spelling that is used there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from string import Formatter
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option by its keyword in Python, with the value that a sentence gives it, if any.

    Other words may stand in its place that only Python uses, such as "pass V.toarray()".
    """

    name: str
    value: str | None = None

    def __str__(self) -> str:
        if self.value in (None, "True", "False", "None"):
            return self.name if self.value is None else f"{self.name}={self.value}"
        return f"{self.name}={self.value!r}"


class Sentence(str):
    """A sentence in which options stay apart from text and from values that users gave.

    `{max_iter}` and `{missing=zeros}` in the template name options; `{given!r}` is a value if there
    is one of this name. A value that is an `Option` or a `Sentence` keeps its options apart. As
    text, options are keywords of Python: max_iter, missing='zeros'.
    """

    parts: tuple[str | Option, ...]

    def __new__(cls, template: str, /, **values: Any) -> Sentence:
        return cls._of(tuple(_parts(template, values)))

    @classmethod
    def _of(cls, parts: tuple[str | Option, ...]) -> Sentence:
        new = super().__new__(cls, "".join(map(str, parts)))
        new.parts = parts
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentence._of, (self.parts,)

    def spelled(self, spell: Callable[[Option], str]) -> str:
        """The sentence with its options in another spelling."""
        return "".join(spell(part) if isinstance(part, Option) else part for part in self.parts)


def sentence_of(error: BaseException) -> str:
    """The text of an error: the `Sentence` that it was raised with, if it was with one."""
    return error.args[0] if error.args and isinstance(error.args[0], Sentence) else str(error)


def _parts(template: str, values: dict[str, Any]) -> Iterator[str | Option]:
    for text, field, spec, conversion in Formatter().parse(template):
        yield text
        if field is None:
            continue
        value = values.get(field, field)
        if field not in values:
            name, _, setting = field.partition("=")
            yield Option(name, setting or None) if name.isidentifier() else Option(field)
        elif isinstance(value, Option):
            yield value
        elif isinstance(value, Sentence):
            yield from value.parts
        else:
            converted = Formatter().convert_field(value, conversion)  # pyright: ignore[reportArgumentType]
            yield format(converted, spec or "")
