"""Turns preprocessed MSL into C++ token by token: no parse tree, so templates and macros of any style pass through.

What changes: [[attributes]] are read and removed, kernels get a launcher, function constants become constants,
threadgroup variables become references into the arena of the threadgroup, and declarations that differ only in
address spaces (which are empty macros in the run build) are dropped.
"""

import re
from dataclasses import dataclass, field

from .constants import constant_index, constant_literal
from .instantiation import instantiated_function
from .parameters import Parameter, kernel_parameters
from .scopes import CLASS_KEYS, SPACES, Scope, class_name, classify, end_of_statement
from .stream import TokenStream
from .threadgroup import rewrite_threadgroup_variable


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
            if piece == "is_function_constant_defined":
                self._constant_query(i)
            elif piece == "{":
                scopes.append(Scope("other") if in_function else self._open_scope(statement, i))
            elif piece == "}" and scopes:
                scopes.pop()
            i += 1

    def _open_scope(self, begin: int, brace: int) -> Scope:
        kind = classify(self.stream, begin, brace)
        if kind == "namespace":
            return Scope(kind, self.stream.text(begin, brace))
        if kind != "class":
            return Scope(kind)
        self._class_serial += 1
        return Scope(kind, class_name(self.stream, begin, brace), self._class_serial)

    def _variable(self, i: int, scopes: list[Scope]) -> int | None:
        return rewrite_threadgroup_variable(self.stream, i, self._number)

    def _declaration(self, i: int, scopes: list[Scope]) -> int | None:
        """Rewrites a declaration at namespace or class scope; returns where to go on, or None to walk into it."""
        s = self.stream
        in_class = bool(scopes) and scopes[-1].kind == "class"
        if in_class and s.at(i) in ("public", "private", "protected") and s.at(s.next(i)) == ":":
            return s.next(i) + 1
        end, stop = end_of_statement(s, i, in_class)
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
            return self._kernel(i, end, stop, attributes, is_global=not scopes)
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
        if s.at(i) in (*CLASS_KEYS, "enum", "using", "typedef", "friend"):
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
                s.tokens[k].kind = "word" if makes_const else "space"
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

    def _kernel(self, i: int, end: int, stop: str, attributes, is_global: bool) -> int | None:
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
            # Beside `using namespace metal` the bare name may be a function of Metal's as well.
            tail += self._register(host, f"&::{name}" if is_global else f"&{name}", name)
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
