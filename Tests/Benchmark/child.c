// child FIFO stay|exit : the program that the benchmark has restarted.
//
// Its first instruction takes the time; then it reports 16 bytes {pid, 0, nanoseconds of CLOCK_MONOTONIC} to the FIFO,
// and stays until a signal ends it, or exits 1. `child` alone exits 0: the cheapest process there is.
#include <fcntl.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc < 3) return 0;
  struct {
    int32_t pid;
    uint32_t zero;
    uint64_t nanoseconds;
  } report = {getpid(), 0, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
  int fd = open(argv[1], O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, &report, sizeof report) != sizeof report) return 2;  // below PIPE_BUF, so never torn
  if (argv[2][0] == 'e') return 1;
  for (;;) pause();
}
