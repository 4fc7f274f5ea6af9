"""Says whether Apple's compiler is likely to accept a source: clang's verdict, address spaces, known differences."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import strict, toolchain
from .compile import check_constants, preprocessed, read_source
from .errors import CompileError
from .frontend import TokenStream, lex, translate
from .lints import lint, lint_text
from .report import Finding, Location
from .tiers import DEFAULT_TIER, find_tier

_DIAGNOSTIC = re.compile(r"(?P<path>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?P<kind>(?:fatal )?error|note): (?P<message>.*)")
# The source is known to compile: a name that only the address-space pass lacks is a gap of its declarations.
_UNDECLARED = re.compile(r"undeclared identifier|no member named|no type named|no template named|unknown type name")
# To copy a whole object to or from any address space, and to index a matrix there, is legal in MSL, where clang has
# constructors, assignments and operators of one space. So are constructors of vectors, and components of those of bool,
# which clang's own vectors lack. The types fit: the source compiles without address spaces.
_MATRIX = "(?:metal::)?(?:matrix<|(?:half|float)[234]x[234])"
_LEGAL = re.compile(
    r"no viable conversion from '|no viable overloaded '='|array initializer must be an initializer list"
    r"|no matching conversion for functional-style cast from '"
    r"|excess elements in scalar initializer"  # of a vector: float3 v(1, 2, 3)
    r"|illegal vector component name|invalid operands to binary expression \('bool __attribute__\(\(ext_vector_type"
    rf"|no matching constructor for initialization of '(?:const )?{_MATRIX}"
    rf"|no viable overloaded operator\[\] for type '.*{_MATRIX}"
)


@dataclass(frozen=True)
class CheckResult:
    """Verdict on a source; true if nothing was found.

    Attributes:
        findings: what Apple's compiler would refuse.
        notes: what could not be checked.
        kernels: names of the kernels.
        diagnostics: text of the address-space pass.
    """

    findings: list[Finding]
    notes: list[str]
    kernels: list[str]
    diagnostics: str

    def __bool__(self) -> bool:
        return not self.findings


def check(
    source: str | Path,
    *,
    name: str = "kernel.metal",
    include: Sequence[str | Path] = (),
    defines: Mapping[str, object] | None = None,
    constants: Mapping[int | str, object] | None = None,
    only: str | None = None,
    tier: str = DEFAULT_TIER,
) -> CheckResult:
    """Type-checks a source with all its kernels, then looks for what clang accepts and Apple's compiler does not.

    Nothing is built or run. Address spaces, constness and the rules of `lints.py` are checked.

    Args: as of `compile`.

    Raises:
        CompileError: clang rejects the source already.
        MslSyntaxError: the front end does not understand a declaration.
    """
    raw, path = read_source(source, name)
    text, name = preprocessed(source, name, include, defines, tier)
    cpp, rewriter = translate(text, dict(constants or {}), only)
    check_constants(constants or {}, rewriter.constants)
    flags = [*toolchain.kernel_flags(checked=False), *find_tier(tier).header_flags()]
    accepted, diagnostics = toolchain.check_syntax(cpp, "msl.h", flags)
    if not accepted:
        raise CompileError(name, diagnostics)

    findings = [
        Finding(x.kind, "", x.message, Location(x.path, x.line), None, None, 1)
        for x in [*lint_text(path, raw), *lint(TokenStream(lex(text)), name)]
    ]
    _, diagnostics = strict.check_address_spaces(text, tier)
    spaces, notes = _classified(diagnostics)
    return CheckResult([*findings, *spaces], notes, [k.name for k in rewriter.kernels], diagnostics)


def _classified(diagnostics: str) -> tuple[list[Finding], list[str]]:
    """Findings of the address-space pass, and what it does not know."""
    findings, notes = {}, {}
    for location, message in _errors(diagnostics):
        if _LEGAL.match(message):
            continue
        if _UNDECLARED.search(message):
            notes[location] = f"{location}: not checked, the address-space pass does not know it: {message}"
        elif location not in notes and location not in findings:
            findings[location] = Finding("address-space", "", message, location, None, None, 1)
    return list(findings.values()), list(notes.values())


def _errors(diagnostics: str) -> Iterator[tuple[Location, str]]:
    """Each error at the line of the user's source: one inside our headers is placed by the notes that follow it."""
    message = location = None
    for match in _DIAGNOSTIC.finditer(diagnostics):
        here = Location(match["path"], int(match["line"]))
        ours = match["path"].startswith(str(toolchain.INCLUDE))
        if match["kind"] != "note":
            if message is not None:
                yield location, message
            message, location = match["message"], here
        elif location is not None and location.path.startswith(str(toolchain.INCLUDE)) and not ours:
            location = here
    if message is not None:
        yield location, message
