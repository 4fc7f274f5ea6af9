"""Objective-C declarations of the part of Metal that csrc/runtime uses, made from metal-cpp (in the mlx-metal wheel).

metal-cpp wraps every Objective-C method in an inline C++ one: that gives the types, and names the selector. A class, a
method or an enumerator that is not there, or is spelled otherwise, is then an error when our sources are compiled
without a Mac.
"""

import re
from collections import defaultdict
from pathlib import Path

INTERFACES = (
    "MTLDevice", "MTLArchitecture", "MTLCompileOptions", "MTLLibrary", "MTLFunctionConstantValues", "MTLFunction",
    "MTLComputePipelineState", "MTLCommandQueue", "MTLCommandBuffer", "MTLCommandEncoder", "MTLComputeCommandEncoder",
    "MTLAllocation", "MTLResource", "MTLBuffer",
)  # fmt: skip
STRUCTS = ("MTLSize",)

# What metal-cpp does not wrap.
_BY_HAND = """
NS_INLINE MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}
extern "C" NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) NS_RETURNS_RETAINED;
extern "C" NSString* const MTLLibraryErrorDomain;
"""

_SCALARS = {
    "void": "void", "bool": "BOOL", "char": "char", "float": "float", "uint32_t": "uint32_t", "uint64_t": "uint64_t",
    "NS::UInteger": "NSUInteger", "NS::Integer": "NSInteger", "NS::Range": "NSRange",
}  # fmt: skip
_FOUNDATION = {"NS::String", "NS::Error", "NS::Array", "NS::URL"}
_WRAPPER = re.compile(
    r"_MTL_INLINE (?P<result>[^;{}()]+?)MTL::(?P<owner>\w+)::\w+\((?P<arguments>[^{}]*?)\)(?: const)?\s*"
    r"\{\s*(?:return )?(?:NS::)?Object::sendMessage(?:Safe)?<[^;]*?>\(this, "
    r"_MTL_PRIVATE_SEL\((?P<selector>\w+)\)[^;]*;\s*\}"
)
_BASE = re.compile(r"^class (\w+)\s*:\s*public NS::(?:Referencing|Copying)<\w+, (\w+)>", re.MULTILINE)


class Declarations:
    """What metal-cpp says, as text by name."""

    def __init__(self, metal_cpp: Path):
        headers = sorted((metal_cpp / "Metal").glob("MTL*.hpp"))
        self.text = "\n".join(re.sub(r"//[^\n]*", "", path.read_text()) for path in headers)
        bridge = re.compile(r'_MTL_PRIVATE_DEF_(PRO|CLS|SEL)\((\w+)(?:,\s*"([^"]+)")?\)')
        found = defaultdict(dict)
        for kind, name, spelled in bridge.findall(self.text):
            found[kind][name] = spelled or name
        self.protocols, self.classes, self.selectors = set(found["PRO"]), set(found["CLS"]), found["SEL"]
        self.bases = {f"MTL{name}": f"MTL{base}" for name, base in _BASE.findall(self.text)}
        self.enums = dict(self._enums())
        self.methods = defaultdict(dict)
        for match in _WRAPPER.finditer(self.text):
            owner = f"MTL{match['owner']}"
            if owner in INTERFACES and (method := self._method(match)):
                selector, declaration = method
                self.methods[owner][selector] = declaration

    def _enums(self):
        for kind, base, name, body in re.findall(r"_MTL_(ENUM|OPTIONS)\(([\w:]+), (\w+)\) \{(.*?)\};", self.text, re.S):
            values = {}
            for item in filter(None, (item.strip() for item in body.split(","))):
                label, _, value = item.partition("=")
                values[f"MTL{label.strip()}"] = value.strip()
            yield f"MTL{name}", (kind, _SCALARS.get(base), values)

    def _method(self, match):
        """(selector, declaration), or None where a type is not of the part that is wanted."""
        selector = self.selectors.get(match["selector"])
        arguments = [argument.strip() for argument in match["arguments"].split(",") if argument.strip()]
        split = [re.fullmatch(r"(.*?)(\w+)(\[\])?", argument) for argument in arguments]
        types = [self._type(part[1]) if part and not part[3] else None for part in split]
        result = self._type(match["result"])
        if selector is None or result is None or None in types or selector.count(":") != len(types):
            return None
        if not types:
            return selector, f"- ({result}){selector};"
        words = zip(selector.split(":"), types, split, strict=False)
        words = " ".join(f"{word}:({type_}){part[2]}" for word, type_, part in words)
        return selector, f"- ({result}){words};"

    def _type(self, cpp: str) -> str | None:
        match = re.fullmatch(r"\s*(const\b)?\s*([\w:]+)\s*(\**)\s*", cpp)
        if match is None:
            return None
        constant, base, stars = match.groups()
        if base in _SCALARS:
            return f"{'const ' if constant and stars else ''}{_SCALARS[base]}{stars}"
        if base in _FOUNDATION:
            return base.replace("NS::", "NS") + stars
        name = base.replace("MTL::", "MTL") if base.startswith("MTL::") else f"MTL{base}"
        if name in self.enums or name in STRUCTS:
            return name + stars
        if name in self.protocols and stars:
            return f"id<{name}>{stars[1:]}"
        return f"{name}{stars}" if name in self.classes and stars else None


