// GNUstep's headers ask for it.
#include <Block.h>
