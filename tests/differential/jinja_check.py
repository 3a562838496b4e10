#!/usr/bin/env python3
"""Compares Quire's chat templates with jinja2, byte for byte.

  jinja_check.py [--build BUILD] [--random N] [--seed S] [--write]

1. tests/data/templates/*.jinja, each over every chat of chats.json; snippets.json. The expected texts are stored beside
   them (--write makes them anew), so that the C++ tests need no Python.
2. Random expressions and statements: wherever jinja2 gives a text, Quire must give the same.

jinja2 runs with the settings that chat templates assume. Exits 1 and prints the first differences if there are any.
"""
import argparse
import copy
import datetime
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DATA = Path(__file__).resolve().parent.parent / "data" / "templates"
NOW = [2025, 3, 9, 8, 5, 7]


class Raised(Exception):
    """raise_exception() was called."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks text for training; its body is printed."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", Generation])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(*NOW).strftime(form)
    return env


ENV = environment()
warnings.simplefilter("ignore", SyntaxWarning)  # of the Python that jinja2 makes


def by_jinja(request):
    """(text, None), or (None, what went wrong)."""
    variables = copy.deepcopy(request["variables"])  # some filters change their operand
    for key in ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token"):
        variables[key] = request[key]
    try:
        return ENV.from_string(request["template"]).render(**variables), None
    except Raised as raised:
        return None, str(raised)
    except Exception as error:  # noqa: BLE001  whatever jinja2 and Python refuse
        return None, f"({type(error).__name__}) {error}"


class Tool:
    """Quire's answers, one for each request."""

    def __init__(self, path):
        self.path = path

    def __call__(self, requests):
        lines = "".join(json.dumps({**request, "now": NOW}) + "\n" for request in requests)
        done = subprocess.run([self.path], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{self.path} ended with {done.returncode}: {done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.split("\n") if line]


def request_of(template, chat=None, variables=None):
    chat = chat or {"messages": []}
    return {
        "template": template, "messages": chat["messages"], "tools": chat.get("tools"),
        "add_generation_prompt": chat.get("add_generation_prompt", True), "bos_token": "<s>", "eos_token": "</s>",
        "variables": variables if variables is not None else chat.get("variables", {}),
    }


def corpus():
    """Triples of a label, a request, and where the expected text is stored: (file, index)."""
    chats = json.loads((DATA / "chats.json").read_text())
    for path in sorted(DATA.glob("*.jinja")):
        for index, chat in enumerate(chats):
            yield f"{path.stem}/{chat['name']}", request_of(path.read_text(), chat), (path.stem, index)
    snippets = json.loads((DATA / "snippets.json").read_text())
    for index, snippet in enumerate(snippets["snippets"]):
        yield f"snippet {index}", request_of(snippet["template"], None, snippets["variables"]), ("snippets", index)


def write_expected():
    """Stores jinja2's texts beside the templates."""
    by_file = {}
    for label, request, (stem, index) in corpus():
        text, error = by_jinja(request)
        if stem == "snippets" and error:
            sys.exit(f"{label}: jinja2 refuses {request['template']}: {error}")
        by_file.setdefault(stem, []).append({"text": text} if error is None else {"error": error})
    chats = json.loads((DATA / "chats.json").read_text())
    for stem, results in by_file.items():
        if stem == "snippets":
            continue
        rows = [json.dumps({"chat": chat["name"], **result}, ensure_ascii=False) for chat, result in zip(chats, results)]
        (DATA / f"{stem}.expected.json").write_text("[\n " + ",\n ".join(rows) + "\n]\n")
    path = DATA / "snippets.json"
    stored = json.loads(path.read_text())
    stored["snippets"] = [{"template": s["template"], "text": r["text"]}
                          for s, r in zip(stored["snippets"], by_file["snippets"])]
    sections = [' "variables": ' + json.dumps(stored["variables"], ensure_ascii=False)]
    for key in ("snippets", "errors", "syntax_errors"):
        rows = [json.dumps(row, ensure_ascii=False) for row in stored[key]]
        sections.append(f' "{key}": [\n  ' + ",\n  ".join(rows) + "\n ]")
    path.write_text("{\n" + ",\n".join(sections) + "\n}\n")


class Random:
    """Templates from a grammar; most of them make sense to Python."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *choices):
        return self.rng.choice(choices)

    def atom(self):
        return self.pick("1", "0", "-3", "2.5", "7", "'a'", "'Hello World'", "''", "'  pad '", "'é👋ß'", "true", "false", "none",
                         "missing", "nums", "d", "people", "d.b", "people[0]", "people[0].name", "[]", "{}", "[3, 1, 2]",
                         "['b', 'A']", "(1, 'x')", "{'k': 'v', 'n': 1}", "'x,y,z'", "'a\\nb'", "loop", "ns.x", "d.list")

    def filter(self, depth):
        name = self.pick("upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float",
                         "abs", "sort", "unique | list", "reverse | list", "reverse", "join", "tojson", "default('z')", "max", "min", "sum",
                         "round", "items | list", "dictsort", "string | indent(2)", "wordcount", "batch(2) | list", "count",
                         "replace('a', 'b')", "join('-')", "map('string') | list", "map('upper') | join", "select | list",
                         "reject('none') | list", "select('string') | list", "map(attribute='name') | list", "tojson(indent=2)",
                         "selectattr('age', 'gt', 28) | list", "round(1)", "d('q', true)", "sort(reverse=true)", "slice(2) | list",
                         "groupby('team')", "map('length') | list", "truncate(5)", "center(9)", "select('odd') | list",
                         "format(1)", "replace('', '.')", "last", "tojson(ensure_ascii=true)", "trim('a')")
        if self.rng.random() < 0.1:
            return f"default({self.expression(depth - 1)})"
        return name

    def method(self):
        return self.pick("strip()", "upper()", "split()", "split(',')", "split('l', 1)", "startswith('H')", "endswith('d')", "title()",
                         "replace('l', 'L')", "find('o')", "lower()", "capitalize()", "rstrip('d')", "lstrip('H')", "splitlines()",
                         "count('l')", "join(['a', 'b'])", "items()", "keys() | list", "values() | list", "get('k')", "get('a', 0)",
                         "isdigit()", "rsplit(' ', 1)", "partition(' ')", "zfill(4)", "swapcase()", "isupper()", "rfind('l')")

    def test(self):
        return self.pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable",
                         "sequence", "true", "false", "odd", "even", "divisibleby 3", "in [1, 'a']", "eq 1", "callable", "lower",
                         "sameas none", "gt 1", "ne 'a'", "upper")

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        sub = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.rng.randrange(16)
        if kind < 4:
            return f"{sub()} | {self.filter(depth)}"
        if kind == 4:
            return f"({sub()}).{self.method()}"
        if kind == 5:
            return f"{sub()} is {self.pick('', 'not ')}{self.test()}"
        if kind == 6:
            return f"({sub()} {self.pick('+', '-', '*', '/', '//', '%', '~', '~', '+')} {sub()})"
        if kind == 7:
            return f"({sub()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {sub()})"
        if kind == 8:
            return f"({sub()} {self.pick('and', 'or')} {sub()})"
        if kind == 9:
            return f"({sub()} if {sub()} else {sub()})"
        if kind == 10:
            bound = lambda: self.pick("", "0", "1", "-1", "2", "-2", "9")  # noqa: E731
            # jinja2 folds a slice of a constant number to nothing, and fails for the same number in a variable.
            sliced = self.pick("nums", "people", "d.list", "'Hello World'", f"(({sub()}) | list)", f"(({sub()}) | string)")
            return f"{sliced}[{bound()}:{bound()}{self.pick('', ':-1', ':2', ':')}]"
        if kind == 11:
            return f"({sub()})[{self.pick('0', '-1', '1', repr('a'), repr('name'), '5')}]"
        if kind == 12:
            return f"not {sub()}"
        if kind == 13:
            return f"[{sub()}, {sub()}]"
        if kind == 14:
            return f"{{'k': {sub()}, 'a': {sub()}}}"
        return f"({sub()}).{self.pick('name', 'a', 'b', 'k')}"

    def space(self):
        return self.pick("", "", " ", "\n", "  \n  ", " \n\n")

    def statement(self, depth):
        begin, end = self.pick("{%", "{%", "{%-", "{%+"), self.pick("%}", "%}", "-%}", "+%}")
        tag = lambda text: f"{begin} {text} {end}"  # noqa: E731
        body = lambda: self.template(depth - 1)  # noqa: E731
        expr = self.expression(self.rng.randrange(3))
        kind = self.rng.randrange(11)
        if kind < 3 or depth <= 0:
            return f"{self.pick('{{', '{{-')} {self.expression(self.rng.randrange(4))} {self.pick('}}', '-}}')}"
        if kind == 3:
            return tag(f"if {expr}") + body() + tag("else") + body() + tag("endif")
        if kind == 4:
            name = self.pick("x", "i", "k, v")
            condition = self.pick("", "", " if " + self.expression(1))
            inner = self.pick("", "{{ loop.index }}", "{{ loop.last }}", "{{ x }}", "{{ loop.revindex0 }}", "{{ i }}")
            return tag(f"for {name} in {expr}{condition}") + inner + body() + tag("else") + body() + tag("endfor")
        if kind == 5:
            return tag(f"set {self.pick('x', 'i', 'ns.x', 'd')} = {expr}")
        if kind == 6:
            return tag("set x") + body() + tag("endset") + "{{ x }}"
        if kind == 7:
            return tag("macro mm(p, q=" + self.expression(1) + ")") + body() + "{{ p }}{{ q }}" + tag("endmacro") + f"{{{{ mm({expr}) }}}}"
        if kind == 8:
            return tag(f"with x = {expr}") + body() + tag("endwith")
        if kind == 9:
            return tag("filter " + self.pick("upper", "trim", "replace('a', 'b')", "length")) + body() + tag("endfilter")
        return "{#" + self.pick("", "-", "+") + " note " + self.pick("", "-") + "#}"

    def template(self, depth):
        parts = []
        for _ in range(self.rng.randrange(1, 4)):
            parts += [self.pick("", "text", " ", "\n"), self.space(), self.statement(depth), self.space()]
        return "".join(parts)

    def make(self):
        if self.rng.random() < 0.5:
            return "{{ " + self.expression(self.rng.randrange(1, 5)) + " }}"
        return "{% set ns = namespace(x=1) %}" + self.template(2)


# Where jinja2 shows Python's innards, or where the reference says that Quire differs on purpose.
NOT_COMPARED = ("<generator", "<function", " object at 0x", "<built-in", "<Macro", "<LoopContext", "dict_items(", "dict_keys(",
                "dict_values(", "<list_reverseiterator", "range(", "<filter", "<map", "<bound", "<Namespace", "reverseiter")


def check(tool, cases, limit):
    """Prints differences; returns how many."""
    requests = [request for _, request in cases]
    differences = 0
    for (label, request), answer in zip(cases, tool(requests)):
        text, error = by_jinja(request)
        if error is None and any(mark in text or mark.upper() in text for mark in NOT_COMPARED):
            continue
        found = answer.get("text")
        if error is not None and found is None:
            continue
        if error is not None and label.startswith("random"):
            continue  # Quire may accept what Python refuses, such as the length of a generator
        if text != found:
            differences += 1
            if differences <= limit:
                print(f"--- {label}\n{request['template'][:1500]}\njinja2: {text if error is None else error!r}\n"
                      f"Quire:  {found if found is not None else answer['error']!r}")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--random", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        return write_expected()
    tool = Tool(str(Path(args.build) / "render_tool"))
    cases = [(label, request) for label, request, _ in corpus()]
    differences = check(tool, cases, 20)
    print(f"{len(cases)} stored templates: {differences} differ")

    snippets = json.loads((DATA / "snippets.json").read_text())
    maker = Random(args.seed)
    made = [(f"random {i}", request_of(maker.make(), None, snippets["variables"])) for i in range(args.random)]
    with_text = sum(by_jinja(request)[1] is None for _, request in made)
    random_differences = check(tool, made, 20)
    print(f"{len(made)} random templates, {with_text} of them rendered by jinja2: {random_differences} differ")
    return 1 if differences + random_differences else 0


if __name__ == "__main__":
    sys.exit(main())
