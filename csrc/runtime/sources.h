// The Metal sources of the package. Their texts are in a file that setup.py writes from metal/ when it builds: a
// library that carries its own kernels cannot meet those of another version, and has no file to look for.
#pragma once

#include <string_view>

namespace mtl4::runtime {

// The flattened text of metal/<name>/<name>.metal; throws where there is none.
std::string_view metal_source(std::string_view name);

}  // namespace mtl4::runtime
