#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "guardian_faults.h"

static const int signals[] = {SIGSEGV, SIGILL, SIGTRAP, SIGBUS, SIGABRT, SIGFPE};
enum { COUNT = sizeof signals / sizeof *signals, STACK = 64 * 1024 };

static struct sigaction before[COUNT];
static int file = -1;
static uint64_t boot;

uint64_t guardian_fault_check(const struct guardian_fault *mark) {
  // FNV-1a over all that precedes `check`.
  const unsigned char *bytes = (const unsigned char *)mark;
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t i = 0; i < offsetof(struct guardian_fault, check); i++) sum = (sum ^ bytes[i]) * 0x100000001b3u;
  return sum;
}

// Runs in a process that is broken already: calls nothing that takes a lock or memory.
static void on_fault(int number, siginfo_t *info, void *context) {
  int saved = errno;
  struct timespec time = {0, 0};
  clock_gettime(CLOCK_BOOTTIME, &time);
  struct guardian_fault mark = {
      .magic = GUARDIAN_FAULT_MAGIC,
      .signal = number,
      .boot = boot,
      .nanoseconds = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec,
  };
  mark.check = guardian_fault_check(&mark);
  ssize_t ignored = write(file, &mark, sizeof mark);
  (void)ignored;

  // Whoever was here before us (the language's backtracer, or the kernel's default) takes the process down.
  for (int i = 0; i < COUNT; i++)
    if (signals[i] == number) sigaction(number, &before[i], NULL);
  errno = saved;
  // A fault of the kernel's making happens again on return, with the registers that belong to it. A trap need not, and
  // what was sent by somebody does not.
  if (info->si_code > 0 && number != SIGTRAP) return;
  raise(number);
  sigset_t this;
  sigemptyset(&this);
  sigaddset(&this, number);
  pthread_sigmask(SIG_UNBLOCK, &this, NULL);
  // Perhaps somebody's handler, who leaves the rest to the default.
  signal(number, SIG_DFL);
  raise(number);
  // Still here: as process 1 of its namespace, which the kernel spares whatever it has no handler for, except what it
  // forces on it for a fault. A container that goes on broken is worse than one that ends, so it ends with the status by
  // which its runtime would show the signal.
  _exit(128 + number);
}

int guardian_fault_install(int descriptor, uint64_t boot_hash) {
  static char *stack;
  file = descriptor;
  boot = boot_hash;
  if (!stack) {
    // Of its own, with a page below that nobody may touch: the fault may be an overflow of the ordinary one.
    char *mapping = mmap(NULL, STACK + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED) return -errno;
    if (mprotect(mapping + 4096, STACK, PROT_READ | PROT_WRITE) < 0) {
      int code = errno;
      munmap(mapping, STACK + 4096);
      return -code;
    }
    stack_t alternate = {.ss_sp = mapping + 4096, .ss_size = STACK};
    if (sigaltstack(&alternate, NULL) < 0) return -errno;
    stack = mapping;
    for (int i = 0; i < COUNT; i++) {
      struct sigaction action;
      memset(&action, 0, sizeof action);
      action.sa_sigaction = on_fault;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigfillset(&action.sa_mask);
      if (sigaction(signals[i], &action, &before[i]) < 0) return -errno;
    }
  }
  return 0;
}
