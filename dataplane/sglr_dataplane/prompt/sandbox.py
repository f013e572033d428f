"""The jinja2 environment of chat templates: what transformers offers them, within a budget.

``ImmutableSandboxedEnvironment`` already keeps templates from Python's internals, from changing
what they are given and from ``range`` above 100,000. It bounds neither time nor memory: here every
loop, call, operator, list literal and output reports to the rendering's :class:`Budget`. That is
done on the syntax tree, by filters whose names cannot be written in a template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial, reduce
from typing import Any, ClassVar

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from sglr_dataplane.prompt import amplifiers
from sglr_dataplane.prompt.budget import BUDGET, Budget, budget_of
from sglr_dataplane.prompt.json_values import is_array

_FORBIDDEN_METHODS = frozenset({"maketrans", "translate", "to_bytes", "fromkeys"})
_LARGEST_NUMBER_BITS = 256
_OBJECT: type[Any] = dict
_OF_EVERY_DICT = frozenset(dir(dict))
"""What a name after a dot means before it is looked for among the keys."""
_TEXT = {str}


class TemplateRaised(TemplateError):  # noqa: N818  # not our error: the template's own refusal
    """The template called ``raise_exception``; its words are for the client."""


class _Namespace(Namespace):
    """jinja2's ``namespace``, without the text of all it holds: nobody has weighed that."""

    def __repr__(self) -> str:
        return "<Namespace>"


