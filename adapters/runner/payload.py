"""Our own modules in one variable, sent to a node so that it can run the wrapper.

Code that this interpreter has compiled is sent beside its text: a node with the same Python
need not compile it again, which would be most of the time a wrapper takes to be ready.
"""

from __future__ import annotations

import ast
import binascii
import functools
import marshal
import zlib
from importlib.util import MAGIC_NUMBER
from pathlib import Path

MODULES = (
    "durable",
    "status",
    "once",
    "cgroup",
    "sweep",
    "rank",
    "orders",
    "talk",
    "streams",
    "runner",
    "node",
)
VARIABLE = "COALLOC_WRAPPER"

BOOT = (
    "import binascii, gc, marshal, os, sys, zlib, _frozen_importlib_external as e\n"
    "gc.disable()\n"  # while modules are made, none of which will go
    "new = lambda n: sys.modules.setdefault(n, type(sys)(n))\n"
    "for n in ('coalloc', 'coalloc.adapters', 'coalloc.adapters.runner'): new(n).__path__ = []\n"
    f"raw = binascii.a2b_base64(os.environ.pop('{VARIABLE}'))\n"
    "magic, rows = marshal.loads(zlib.decompress(raw))\n"
    "for name, text, code in rows:\n"
    "    m = new(name)\n"
    "    exec(marshal.loads(code) if magic == e.MAGIC_NUMBER else compile(text, name, 'exec'),"
    " m.__dict__)\n"
    "gc.enable()\n"
    "m.main()"
)
"""What ``python3 -I -S -c`` is given; any Python from 3.6 on runs it."""


@functools.cache
def payload() -> str:
    """The modules as one word."""
    rows = []
    for module in MODULES:
        text = plain(Path(__file__).parent / f"{module}.py")
        name = f"coalloc.adapters.runner.{module}"
        code = compile(text, name, "exec", dont_inherit=True, optimize=2)
        rows.append((name, text, marshal.dumps(code)))
    # Version 2 is read by every Python 3.
    raw = marshal.dumps((MAGIC_NUMBER, rows), 2)
    return binascii.b2a_base64(zlib.compress(raw, 6), newline=False).decode()


def plain(path: Path) -> str:
    """A module's text as Python 3.6 reads it: without annotations, and without docstrings."""
    tree = _Plain().visit(ast.parse(path.read_text(encoding="utf-8")))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Plain(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign(targets=[node.target], value=node.value)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "typing":  # of which annotations alone make use
            node.names = [name for name in node.names if name.name == "TYPE_CHECKING"]
        return None if node.module == "__future__" or not node.names else node
