#include "guardian_arguments.h"

#include <stddef.h>

static int count;
static char **arguments;

// The C library gives constructors what it gives to main.
__attribute__((constructor)) static void keep_arguments(int argc, char **argv, char **envp) {
  (void)envp;
  count = argc;
  arguments = argv;
}

int guardian_argument_count(void) { return count; }

const char *guardian_argument(int index) { return index >= 0 && index < count ? arguments[index] : NULL; }
