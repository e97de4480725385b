#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "failpoint.h"
#include "guardian_faults.h"
#include "raw.h"

#ifdef GUARDIAN_FAILPOINTS
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char wanted[128];
static long nth = 1;
static int list = -1;
static atomic_long hits;
// Where a child is held, and the files by which it says so and is let go.
static char held_at[128], here[256], go_on[256];
static enum { KILL, TRAP, SKIP } deed = KILL;
static char trigger[4096];
static atomic_int skipping;

static void read_order(void) {
  const char *order = getenv("GUARDIAN_FAILPOINT");
  if (!order) return;
  if (strncmp(order, "list:", 5) == 0) {
    list = open(order + 5, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return;
  }
  if (strncmp(order, "hold:", 5) == 0) {
    const char *name = order + 5, *end = strchr(name, ':');
    if (!end || (size_t)(end - name) >= sizeof held_at || strlen(end + 1) + sizeof ".held" > sizeof here) return;
    memcpy(held_at, name, (size_t)(end - name));
    strcpy(go_on, end + 1);
    strcat(strcpy(here, end + 1), ".held");
    return;
  }
  if (strncmp(order, "trap:", 5) == 0) {
    deed = TRAP;
    order += 5;
  } else if (strncmp(order, "skip:", 5) == 0) {
    const char *path = strchr(order + 5, ':');
    if (!path || (size_t)(path - order - 5) >= sizeof wanted || strlen(path + 1) >= sizeof trigger) return;
    deed = SKIP;
    memcpy(wanted, order + 5, (size_t)(path - order - 5));
    strcpy(trigger, path + 1);
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
  if (deed == SKIP || !wanted[0] || strcmp(name, wanted) != 0) return;
  if (atomic_fetch_add(&hits, 1) + 1 == nth) {
    if (deed == TRAP) __builtin_trap();
    kill(getpid(), SIGKILL);
    // Another thread may be where the signal is taken first; this one goes no further.
    for (;;) pause();
  }
}

void guardian_read_fail_points(void) { pthread_once(&once, read_order); }

GUARDIAN_RAW void guardian_hold_point(const char *name) {
  for (size_t i = 0;; i++) {
    if (name[i] != held_at[i]) return;
    if (!name[i]) break;
  }
  long file = raw4(SYS_openat, AT_FDCWD, here, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) raw1(SYS_close, file);
  struct timespec pause = {0, 2000000};
  while (raw3(SYS_faccessat, AT_FDCWD, go_on, F_OK) != 0) raw4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, 0);
}

int guardian_fail_skip(const char *name) {
  pthread_once(&once, read_order);
  if (deed != SKIP || strcmp(name, wanted) != 0) return 0;
  if (atomic_load(&skipping)) return 1;
  // Taken by whoever comes first, so that the next process does its work.
  if (unlink(trigger) < 0) return 0;
  atomic_store(&skipping, 1);
  return 1;
}
#else
void guardian_fail_point(const char *name) {}
void guardian_read_fail_points(void) {}
GUARDIAN_RAW void guardian_hold_point(const char *name) {}
int guardian_fail_skip(const char *name) { return 0; }
#endif
