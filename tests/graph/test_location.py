"""Whose line a node is."""

from __future__ import annotations

import functools
import sys

import loopgrad as lg
from loopgrad.graph.location import user_location


def line_of(tensor):
    return tensor._value.node.loc


def test_the_line_is_the_caller_of_the_library():
    x = lg.asarray([1.0, 2.0])
    here = sys._getframe().f_lineno + 1
    made = lg.sin(x)
    assert (line_of(made).file, line_of(made).line) == (__file__, here)


def test_what_calls_back_into_the_library_is_not_the_user():
    x = lg.asarray([1.0, 2.0])
    here = sys._getframe().f_lineno + 1
    made = functools.reduce(lg.add, [x, x, x])
    assert (line_of(made).file, line_of(made).line) == (__file__, here)


def test_modules_are_told_apart_by_their_names_not_their_files():
    """Generated code is called <string>, whoever made it."""
    where = {}
    text = "def call(f):\n    return f()\n"
    for name in ("loopgrad.made", "user.made"):
        space = {"__name__": name}
        exec(compile(text, "<string>", "exec"), space)
        where[name] = space["call"](user_location)
    assert where["loopgrad.made"].file == __file__
    assert where["user.made"].file == "<string>"


def test_a_users_module_may_be_called_as_a_folder_of_the_source():
    space = {"__name__": "graph.model"}
    exec(compile("def call(f):\n    return f()\n", "/home/user/graph/model.py", "exec"), space)
    assert space["call"](user_location).file == "/home/user/graph/model.py"
