/* What the library is: which sources it was built from. */
#include "native.h"

#ifndef COSMIC_NATIVE_DIGEST
#error "build it with `python -m cosmic.base.native.build`"
#endif

/* The digest of the sources, as `cosmic.base.native.library.source_digest` computes it. */
COSMIC_EXPORT const char *cosmic_native_digest(void) { return COSMIC_NATIVE_DIGEST; }
