"""Versions of the Metal platform: which macros a kernel sees, and so which features exist for it.

A tier is an operating system with the newest Metal Shading Language (MSL) that its compiler accepts. A host may ask
that compiler for an older language, as one does that was linked against an older SDK: `macos27:4.0`.
"""

from dataclasses import dataclass, replace

# Macros that follow the language version. The two 4-bit integer formats also need the headers of macOS 26.4.
_FEATURES = {
    310: ("__HAVE_BFLOAT__",),
    400: ("__HAVE_TENSOR__", "__HAVE_PACKED_NUMERIC__", "__HAVE_PACKED_NUMERIC_TYPE__", "__HAVE_EXECUTION_UNIT__"),
    410: (
        "__HAVE_TENSOR_MULTIPLANE__",
        "__HAVE_TENSOR_GET_STRIDE_BYTES__",
        "__HAVE_INT2B_FORMAT_TYPE__",
        "__HAVE_INT8B_FORMAT_TYPE__",
        "__HAVE_METAL_FP4_E2M1_FORMAT_TYPE__",
        "__HAVE_METAL_FP8_E4M3_FORMAT_TYPE__",
        "__HAVE_METAL_FP8_E5M2_FORMAT_TYPE__",
        "__HAVE_METAL_FP8_UE8M0_FORMAT_TYPE__",
        "__HAVE_PACKED_NUMERIC_TYPE_PACK_UNPACK__",
    ),
}


@dataclass(frozen=True)
class Tier:
    """An operating system and the version of the Metal Shading Language that the host asks its compiler for."""

    name: str
    metal_version: int
    macos: tuple[int, int]

    @property
    def has_tensor(self) -> bool:
        return self.metal_version >= 400

    @property
    def language(self) -> str:
        """The language version as one writes it: "4.1"."""
        return f"{self.metal_version // 100}.{self.metal_version // 10 % 10}"

    def defines(self) -> list[str]:
        """Preprocessor flags of the pass that expands the kernel's macros."""
        major, minor = self.macos
        target = major * 10000 + minor * 100
        macros = {
            "__METAL__": 1,
            "__METAL_MACOS__": 1,
            "__METAL_VERSION__": self.metal_version,
            "__ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__": target,
            "__ENVIRONMENT_OS_VERSION_MIN_REQUIRED__": target,
            "__APPLE__": 1,
            "__clang__": 1,
            "__cplusplus": "201703L",
        }
        for version, names in _FEATURES.items():
            if self.metal_version >= version:
                macros |= dict.fromkeys(names, 1)
        if self.has_tensor:
            if self.macos >= (26, 4):
                macros["__HAVE_INT4B_FORMAT_TYPE__"] = 1
            for since in ((26, 2), (27, 0)):
                if self.macos >= since:
                    macros[f"__TENSOR_OPS_SUPPORT_DEPLOYMENT_TARGET_{since[0]}_{since[1]}"] = 1
        return [f"-D{name}={value}" for name, value in macros.items()]

    def header_flags(self) -> list[str]:
        """Preprocessor flags of the pass that compiles: they switch the features of `include/msl/` (see `tier.h`)."""
        major, minor = self.macos
        return [
            f"-DMSL_METAL_VERSION={self.metal_version}",
            f"-DMSL_MACOS={major * 100 + minor}",
            f'-DMSL_TIER="{self.name.split(":")[0]} with MSL {self.language}"',
        ]


TIERS = {
    tier.name: tier
    for tier in (
        Tier("macos14", 310, (14, 0)),
        Tier("macos15", 320, (15, 0)),
        Tier("macos26.0", 400, (26, 0)),
        Tier("macos26.1", 400, (26, 1)),
        Tier("macos26.2", 400, (26, 2)),
        Tier("macos26.4", 400, (26, 4)),
        Tier("macos27", 410, (27, 0)),
    )
}
DEFAULT_TIER = "macos27"
LANGUAGES = {"3.1": 310, "3.2": 320, "4.0": 400, "4.1": 410}


def find_tier(name: str) -> Tier:
    """The tier of that name, "macos26.2", or with an older language than its newest, "macos27:4.0"."""
    system, _, language = name.partition(":")
    if system not in TIERS:
        raise ValueError(f"compile: expected tier to be one of {', '.join(TIERS)}, got {name!r}")
    tier = TIERS[system]
    if not language:
        return tier
    known = [text for text, version in LANGUAGES.items() if version <= tier.metal_version]
    if language not in known:
        raise ValueError(
            f"compile: expected the language of {system} to be one of {', '.join(known)}, got {language!r}"
        )
    return replace(tier, name=name, metal_version=LANGUAGES[language])
