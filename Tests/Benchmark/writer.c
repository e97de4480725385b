// writer lines|blocks BYTES RESULT : writes so many bytes in lines of 100 bytes, one by one or 64 KiB at a time, and into RESULT
// the seconds from the first write to the last, and its processor time
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
  static char block[65536];
  if (argc != 4) return 64;
  for (size_t i = 0; i < sizeof block; i++) block[i] = i % 100 == 99 ? '\n' : (char)('a' + i % 26);
  size_t size = strcmp(argv[1], "lines") ? sizeof block : 100;
  long long left = atoll(argv[2]);
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  while (left > 0) {
    ssize_t n = write(1, block, left < (long long)size ? (size_t)left : size);
    if (n < 0) return 1;
    left -= n;
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  FILE *result = fopen(argv[3], "w");
  if (!result) return 1;
  fprintf(result, "%.6f %.6f\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9,
          (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
  return fclose(result) == 0 ? 0 : 1;
}
