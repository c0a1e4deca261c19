"""`lg.export`: a traced function as data, which other processes and later ones call without its Python code.

What is kept is the function's graph as text (`graph.text`), the trees of its arguments and results, and the arrays that
it reads from around it. A call checks its arguments and copies the graph into the program that it is part of, so an
exported function is compiled, differentiated, batched and called in loops as any other; nothing in a file is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.build import current_scope, inline, trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.python_numbers import require
from loopgrad.graph.text import parse_graph, print_graph
from loopgrad.graph.types import TensorType
from loopgrad.graph.verify import verify
from loopgrad.lazy.files.saved_trees import FileFormatError, Path, load, save
from loopgrad.lazy.loops.traced_functions import as_result
from loopgrad.lazy.tensor.core import as_tensor, wrap
from loopgrad.lazy.tensor.errors import StaticArgumentError, StructureError
from loopgrad.lazy.tensor.evaluation import arrays_of
from loopgrad.lazy.tensor.ongoing_derivations import derivation
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, is_dynamic, show, unflatten
from loopgrad.lazy.transforms.compile import compile
from loopgrad.lazy.transforms.compiled_arguments import require_results, writes
from loopgrad.lazy.transforms.shape_evaluation import described, stand_in, stands_for_array

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "Exported export load_exported"
FORMAT: Final = "loopgrad function 2"


class Exported:
    """A function without its Python code, for arguments of fixed shapes and dtypes: what `lg.export` makes.

    Call it like the function. It can be pickled, and saved to a file that `lg.load_exported` reads.
    """

    __slots__ = ("__weakref__", "_captured", "_compiled", "_count", "_graph", "_inputs", "_parts", "_structure")

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._graph = parse_graph(parts["graph"])
        verify(self._graph)
        self._structure = flatten(parts["arguments"])[1]
        self._captured: list[Tensor] = [as_tensor(x) for x in parts["captured"]]
        self._parts = {**parts, "captured": self._captured}
        types = [t for t in self._graph.input_types if isinstance(t, TensorType)]  # no stacks cross a function's ends
        count = self._structure.num_leaves - len(parts["static"])
        self._inputs = types[:count]
        self._count = flatten(parts["results"])[1].num_leaves
        known = [x._value.type for x in self._captured]
        if types[count:] != known or self._count + len(self._parts["required"]) != len(self._graph.outputs):
            raise ValueError(f"a graph of inputs {types} for {count} arguments and captured arrays of {known}")
        self._compiled = compile(self._inlined)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, as the function would give them: computed, unless the call is part of a larger program.

        Raises ShapeError and DTypeError for arguments that aren't of the shapes and dtypes it was exported for,
        StructureError for another tree of them, StaticArgumentError for another value of what is no array.
        """
        return self._compiled(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Exported], tuple[Mapping[str, Any]]]:
        return Exported, ({**self._parts, "captured": arrays_of(self._captured)},)

    def __repr__(self) -> str:
        return f"<exported function of ({', '.join(map(str, self._inputs))}): {len(self._graph.nodes)} operations>"

    def save(self, path: Path) -> None:
        """Write it to a file, as `lg.save` writes a tree. Raises OSError where the file can't be written.

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "step")
        >>> lg.export(lambda x: 2.0 * x, lg.ones(3)).save(path)
        >>> lg.load_exported(path)(lg.asarray([1.0, 2.0, 3.0]))
        Tensor([2., 4., 6.], dtype=float64)
        """
        save(path, {"form": FORMAT, **self._parts})

    def text(self) -> str:
        """The graph, with shapes, dtypes, and the lines it was written in.

        >>> lg.export(lambda x: 2.0 * x, lg.ones(3)).text().count("mul")
        1
        """
        return str(self._parts["graph"])

    def _inlined(self, *args: Any, **kwargs: Any) -> Tree:
        leaves, structure = flatten((args, kwargs))
        if structure != self._structure:
            expected = f"arguments of the structure {show(self._structure)}"
            fix = "pass them as when it was exported"
            raise StructureError(explained("an exported function", expected, show(structure), fix))
        static = dict(self._parts["static"])
        for i, x in static.items():
            if type(leaves[i]) is not type(x) or leaves[i] != x:
                expected = f"{x!r} for argument {i}, as when it was exported"
                raise StaticArgumentError(
                    explained("an exported function", expected, repr(leaves[i]), "export it again for other values")
                )
        given = [x for i, x in enumerate(leaves) if i not in static]
        values = [_input(i, x, t) for i, (x, t) in enumerate(zip(given, self._inputs, strict=True))]
        outputs = inline(self._graph, [*values, *[x._value for x in self._captured]])
        for number, (low, high) in zip(outputs[self._count :], self._parts["required"], strict=True):
            require(number, low, high)
        results = [wrap(v, weak) for v, weak in zip(outputs[: self._count], self._parts["weak"], strict=True)]
        return unflatten(flatten(self._parts["results"])[1], results)


