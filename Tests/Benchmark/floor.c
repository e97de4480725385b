// floor COUNT PROGRAM [ARGUMENT...] : the least that a supervisor can do, as a yardstick.
//
// Keeps COUNT copies of PROGRAM running: clone with VM and VFORK, a pidfd each, epoll, and nothing else: no log, no
// count, no delay, no way to ask. TERM ends it and its children.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct slot {
  pid_t pid;
  int pidfd;
};

static char stack[65536] __attribute__((aligned(16)));
static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
static sigset_t blocked, none;

static int run(void *arguments) {
  char **argv = arguments;
  sigprocmask(SIG_SETMASK, &none, NULL);
  execve(argv[0], argv, environment);
  _exit(127);
}

static void start(struct slot *slot, int epoll, char **argv) {
  slot->pid = clone(run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, argv, &slot->pidfd);
  if (slot->pid < 0) {
    perror("floor: clone");
    exit(1);
  }
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, slot->pidfd, &event) != 0) {
    perror("floor: epoll_ctl");
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 64;
  int count = atoi(argv[1]);
  if (count < 1 || count > 100000) return 64;
  sigemptyset(&none);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  int epoll = epoll_create1(EPOLL_CLOEXEC), signals = signalfd(-1, &blocked, SFD_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[64];
  struct slot *slots = calloc((size_t)count, sizeof *slots);
  if (epoll < 0 || signals < 0 || !slots || epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &event) != 0) return 1;
  for (int i = 0; i < count; i++) start(&slots[i], epoll, argv + 2);
  for (;;) {
    int n = epoll_wait(epoll, events, 64, -1);
    if (n < 0 && errno != EINTR) return 1;
    for (int i = 0; i < n; i++) {
      struct slot *slot = events[i].data.ptr;
      if (!slot) {
        for (int k = 0; k < count; k++) kill(slots[k].pid, SIGKILL);
        for (int k = 0; k < count; k++) waitpid(slots[k].pid, NULL, 0);
        return 0;
      }
      waitpid(slot->pid, NULL, 0);
      close(slot->pidfd);  // leaves the epoll set with it
      start(slot, epoll, argv + 2);
    }
  }
}
