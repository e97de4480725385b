#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guardian_faults.h"

#ifdef GUARDIAN_FAILPOINTS
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char wanted[128];
static long nth = 1;
static int list = -1;
static atomic_long hits;

static void read_order(void) {
  const char *order = getenv("GUARDIAN_FAILPOINT");
  if (!order) return;
  if (strncmp(order, "list:", 5) == 0) {
    list = open(order + 5, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return;
  }
  const char *colon = strrchr(order, ':');
  size_t length = colon ? (size_t)(colon - order) : strlen(order);
  if (length >= sizeof wanted) return;
  memcpy(wanted, order, length);
  if (colon) nth = strtol(colon + 1, NULL, 10);
}

void guardian_fail_point(const char *name) {
  pthread_once(&once, read_order);
  if (list >= 0) {
    char line[130];
    size_t length = strnlen(name, sizeof line - 1);
    memcpy(line, name, length);
    line[length++] = '\n';
    ssize_t ignored = write(list, line, length);
    (void)ignored;
  }
  if (!wanted[0] || strcmp(name, wanted) != 0) return;
  if (atomic_fetch_add(&hits, 1) + 1 == nth) {
    kill(getpid(), SIGKILL);
    // Another thread may be where the signal is taken first; this one goes no further.
    for (;;) pause();
  }
}
#else
void guardian_fail_point(const char *name) {}
#endif
