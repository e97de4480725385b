// crasher KIND : dies in one of the ways in which programs die, after a last word on its standard error.
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Winfinite-recursion"

static volatile int zero = 0;

static __attribute__((noinline)) int overflow(volatile char *above) {
  volatile char room[4096];
  room[0] = above[0];
  return overflow(room) + room[1];
}

// A group of its own cannot be proved to be at fault, so the word comes from the allocator itself.
static void heap(void) {
  char *volatile block = malloc(24);
  char *volatile other = malloc(24);
  free(block);
  free(other);
  free(block);
}

int main(int argc, char **argv) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const char *kind = argc > 1 ? argv[1] : "";
  fprintf(stderr, "crasher %d: about to %s\n", (int)getpid(), kind);
  fflush(NULL);
  if (!strcmp(kind, "abort")) abort();
  if (!strcmp(kind, "null")) *(volatile int *)16 = 1;
  if (!strcmp(kind, "wild")) *(volatile int *)0x123456789000 = 1;
  if (!strcmp(kind, "stack")) return overflow((volatile char *)kind);
  if (!strcmp(kind, "fpe")) return (argc + 7) / zero;
#if defined(__x86_64__) || defined(__i386__)
  if (!strcmp(kind, "ill")) __asm__ volatile("ud2");
#endif
  if (!strcmp(kind, "ill")) raise(SIGILL);
  if (!strcmp(kind, "assert")) assert(!"the cart is empty");
  if (!strcmp(kind, "heap")) heap();
  if (!strcmp(kind, "exit")) return argc > 2 ? atoi(argv[2]) : 1;
  if (!strcmp(kind, "kill")) raise(SIGKILL);
  if (!strcmp(kind, "hang")) {
    for (;;) pause();
  }
  return 70;
}