def _input(position: int, x: Any, type: TensorType) -> Value:
    """An argument as an input of this type: a Python number becomes one where it can."""
    tensor = as_tensor(x)
    value = tensor._value
    got = value.type
    expected = f"{type} for input {position}, as it was exported"
    if value.shape != type.shape:
        raise ShapeError(explained("an exported function", expected, got, "export it again for this shape"))
    if value.dtype is type.dtype:
        return value
    weaker = "biufc".index(value.dtype.kind) <= "biufc".index(type.dtype.kind)
    if not (tensor._weak and weaker) or (type.dtype.kind == "u" and value.dtype.kind == "i"):
        raise DTypeError(explained("an exported function", expected, got, "convert it with .astype"))
    if type.dtype.is_integer:
        raise DTypeError(explained("an exported function", expected, "a Python int", f"pass lg.{type.dtype.name}(...)"))
    return as_tensor(tensor, type.dtype)._value


def export(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Exported:
    """`fun` for arguments of these shapes and dtypes, as data: an `Exported`, which is called like `fun`.

    Arguments are trees of arrays, numbers, or whatever has a shape and a dtype (`lg.ShapeDtypeStruct`); their elements
    don't matter. Other leaves, as strings, are part of what is exported. Tensors that `fun` reads from around it are
    copied into it. It runs on every device, in other processes (it can be pickled), and is transformed as `fun` is
    (`lg.grad`, `lg.vmap`, `lg.compile`, loops). After JAX's `jax.export`.

    Raises what `fun` raises when it is traced, ValueError where it writes to its arguments.

    >>> x = lg.ShapeDtypeStruct((2,), lg.float64)
    >>> step = lg.export(lambda x, n: lg.fori_loop(0, n, lambda i, v: v * 0.5, x), x, 1)
    >>> step(lg.asarray([8.0, 16.0]), 3)
    Tensor([1., 2.], dtype=float64)
    >>> lg.grad(lambda x: lg.sum(step(x, 2)))(lg.ones(2))
    Tensor([0.25, 0.25], dtype=float64)
    """
    check_function("export", fun)
    leaves, structure = flatten((args, kwargs))
    moving = [i for i, x in enumerate(leaves) if is_dynamic(x) or stands_for_array(x)]
    found: dict[str, Any] = {}

    def run(*values: Value) -> list[Value]:
        arguments = list(leaves)
        given = [stand_in(leaves[i], v) for i, v in zip(moving, values, strict=True)]
        for i, x in zip(moving, given, strict=True):
            arguments[i] = x
        positional, named = unflatten(structure, arguments)
        results, form = flatten(fun(*positional, **named))
        if writes([leaves[i] for i in moving], given, values):
            expected = "a function that writes to none of its arguments"
            raise ValueError(explained("export", expected, "one that does", "return the new elements instead"))
        tensors = [as_result("export", x) for x in results]
        require_results(tensors)
        required = current_scope().required  # type: ignore[union-attr]  # the function is being traced
        found["results"], found["weak"] = unflatten(form, range(len(results))), [t._weak for t in tensors]
        found["required"] = list(required.values())
        return [*(t._value for t in tensors), *required]  # numbers that callers check come behind the results

    with derivation():
        graph, captures = trace(run, [described(leaves[i]) for i in moving])
    parts = {
        "graph": print_graph(graph),
        "arguments": unflatten(structure, range(len(leaves))),
        "static": [(i, x) for i, x in enumerate(leaves) if i not in moving],
        "captured": arrays_of([wrap(v) for v in captures]),
        **found,
    }
    return Exported(parts)


def load_exported(path: Path, classes: Iterable[type] = ()) -> Exported:
    """The function that `Exported.save` wrote to a file.

    `classes` are those of its arguments and results, as for `lg.load`. Raises FileFormatError for another file, and
    what `lg.load` raises. `Exported.save` has an example.

    >>> lg.load_exported("/nowhere/step")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/step'
    """
    tree = load(path, classes=classes)
    try:
        if tree.pop("form") != FORMAT:
            raise ValueError(f"it isn't of the form {FORMAT!r}")
        return Exported(tree)
    except Exception as error:  # whatever becomes of a tree that isn't one of ours
        got = f"{str(path)!r}: {type(error).__name__}: {error}"
        fix = "export the function and save it again"
        raise FileFormatError(explained("load_exported", "a file that Exported.save has written", got, fix)) from error
