/* One array handed out many times. */
#ifndef DIPC_MATRIX_SHARED_H
#define DIPC_MATRIX_SHARED_H

#include <dipc.h>

typedef struct shared_array shared_array;

/* Takes an array; NULL where memory runs out, and the array is then released. */
shared_array *shared_new(struct ArrowArray *array);

/* Gives an array with the same buffers, to be released on any thread. False: memory ran out. */
bool shared_give(shared_array *shared, struct ArrowArray *out);

/* Lets it go; what was given keeps the buffers. NULL does nothing. */
void shared_free(shared_array *shared);

#endif
