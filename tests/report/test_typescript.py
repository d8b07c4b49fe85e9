"""The viewer's model is what the header's classes give."""

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from exhibit_a.report import header, typescript


def test_the_committed_model_is_what_the_classes_give():
    assert typescript.TARGET.read_text("utf-8") == typescript.model()


def test_every_change_of_a_class_changes_the_model(monkeypatch):
    @dataclass(frozen=True)
    class Inner:
        words: tuple[str, ...]
        truth: str | None = None
        band: tuple[tuple[float, float], ...] | None = None

    class Word(TypedDict):
        inner: list[Inner | None]
        number: NotRequired[float | None]

    monkeypatch.setattr(header, "Word", Word)
    written = typescript.model()
    inner = "  words: string[];\n  truth?: string;\n  band?: [number, number][];\n"
    assert f"export interface Inner {{\n{inner}}}" in written
    assert "  inner: (Inner | null)[];\n  number?: number | null;\n" in written


def test_panels_are_fields_of_the_header():
    whole, panels = header.Header.__annotations__, header.Panels.__annotations__
    assert set(panels) <= set(whole)
