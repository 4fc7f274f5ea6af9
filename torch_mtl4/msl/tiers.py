"""Versions of the Metal platform: which macros a kernel sees, and so which features exist for it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """An operating system with the newest Metal Shading Language that its compiler accepts."""

    name: str
    metal_version: int
    macos: tuple[int, int]

    @property
    def has_tensor(self) -> bool:
        return self.metal_version >= 400

    def defines(self) -> list[str]:
        """Preprocessor flags of the compiler for this tier."""
        major, minor = self.macos
        macros = {
            "__METAL__": 1,
            "__METAL_MACOS__": 1,
            "__METAL_VERSION__": self.metal_version,
            "__ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__": major * 10000 + minor * 100,
            "__APPLE__": 1,
            "__clang__": 1,
            "__cplusplus": "201703L",
            "__HAVE_BFLOAT__": 1,
        }
        if self.has_tensor:
            macros["__HAVE_TENSOR__"] = 1
        return [f"-D{name}={value}" for name, value in macros.items()]


TIERS = {
    tier.name: tier
    for tier in (
        Tier("macos15", 320, (15, 0)),
        Tier("macos26.0", 400, (26, 0)),
        Tier("macos26.1", 400, (26, 1)),
        Tier("macos26.2", 400, (26, 2)),
        Tier("macos26.4", 400, (26, 4)),
        Tier("macos27", 410, (27, 0)),
    )
}
DEFAULT_TIER = "macos27"


def find_tier(name: str) -> Tier:
    if name not in TIERS:
        raise ValueError(f"compile: expected tier to be one of {', '.join(TIERS)}, got {name!r}")
    return TIERS[name]
