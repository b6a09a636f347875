// The program in C is one in C++ too.
#include "consumer.c"
