"""Turns preprocessed MSL into C++ token by token: no parse tree, so templates and macros of any style pass through.

What changes: [[attributes]] are read and removed, kernels get a launcher, function constants become constants,
threadgroup variables become references into the arena of the threadgroup, and declarations that differ only in
address spaces (which are empty macros in the run build) are dropped.
"""

import ast
import math
import operator
import re
from dataclasses import dataclass, field

from .parameters import Parameter, kernel_parameters
from .stream import MslSyntaxError, TokenStream
from .threadgroup import rewrite_threadgroup_variable

SPACES = ("device", "threadgroup", "constant", "thread")
_CLASS_KEYS = ("struct", "class", "union")


@dataclass(frozen=True)
class KernelDeclaration:
    """A kernel under the name by which the host looks it up."""

    name: str
    parameters: tuple[Parameter, ...]
    max_threads: int


@dataclass(frozen=True)
class FunctionConstant:
    name: str
    index: int
    type: str
    defined: bool


@dataclass
class Scope:
    """An open brace: "namespace", "class", "function" or "other", with the name of a class."""

    kind: str
    name: str = ""
    serial: int = 0


@dataclass
class Rewriter:
    """One pass over a translation unit. `values` maps index or name of a function constant to its value."""

    stream: TokenStream
    values: dict
    only: re.Pattern | None = None
    strict: bool = False
    kernels: list[KernelDeclaration] = field(default_factory=list)
    constants: list[FunctionConstant] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self):
        self._serial = 0
        self._class_serial = 0
        self._seen: set = set()
        self._parameter_lists: dict[str, tuple[str, tuple[Parameter, ...], int]] = {}

    def run(self) -> str:
        self._walk(0, len(self.stream), [])
        return "".join(token.text for token in self.stream.tokens)

    def _number(self) -> int:
        self._serial += 1
        return self._serial

    def _walk(self, begin: int, end: int, scopes: list[Scope]) -> None:
        s, i, statement, at_start = self.stream, begin, begin, True
        while i < end:
            if s.tokens[i].blank:
                i += 1
                continue
            in_function = any(scope.kind == "function" for scope in scopes)
            if at_start:
                statement = i
                rewrite = self._variable if in_function else self._declaration
                after = rewrite(i, scopes)
                if after is not None:
                    i = after
                    continue
            if s.is_attribute(i):
                last = s.close(i)
                s.blank(i, last + 1)
                i = last + 1
                continue
            piece = s.at(i)
            at_start = piece in ("{", "}", ";")
            if in_function and piece == "is_function_constant_defined":
                self._constant_query(i)
            elif piece == "{":
                scopes.append(Scope("other") if in_function else self._open_scope(statement, i))
            elif piece == "}" and scopes:
                scopes.pop()
            i += 1

    def _open_scope(self, begin: int, brace: int) -> Scope:
        kind = self._classify(begin, brace)
        if kind != "class":
            return Scope(kind)
        self._class_serial += 1
        return Scope(kind, self._class_name(begin, brace), self._class_serial)

    def _classify(self, begin: int, brace: int) -> str:
        words = self.stream.words(begin, brace)
        if not words:
            return "other"
        if words[0] in ("namespace", "extern") or (words[0] == "inline" and "namespace" in words):
            return "namespace"
        angle, class_key, parenthesis = 0, False, False
        for word in words:
            angle += (word == "<") - (word == ">")
            if angle == 0:
                class_key |= word in (*_CLASS_KEYS, "enum")
                parenthesis |= word == "("
        if class_key and (not parenthesis or words[0] in _CLASS_KEYS):
            return "class"
        return "function" if parenthesis else "other"

    def _class_name(self, begin: int, brace: int) -> str:
        s, k = self.stream, begin
        if s.at(k) == "template" and s.at(s.next(k)) == "<":
            k = s.close_angle(s.next(k)) + 1
        while k < brace and s.at(k) not in _CLASS_KEYS:
            k += 1
        k = s.next(k)
        while s.is_attribute(k) or s.at(k) in ("alignas", "__attribute__"):
            k = s.next(s.close(k if s.is_attribute(k) else s.next(k)))
        return s.at(k) if s.kind(k) == "word" else "?"

    def _variable(self, i: int, scopes: list[Scope]) -> int | None:
        return rewrite_threadgroup_variable(self.stream, i, self._number)

    def _end_of_statement(self, i: int, in_class: bool) -> tuple[int, str]:
        """(position, one of '{' ';' '}' or '' at the end of the text) where the declaration at i stops."""
        s = self.stream
        while i < len(s):
            if s.kind(i) == "punct":
                piece = s.at(i)
                if piece == "(":
                    i = s.close(i)
                    k = s.next(i)
                    while s.at(k) in (*SPACES, "const", "noexcept", "volatile", "override", "final"):
                        k = s.next(k)
                    if s.at(k) == ":" and in_class:
                        i = self._skip_initialisers(k)
                        continue
                elif piece in "{;}":
                    return i, piece
            i += 1
        return i, ""

    def _skip_initialisers(self, colon: int) -> int:
        """Position of the body after a constructor's member initialisers."""
        s, k = self.stream, self.stream.next(colon)
        while k < len(s):
            while k < len(s) and s.at(k) not in ("(", "{", "<"):
                k = s.next(k)
            if s.at(k) == "<":
                k = s.next(s.close_angle(k))
                continue
            k = s.next(s.close(k))
            if s.at(k) == "...":
                k = s.next(k)
            if s.at(k) != ",":
                return k
            k = s.next(k)
        return k

    def _declaration(self, i: int, scopes: list[Scope]) -> int | None:
        """Rewrites a declaration at namespace or class scope; returns where to go on, or None to walk into it."""
        s = self.stream
        in_class = bool(scopes) and scopes[-1].kind == "class"
        if in_class and s.at(i) in ("public", "private", "protected") and s.at(s.next(i)) == ":":
            return s.next(i) + 1
        end, stop = self._end_of_statement(i, in_class)
        if not stop:
            return None
        if in_class:
            return self._member(i, end, stop, scopes)

        words = s.identifiers(i, end)
        attributes = s.attributes(i, end) if s.has_attribute(i, end) else []
        names = [name for name, _ in attributes]
        explicit = bool(words) and words[0] == "template" and s.at(s.next(i)) != "<"
        if explicit and ("kernel" in words or "kernel" in names or "host_name" in names):
            return self._instantiation(i, end, attributes)
        if "function_constant" in names and stop == ";" and "(" not in s.text(i, end).split("[[")[0]:
            return self._function_constant(i, end, dict(attributes)["function_constant"])
        is_kernel = ("kernel" in words or "kernel" in names) and "(" in s.words(i, end)
        if is_kernel and stop in "{;":
            return self._kernel(i, end, stop, attributes)
        if stop == "{" and words and words[0] != "namespace" and not self.strict and any(w in SPACES for w in words):
            return self._drop_if_seen(i, end, scopes)
        return None

    def _drop_if_seen(self, i: int, brace: int, scopes: list[Scope]) -> int | None:
        """Drops an overload or specialisation that differs from an earlier one in its address spaces only."""
        s = self.stream
        head = self._normalised(i, brace)
        key = (tuple((scope.kind, scope.name) for scope in scopes), head)
        if key not in self._seen:
            self._seen.add(key)
            return None
        end = s.close(brace) + 1
        words = s.identifiers(i, brace)
        if s.at(s.next(end - 1)) == ";" and ("struct" in words or "class" in words):
            end = s.next(end - 1) + 1
        self.dropped.append(head[:90])
        s.blank(i, end)
        return end

    def _member(self, i: int, end: int, stop: str, scopes: list[Scope]) -> int | None:
        """Class scope: removes address spaces behind methods, and overloads that differ only in them."""
        s = self.stream
        if s.at(i) in (*_CLASS_KEYS, "enum", "using", "typedef", "friend"):
            return None
        head = s.function_head(i, end)
        if head is None:
            return None
        name, parenthesis = head
        constructor = s.at(name) == scopes[-1].name
        k = s.next(s.close(parenthesis))
        while s.at(k) in (*SPACES, "const", "noexcept", "volatile"):
            if s.at(k) in SPACES and not self.strict:
                makes_const = s.at(k) == "constant" and not constructor and s.at(s.prev(k)) != "const"
                s.tokens[k].text = "const " if makes_const else " "
            k = s.next(k)
        if stop not in "{;" or self.strict:
            return None
        key = (*((scope.kind, scope.name, scope.serial) for scope in scopes), self._normalised(i, k))
        if key not in self._seen:
            self._seen.add(key)
            return None
        after = (s.close(end) if stop == "{" else end) + 1
        if stop == "{" and s.at(s.next(after - 1)) == ";":
            after = s.next(after - 1) + 1
        self.dropped.append(self._normalised(i, k)[:90])
        s.blank(i, after)
        return after

    def _normalised(self, begin: int, end: int) -> str:
        """The declaration with its address spaces erased; east and west const are one thing then."""
        pieces = ["const" if w == "constant" else w for w in self.stream.words(begin, end)]
        text = " ".join(w for w in pieces if w not in ("device", "threadgroup", "thread"))
        text = re.sub(r"\bconst (const )+", "const ", text)
        text = re.sub(r"\b(\w+) const ([*&])", r"const \1 \2", text)
        return re.sub(r"\bconst (const )+", "const ", text)

    def _function_constant(self, i: int, end: int, index_text: str) -> int:
        s = self.stream
        index = constant_index(index_text)
        s.strip_attributes(i, end)
        *type_words, name = [w for w in s.words(i, end) if w not in ("constant", "static", "constexpr", "const")]
        type_name = " ".join(type_words)
        value = self.values.get(index, self.values.get(name))
        self.constants.append(FunctionConstant(name, index, type_name, value is not None))
        literal = f"{type_name}{{}}" if value is None else constant_literal(type_name, value)
        s.blank(i, end)
        s.tokens[end].text = f"static constexpr {type_name} {name} = {literal};"
        return end + 1

    def _constant_query(self, i: int) -> None:
        s = self.stream
        begin = s.next(i)
        end = s.close(begin)
        name = s.text(begin + 1, end).strip()
        defined = any(c.name == name and c.defined for c in self.constants)
        s.tokens[i].text = "true" if defined else "false"
        s.blank(begin, end + 1)

    def _kernel(self, i: int, end: int, stop: str, attributes) -> int | None:
        s = self.stream
        head = s.function_head(i, end)
        if head is None:
            return None
        name_at, parenthesis = head
        name, close = s.at(name_at), s.close(parenthesis)
        parameters = tuple(kernel_parameters(s, parenthesis + 1, close))
        limit = next((v for n, v in attributes if n == "max_total_threads_per_threadgroup"), "0")
        max_threads = constant_index(limit) if re.fullmatch(r"[\d\s+*()-]+", limit) else 0
        serial = self._number()
        table = f"msl_args_{name}_{serial}"
        self._parameter_lists[name] = (table, parameters, max_threads)
        s.strip_attributes(i, close + 1)
        for token in (*s.tokens[i:name_at], *s.tokens[close:end]):
            if token.text == "kernel":
                token.text, token.kind = " ", "space"
        if stop == ";":
            return end + 1

        last = s.close(end)
        self._walk(end + 1, last, [Scope("function")])
        if self.strict:
            return last + 1
        entries = ",".join(p.initialiser() for p in parameters) or "{0,0}"
        tail = f"static constexpr MslArg {table}[] = {{{entries}}};"
        if s.at(i) != "template":
            host = next((v.strip('" ') for n, v in attributes if n == "host_name"), name)
            tail += self._register(host, f"&{name}", name)
        s.tokens[last].text = "}" + tail
        return last + 1

    def _register(self, host: str, function: str, name: str) -> str:
        """Declares the kernel to the library, unless the caller asked for other names."""
        table, parameters, max_threads = self._parameter_lists[name]
        if self.only is not None and not self.only.search(host):
            return ";"
        self.kernels.append(KernelDeclaration(host, parameters, max_threads))
        launch = f"&msl::Launch<{function}, {table}>::run"
        return f'static msl::KernelEntry msl_kernel_{self._number()}{{"{host}", {launch}}};'

    def _instantiation(self, i: int, end: int, attributes) -> int:
        """template [[host_name("x")]] [[kernel]] decltype(f<T>) f<T>; and the form with a parameter list."""
        s = self.stream
        host = next((value for name, value in attributes if name == "host_name"), None)
        host = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', host)) if host else None
        s.strip_attributes(i, end)
        words = s.words(i, end)
        name, function = instantiated_function(words)
        s.blank(i, end)
        if host is None or name not in self._parameter_lists:
            s.tokens[end].text = ";"
        elif self.strict:
            s.tokens[end].text = f"static constexpr auto msl_use_{self._number()} = {function};"
        else:
            s.tokens[end].text = self._register(host, function, name)
        return end + 1


