// A service at its worst, for the tests of guardian: deaf, noisy, many and on the run.
//
//   guardian-hostile MARK ROLE...
//
//   deaf          ignores every signal that can be ignored, and so do its children
//   bomb          forks, and its children fork, as long as the kernel lets them; none of them ever ends
//   churn         forks children who fork children who end at once, so that somebody else has to bury them
//   escape        children leave the session, lose their parents and wipe their environment; N at most: escape=N
//   many=N        N children who do nothing at all
//   output[=MB/s] writes lines to standard output, as fast as it can or so many megabytes in a second
//   notify[=N]    sends N datagrams (without N: for ever) to $NOTIFY_SOCKET
//   exit          ends with status 1 after half a second, and leaves all of the others behind
//
// MARK is any word: it stands on the command line of whoever is left, so that a test can find them. Nothing here may run
// where no limit of processes holds: RLIMIT_NPROC must be below 5000, or it refuses.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void pause_for(long microseconds) {
  struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, NULL);
}

static void deaf(void) {
  for (int number = 1; number < NSIG; number++) signal(number, SIG_IGN);
}

// Tries at full tilt while it works, and ten times a second once the limit is reached: a bomb that spins there would
// measure the scheduler of the machine.
static void bomb(void) {
  for (;;) {
    pid_t child = fork();
    if (child < 0) pause_for(100000);
  }
}

static void churn(void) {
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    pid_t child = fork();
    if (child < 0) pause_for(1000);
    if (child > 0) pause_for(200);
    if (child == 0) {
      if (fork() < 0) _exit(1);
      _exit(0);  // the grandchild is an orphan from here on, and ends as well
    }
  }
}

static void escape(const char *program, const char *mark, long most) {
  for (long i = 0; i < most; i++) {
    pid_t child = fork();
    if (child < 0) { pause_for(1000); continue; }
    if (child > 0) { pause_for(500); continue; }
    setsid();
    if (fork() != 0) _exit(0);
    char *arguments[] = {(char *)program, (char *)mark, "deaf", NULL}, *nothing[] = {NULL};
    for (int descriptor = 0; descriptor < 256; descriptor++) close(descriptor);
    if (chdir("/") != 0) _exit(1);
    execve("/proc/self/exe", arguments, nothing);
    _exit(1);
  }
  for (;;) pause();
}

static void many(long count) {
  for (long i = 0; i < count; i++)
    if (fork() == 0)
      for (;;) pause();
  for (;;) pause();
}

static void output(double megabytes) {
  static char block[65536];
  for (size_t i = 0; i < sizeof block; i++) block[i] = i % 80 == 79 ? '\n' : 'x';
  double budget = 0;
  struct timespec last, now;
  clock_gettime(CLOCK_MONOTONIC, &last);
  for (;;) {
    if (megabytes > 0) {
      clock_gettime(CLOCK_MONOTONIC, &now);
      budget += megabytes * 1e6 * ((double)(now.tv_sec - last.tv_sec) + (double)(now.tv_nsec - last.tv_nsec) / 1e9);
      last = now;
      if (budget < sizeof block) { pause_for(1000); continue; }
      if (budget > 1e7) budget = 1e7;
      budget -= sizeof block;
    }
    if (write(1, block, sizeof block) < 0) pause_for(1000);
  }
}

static void notify(long count) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path == NULL || strlen(path) >= sizeof address.sun_path) _exit(1);
  strcpy(address.sun_path, path);
  int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
  if (connect(descriptor, (struct sockaddr *)&address, length) != 0) _exit(1);
  char text[64];
  for (long i = 0; count == 0 || i < count; i++) {
    int size = snprintf(text, sizeof text, "STATUS=word %ld\nWATCHDOG=1\nREADY=1", i);
    if (send(descriptor, text, (size_t)size, 0) < 0 && errno != ENOBUFS && errno != EAGAIN) pause_for(1000);
  }
}

static const char *value(const char *role, const char *name) {
  size_t length = strlen(name);
  if (strncmp(role, name, length) != 0) return NULL;
  return role[length] == '=' ? role + length + 1 : role[length] == 0 ? "" : NULL;
}

int main(int count, char **arguments) {
  struct rlimit limit;
  if (count < 3 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur > 5000 || geteuid() == 0) {
    fprintf(stderr, "guardian-hostile: only as an ordinary user, with a limit of less than 5000 processes\n");
    return 64;
  }
  const char *mark = arguments[1], *much;
  int ends = 0;
  for (int i = 2; i < count; i++)
    if (value(arguments[i], "deaf")) deaf();
  for (int i = 2; i < count; i++) {
    const char *role = arguments[i];
    if (value(role, "exit")) ends = 1;
    if (value(role, "exit") || value(role, "deaf")) continue;
    // Each role has a process of its own; where there is no room for it, there is none.
    if (fork() != 0) continue;
    if (value(role, "bomb")) bomb();
    if (value(role, "churn")) churn();
    if ((much = value(role, "escape"))) escape(arguments[0], mark, *much ? atol(much) : 64);
    if ((much = value(role, "many"))) many(atol(much));
    if ((much = value(role, "output"))) output(atof(much));
    if ((much = value(role, "notify"))) notify(atol(much));
    _exit(64);
  }
  if (ends) {
    pause_for(500000);
    return 1;
  }
  for (;;) pause();
}
