"""A class's name means one thing in the whole library, and names are no words that only their author understands."""

from __future__ import annotations

import ast

from tests.architecture.sources import SOURCES, name, nodes, parsed

PRIVATE_WORDS = {"here", "joined", "kept", "learned", "squares", "stepped", "together", "stuff", "things"}


def classes():
    return [(definition, name(path)) for path in SOURCES for definition in nodes(parsed(path)[1], ast.ClassDef)]


def test_no_two_classes_have_one_name():
    places = {}
    for definition, place in classes():
        places.setdefault(definition.name, []).append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}, "name them by what differs"


def test_files_classes_and_fields_are_named_by_words_of_the_field():
    files = {path.stem: name(path) for path in SOURCES}
    fields = {
        f"{definition.name}.{field.target.id}": field.target.id
        for definition, _ in classes()
        for field in definition.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    names = {definition.name: definition.name.lower() for definition, _ in classes()}
    assert [file for stem, file in files.items() if stem in PRIVATE_WORDS] == []
    assert [full for full, word in {**fields, **names}.items() if word in PRIVATE_WORDS] == []