def instantiated_function(words: list[str]) -> tuple[str, str]:
    """(name, C++ expression of the function) named by the words of an explicit instantiation."""
    parenthesis, depth, k = None, 0, 1
    while k < len(words) and parenthesis is None:
        if words[k] == "decltype":
            k = _close_word(words, k + 1)
        elif words[k] == "(" and depth == 0:
            parenthesis = k
        depth += (words[k] == "<") - (words[k] == ">")
        k += 1
    end = len(words) if parenthesis is None else parenthesis
    name = end - 1
    if words[name] == ">":
        depth = 0
        while True:
            depth += (words[name] == ">") - (words[name] == "<")
            name -= 1
            if depth == 0:
                break
    first = name
    while first > 1 and words[first - 1] == "::":
        first -= 2
    function = "&" + " ".join(words[first:end])
    if parenthesis is not None:  # template arguments may be deduced from the parameter list
        function = f"static_cast<void (*)({' '.join(words[parenthesis + 1 : -1])})>({function})"
    return words[name], function


def _close_word(words: list[str], i: int) -> int:
    depth = 0
    for k in range(i, len(words)):
        depth += (words[k] == "(") - (words[k] == ")")
        if depth == 0:
            return k
    raise MslSyntaxError("unbalanced ( in an explicit instantiation")


_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def constant_index(text: str) -> int:
    """Value of an integer expression such as `300 + 1`."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
        raise MslSyntaxError(f"index of a function constant: expected integers and + - *, got {text!r}")

    return value(ast.parse(text.strip(), mode="eval").body)


def constant_literal(type_name: str, value) -> str:
    """C++ literal of a function constant."""
    if isinstance(value, (list, tuple)):
        return f"{type_name}({', '.join(scalar_literal(v) for v in value)})"
    return f"({type_name})({scalar_literal(value)})"


def scalar_literal(value) -> str:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, (bool, int)):
        return str(int(value)) + ("ul" if value > 2**63 - 1 else "")
    if not isinstance(value, float):
        raise TypeError(f"compile: expected function constants to be numbers or tuples of them, got {value!r}")
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "-__builtin_inff()" if value < 0 else "__builtin_inff()"
    return f"{value!r}f"
