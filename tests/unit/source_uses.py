"""What a Python source names: the reader behind the architecture test."""

import ast
import dataclasses
from collections.abc import Iterator

LOADERS = ("importlib.import_module", "import_module", "__import__")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """A dotted name that a source imports, or reaches through an import.

    Parameters
    ----------
    name
        The full dotted name, such as ``coalloc.model.job`` or ``os.fork``; of a call to a
        built-in function, ``open()``.
    line
        Where it stands, from 1.
    deferred
        Whether loading the module does not evaluate it: it stands in a function's body, or under
        ``if TYPE_CHECKING:``.
    imported
        Whether it is an import.
    """

    name: str
    line: int
    deferred: bool
    imported: bool


def read_uses(source: str, package: str = "") -> list[Use]:
    """Return what a source names, in the order of the file.

    Parameters
    ----------
    source
        The text of a module.
    package
        The dotted name of the package that holds the module; resolves relative imports.

    Notes
    -----
    A name bound by an import stands for the import's target in the whole file, without scopes. A
    literal argument of ``importlib.import_module`` or ``__import__`` is an import; a computed one
    is beyond what reading a source can tell.
    """
    tree = ast.parse(source)
    bound = {
        alias: target
        for node in ast.walk(tree)
        for _, alias, target in _imports(node, package)
        if alias
    }
    reader = _Reader(package, bound)
    reader.visit(tree)
    return sorted(reader.uses, key=lambda use: use.line)


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (imported name, name it binds, what that name stands for) of an import statement."""
    if isinstance(node, ast.Import):
        for item in node.names:
            first = item.name.partition(".")[0]
            yield item.name, item.asname or first, item.name if item.asname else first
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            parents = parents[: len(parents) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        for item in node.names:
            name = f"{base}.{item.name}"
            yield name, None if item.name == "*" else item.asname or item.name, name


class _Reader(ast.NodeVisitor):
    def __init__(self, package: str, bound: dict[str, str]) -> None:
        self.uses: list[Use] = []
        self._package = package
        self._bound = bound
        self._deferred = 0

    def visit_Import(self, node: ast.Import) -> None:
        self._add_imports(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._add_imports(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._visit_deferred([node.body])

    def visit_If(self, node: ast.If) -> None:
        if self._dotted(node.test) == "typing.TYPE_CHECKING":
            self._visit_deferred(node.body)
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._add_dotted(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._add_dotted(node):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in self._bound:
            self._add(f"{function.id}()", node.lineno)
        name = self._dotted(function) or (function.id if isinstance(function, ast.Name) else "")
        if name in LOADERS and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self._add(argument.value, node.lineno, imported=True)
        if self._dotted(function) and not node.args and not node.keywords:
            self._add(f"{self._dotted(function)}()", node.lineno)
        self.generic_visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # Decorators, defaults and annotations are evaluated with the module; the body is not.
        for part in (*node.decorator_list, node.args, node.returns):
            if part:
                self.visit(part)
        self._visit_deferred(node.body)

    def _visit_deferred(self, nodes: list[ast.stmt] | list[ast.expr]) -> None:
        self._deferred += 1
        for node in nodes:
            self.visit(node)
        self._deferred -= 1

    def _add_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, _, _ in _imports(node, self._package):
            self._add(name, node.lineno, imported=True)

    def _add_dotted(self, node: ast.Name | ast.Attribute) -> bool:
        name = self._dotted(node)
        if name:
            self._add(name, node.lineno)
        return bool(name)

    def _add(self, name: str, line: int, *, imported: bool = False) -> None:
        deferred = self._deferred > 0
        self.uses.append(Use(name=name, line=line, deferred=deferred, imported=imported))

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full name of a chain of attributes on an imported name."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self._bound:
            return ".".join([self._bound[node.id], *reversed(attributes)])
        return None
