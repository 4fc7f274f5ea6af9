#include "msl/macros.h"
