#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "guardian_kernel.h"

int guardian_block_signals(void) {
  // PIPE and TTOU too: a closed standard error or a terminal in other hands is no reason to end or to stop.
  static const int numbers[] = {SIGTERM, SIGINT,  SIGHUP,   SIGCHLD, SIGUSR1, SIGUSR2,
                                SIGQUIT, SIGPIPE, SIGWINCH, SIGTTOU, SIGALRM};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&set, numbers[i]);
  // As PID 1 of a container it is asked to power off and the like by these, as by its runtime or by the kernel.
  if (getpid() == 1) {
    sigaddset(&set, SIGPWR);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) sigaddset(&set, number);
  }
  return sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -errno : 0;
}

// The kernel drops signals that PID 1 has no handler for, so the first instants count there; they wait, when blocked.
// Any other process would only be ended by them, which is what they ask for.
__attribute__((constructor)) static void block_signals_of_pid_1(void) {
  if (getpid() == 1) (void)guardian_block_signals();
}