class Generation(Extension):
    """``{% generation %}…{% endgeneration %}``: marks the assistant's text for training."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]  # jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block's body, in a scope of its own as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates so that they keep to the budget in their context."""

    intercepted_binops = frozenset({"-", "*", "/", "//", "%", "**"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            finalize=_finalize,
        )
        names: dict[str, Any] = self.globals  # pyright: ignore[reportAssignmentType]  # of any kind
        names |= {"raise_exception": _raise_exception, "namespace": _Namespace}

        def strftime_now(form: str) -> str:
            return now().strftime(form)

        names["strftime_now"] = strftime_now
        names.pop("lipsum")  # 10**7 paragraphs on demand, and no use in a prompt
        for name in ("pprint", "random", "slice", "urlize", "wordwrap", "xmlattr"):
            self.filters.pop(name)
        self.filters |= amplifiers.FILTERS
        self.filters |= {"(loop)": _Counted, "(sum)": _sum, "(concat)": _concat}
        self.filters |= {"(built)": _built}
        self._macro_text: dict[str | None, int] = {}
        self._text_length = 0

    def budgeted(self, text: str) -> nodes.Template:
        """Return the syntax tree of *text* with its reports built in; then compile it here.

        Raises:
            TemplateSyntaxError: *text* is no template.
        """
        tree = self.parse(text)
        for macro in tree.find_all((nodes.Macro, nodes.CallBlock)):
            name = getattr(macro, "name", None)  # a call block's macro has no name
            self._macro_text[name] = max(_text_length(macro), self._macro_text.get(name, 0))
        self._text_length = max(self._text_length, _text_length(tree))
        for loop in list(tree.find_all(nodes.For)):
            over = loop.iter
            if isinstance(over, nodes.Expr):
                loop.iter = _filtered(over, "(loop)", nodes.Const(_text_length(loop)))
        _guard_expressions(tree)
        tree.set_environment(self)
        return tree

    def call(
        __self,  # noqa: N805  # jinja2's own names: keywords of the template's call may be any
        __context: Context,  # noqa: PYI063  # same
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call *__obj* for the template, if its arguments and its result stay within the budget."""
        budget = budget_of(__context)
        written = 0
        if isinstance(__obj, Macro):
            written = __self._macro_text.get(__obj.name, 0)
        elif isinstance(__obj, BlockReference):
            written = __self._text_length
        budget.step(written)
        if args or kwargs:
            budget.fits(sum(map(budget.weigh, args)) + sum(map(budget.weigh, kwargs.values())))
        args = amplifiers.checked_arguments(budget, __obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return ``obj.attribute``; of an object of JSON, as most are, without asking in vain."""
        if type(obj) is _OBJECT and attribute in obj and attribute not in _OF_EVERY_DICT:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return ``left operator right`` unless the result could be enormous."""
        budget = budget_of(context)
        budget.step()
        if isinstance(left, int) and isinstance(right, int):
            _check_numbers(operator, left, right)
        elif operator == "*":
            _check_repetition(budget, left, right)
        elif operator == "%" and isinstance(left, str):
            amplifiers.check_format(left)
            budget.make(amplifiers.formatted_size(left, budget.weigh(right)))
        elif operator == "**":
            _check_numbers(operator, 2, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return jinja2's safe ``str.format``, if *value* is one and asks for no wide fields."""
        safe = super().wrap_str_format(value)
        if safe is not None:
            amplifiers.check_format(value.__self__)
        return safe

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may use *attr*: never what makes a lot out of little."""
        if attr in _FORBIDDEN_METHODS or isinstance(obj, bytes):
            return False
        return super().is_safe_attribute(obj, attr, value)


def _raise_exception(message: Any) -> None:
    raise TemplateRaised(str(message))


def _check_numbers(operator: str, left: int, right: int) -> None:
    bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
    if bits > _LARGEST_NUMBER_BITS:
        raise SecurityError(f"numbers of more than {_LARGEST_NUMBER_BITS} bits are not computed")


def _check_repetition(budget: Budget, left: Any, right: Any) -> None:
    value, times = (right, left) if isinstance(left, int) else (left, right)
    if isinstance(value, str | list | tuple) and isinstance(times, int):
        budget.fits(budget.weigh(value) * max(times, 0))


@pass_context
class _Counted:
    """An iterable that reports each turn; as long as what it goes over, for ``loop.length``."""

    def __init__(self, context: Context, iterable: Iterable[Any], written: int) -> None:
        iter(iterable)  # a value that cannot be looped over fails here, as it would without us
        self._iterable = iterable
        self._budget: Budget = context.parent[BUDGET]
        self._written = written

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # its TypeError is what jinja2 expects

    def __iter__(self) -> Iterator[Any]:
        return self._budget.turns(self._iterable, self._written)


@pass_context
def _sum(context: Context, parts: list[Any]) -> Any:
    """Return *parts* added up from left to right; texts, which most are, all at once."""
    budget: Budget = context.parent[BUDGET]
    if set(map(type, parts)) == _TEXT:
        budget.step()
        budget.fits(sum(map(len, parts)))
        return "".join(parts)
    return reduce(partial(_added, budget), parts)


def _added(budget: Budget, left: Any, right: Any) -> Any:
    budget.step()
    if isinstance(left, int) and isinstance(right, int):
        _check_numbers("+", left, right)
    elif not isinstance(left, float):
        budget.fits(budget.weigh(left) + budget.weigh(right))
    return left + right


@pass_context
def _concat(context: Context, parts: list[Any]) -> str:
    budget = budget_of(context)
    texts = [str(part) for part in parts]
    budget.make(sum(map(len, texts)))
    return "".join(texts)


@pass_context
def _built(context: Context, value: Any) -> Any:
    budget_of(context).weigh(value)
    return value


@pass_context
def _finalize(context: Context, value: Any) -> str:
    text, budget = str(value), context.parent[BUDGET]
    budget.characters -= len(text)
    if budget.characters < 0:
        budget.refuse()
    return text


def _text_length(tree: nodes.Node) -> int:
    return sum(len(data.data) for data in tree.find_all(nodes.TemplateData))


def _guard_expressions(node: nodes.Node) -> None:
    """Wrap every sum and concatenation, and every list, tuple and dict that is not constant, inside out."""
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            _guard_expressions(value)
            setattr(node, name, _guarded(value))
        elif is_array(value):
            for at, item in enumerate(value):
                if isinstance(item, nodes.Node):
                    _guard_expressions(item)
                    value[at] = _guarded(item)


def _guarded(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.Add):
        summands = [*_summands(node.left), node.right]
        return _filtered(nodes.List(summands, lineno=node.lineno), "(sum)")
    if isinstance(node, nodes.Concat):
        return _filtered(nodes.List(node.nodes), "(concat)")
    if isinstance(node, nodes.List | nodes.Tuple):
        constant = all(isinstance(item, nodes.Const) for item in node.items)
        stored = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if constant or stored else _filtered(node, "(built)")
    if isinstance(node, nodes.Dict) and node.items:
        return _filtered(node, "(built)")
    return node


def _summands(left: nodes.Expr) -> list[nodes.Expr]:
    """Return what *left*, guarded already, adds up: itself if it is no sum."""
    match left:
        case nodes.Filter(name="(sum)", node=nodes.List(items=summands)):
            return summands
        case _:
            return [left]


def _filtered(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