def header(metal_cpp: Path) -> str:
    """The text of Metal/Metal.h."""
    cpp = Declarations(metal_cpp)
    lines = ["#pragma once", "#import <Foundation/Foundation.h>"]
    lines += [f"@protocol {name};" for name in sorted(cpp.protocols)]
    lines += [f"@class {name};" for name in sorted(cpp.classes)]
    for name, (kind, base, values) in cpp.enums.items():
        if base:
            body = ", ".join(f"{label} = {_value(value)}" if value else label for label, value in values.items())
            lines.append(f"typedef NS_{kind}({base}, {name}) {{ {body} }};")
    for name in STRUCTS:
        fields = re.search(rf"^struct {name[3:]}\n\{{(.*?)^\}}", cpp.text, re.MULTILINE | re.DOTALL)[1]
        fields = re.findall(r"^\s*NS::UInteger (\w+);", fields, re.MULTILINE)
        lines.append(f"typedef struct {{ NSUInteger {', '.join(fields)}; }} {name};")
    for name in INTERFACES:
        kind = "@protocol" if name in cpp.protocols else "@interface"
        base = cpp.bases.get(name, "NSObject")
        opening = f"@protocol {name} <{base}>" if kind == "@protocol" else f"@interface {name} : {base}"
        lines += [opening, *cpp.methods[name].values(), "@end"]
    return "\n".join(lines) + "\n" + _BY_HAND


def _value(text: str) -> str:
    """An enumerator's value; those that are made of others are spelled with the prefix that Objective-C gives them."""
    text = text.replace("NS::UIntegerMax", "(~(NSUInteger)0)")
    return re.sub(r"\b(?<!\()([A-Z]\w+)\b(?!\))", lambda m: m[1] if m[1] == "NSUInteger" else f"MTL{m[1]}", text)


def write(metal_cpp: Path, folder: Path) -> None:
    """Writes <folder>/Metal/Metal.h."""
    (folder / "Metal").mkdir(parents=True, exist_ok=True)
    (folder / "Metal" / "Metal.h").write_text(header(metal_cpp))


def enumerators(metal_cpp: Path) -> dict[str, int]:
    """Every enumerator of Metal with its value."""
    found = {}
    for _, base, values in Declarations(metal_cpp).enums.values():
        last = -1
        for name, text in values.items() if base else ():
            expression = _value(text).replace("(NSUInteger)", "")
            last = eval(expression, {"__builtins__": {}}, found) if text else last + 1
            found[name] = last
    return found
