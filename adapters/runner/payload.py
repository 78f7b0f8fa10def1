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
    "once",
    "status",
    "cgroup",
    "sweep",
    "rank",
    "orders",
    "talk",
    "streams",
    "runner",
    "pack",
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
"""Program of ``python3 -I -S -c``; any Python from 3.6 on runs it."""


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
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [own for each in body if (own := _plain(each))] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree))


def _plain(node: ast.AST) -> ast.AST | None:
    """A statement without what is for readers and checkers alone; None: it is all that."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return None
    if isinstance(node, ast.AnnAssign):
        value = node.value
        return None if value is None else ast.Assign(targets=[node.target], value=value)
    is_typing = isinstance(node, ast.ImportFrom) and node.module in {"__future__", "typing"}
    is_unused = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return None if is_typing or is_unused else node
