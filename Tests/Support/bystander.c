// bystander [FILE] : stays until a signal ends it. With FILE it outlives every signal but KILL and STOP, and writes each
// one's number there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int file;

static void on_signal(int number) {
  char line[] = {'0' + number / 10, '0' + number % 10, '\n'};
  if (write(file, line, sizeof line) < 0) _exit(1);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return 1;
    for (int number = 1; number < 32; number++) signal(number, on_signal);
    setsid();
  }
  for (;;) pause();
}
