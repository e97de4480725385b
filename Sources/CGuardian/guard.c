#define _GNU_SOURCE
#include "guardian_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT, SIGFPE, SIGSYS, SIGALRM};
static int program = -1;
static char *const *arguments;
static char *stack;
enum { STACK = 1 << 16 };

// execve is async-signal-safe; the other threads end with it. Should it fail, the fault does what it always does.
static void go_back(int number) {
  alarm(0);
  syscall(SYS_execveat, program, "", arguments, environ, AT_EMPTY_PATH);
  signal(number, SIG_DFL);
  raise(number);
  // Process 1 of a namespace is spared by the kernel.
  _exit(128 + number);
}

int guardian_guard_arm(int descriptor, char *const *argv, unsigned seconds) {
  program = descriptor;
  arguments = argv;
  stack = malloc(STACK);
  if (!stack) return -ENOMEM;
  // A stack that has overflown is a fault too.
  stack_t other = {.ss_sp = stack, .ss_size = STACK};
  if (sigaltstack(&other, NULL) < 0) return -errno;
  // Not blocked while it runs: the mask goes through exec, and the program to come must hear its own faults.
  struct sigaction action = {.sa_handler = go_back, .sa_flags = SA_NODEFER | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    if (sigaction(faults[i], &action, NULL) < 0) return -errno;
  alarm(seconds);
  return 0;
}

void guardian_guard_disarm(void) {
  alarm(0);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL);
  stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  free(stack);
  stack = NULL;
  program = -1;
}
