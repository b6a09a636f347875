#include "shared.h"

#include <stdatomic.h>
#include <stdlib.h>

struct shared_array {
  struct ArrowArray array;
  atomic_long users;
};

/* Behind an array that was given: its own structs for children and dictionary, which a consumer may
 * move away one by one, and a hold on the buffers. */
typedef struct {
  shared_array *shared;
  struct ArrowArray **children;
  struct ArrowArray *structs; /* children, then the dictionary */
  int64_t n_structs;
} given;

static void release(struct ArrowArray *array) {
  given *self = array->private_data;
  for (int64_t i = 0; i < self->n_structs; i++) {
    if (self->structs[i].release != NULL) self->structs[i].release(&self->structs[i]);
  }
  shared_free(self->shared);
  free(self->children);
  free(self->structs);
  free(self);
  array->release = NULL;
}

static bool give(shared_array *shared, const struct ArrowArray *from, struct ArrowArray *out) {
  const int64_t n = from->n_children;
  given *self = calloc(1, sizeof *self);
  if (self == NULL) return false;
  self->shared = shared;
  atomic_fetch_add(&shared->users, 1);
  *out = *from;
  out->release = release;
  out->private_data = self;
  self->children = calloc((size_t)n + 1, sizeof(struct ArrowArray *));
  self->structs = calloc((size_t)n + 1, sizeof(struct ArrowArray));
  bool done = self->children != NULL && self->structs != NULL;
  for (int64_t i = 0; done && i < n; i++) {
    self->children[i] = &self->structs[i];
    done = give(shared, from->children[i], &self->structs[i]);
    if (done) self->n_structs = i + 1;
  }
  if (done && from->dictionary != NULL) {
    done = give(shared, from->dictionary, &self->structs[n]);
    if (done) self->n_structs = n + 1;
    out->dictionary = &self->structs[n];
  }
  if (done) {
    out->children = n > 0 ? self->children : NULL;
  } else {
    release(out);
  }
  return done;
}

shared_array *shared_new(struct ArrowArray *array) {
  shared_array *self = malloc(sizeof *self);
  if (self == NULL) {
    array->release(array);
    return NULL;
  }
  self->array = *array;
  array->release = NULL;
  atomic_init(&self->users, 1);
  return self;
}

bool shared_give(shared_array *shared, struct ArrowArray *out) {
  return give(shared, &shared->array, out);
}

void shared_free(shared_array *shared) {
  if (shared == NULL || atomic_fetch_sub(&shared->users, 1) != 1) return;
  shared->array.release(&shared->array);
  free(shared);
}
