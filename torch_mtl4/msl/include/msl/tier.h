// The operating system and language version that a kernel is compiled for. A name that they do not have is declared
// nevertheless, as unavailable, so that its use is refused with the tier that has it.
#pragma once
#ifndef MSL_METAL_VERSION
#define MSL_METAL_VERSION 410
#define MSL_MACOS 2700
#define MSL_TIER "macos27 with MSL 4.1"
#endif

#define MSL_HAS(version, macos) (MSL_METAL_VERSION >= (version) && MSL_MACOS >= (macos))
#define MSL_ABSENT(needs) __attribute__((unavailable("needs " needs "; the tier is " MSL_TIER)))

#if MSL_HAS(320, 1500)
#define MSL_SINCE_15
#else
#define MSL_SINCE_15 MSL_ABSENT("MSL 3.2 (macOS 15)")
#endif
#if MSL_HAS(400, 2600)
#define MSL_SINCE_26
#else
#define MSL_SINCE_26 MSL_ABSENT("MSL 4.0 (macOS 26.0)")
#endif
#if MSL_HAS(400, 2604)
#define MSL_SINCE_26_4
#else
#define MSL_SINCE_26_4 MSL_ABSENT("MSL 4.0 and macOS 26.4")
#endif
#if MSL_HAS(410, 2700)
#define MSL_SINCE_27
#else
#define MSL_SINCE_27 MSL_ABSENT("MSL 4.1 (macOS 27.0)")
#endif
