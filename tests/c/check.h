/* Checks that end the program and print the place and the values. */
#ifndef DIPC_TESTS_CHECK_H
#define DIPC_TESTS_CHECK_H

#include <dipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                       \
  do {                                                  \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);     \
    fprintf(stderr, __VA_ARGS__);                       \
    fputc('\n', stderr);                                \
    abort();                                            \
  } while (0)

#define CHECK(condition)                                \
  do {                                                  \
    if (!(condition)) FAIL("not so: %s", #condition);   \
  } while (0)

#define CHECK_EQ(left, right)                                                              \
  do {                                                                                     \
    const long long left_ = (long long)(left), right_ = (long long)(right);                \
    if (left_ != right_) FAIL("%s is %lld, not %s (%lld)", #left, left_, #right, right_);  \
  } while (0)

#define CHECK_STR(left, right)                                                             \
  do {                                                                                     \
    const char *left_ = (left), *right_ = (right);                                         \
    if (strcmp(left_, right_) != 0) FAIL("%s is \"%s\", not \"%s\"", #left, left_, right_); \
  } while (0)

/* A call with &error_ that must return `expected`. Only a failure gives an error, with the same
 * code and, for FAILS, with `part` in its text. */
#define FAILS(expected, part, call)                                                        \
  do {                                                                                     \
    dipc_error *error_ = NULL;                                                             \
    const dipc_status status_ = (call), expected_ = (expected);                            \
    if (status_ != expected_)                                                              \
      FAIL("%s gave %s, not %s: %s", #call, dipc_status_name(status_),                     \
           dipc_status_name(expected_), dipc_error_text(error_));                          \
    CHECK((error_ != NULL) == (status_ < 0));                                              \
    CHECK_EQ(dipc_error_code(error_), status_ < 0 ? status_ : DIPC_OK);                    \
    if (strstr(dipc_error_text(error_), (part)) == NULL)                                   \
      FAIL("%s: the text \"%s\" has no \"%s\"", #call, dipc_error_text(error_), (part));   \
    dipc_error_free(error_);                                                               \
  } while (0)

#define STATUS(expected, call) FAILS(expected, "", call)
#define OK(call) STATUS(DIPC_OK, call)

/* Bytes and length of a string literal, for ticket arguments. */
#define TICKET(literal) (const uint8_t *)(literal), sizeof(literal) - 1

#endif
