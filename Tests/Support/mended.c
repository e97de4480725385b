// Programs with faults that a change of their surroundings hides. The first argument says which; then they live until they are
// told to end.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct item {
  char name[40];
  volatile char *data;
};

// Uses a pointer that nobody has set: what was in that memory before is where it leads.
static void uninitialised(void) {
  volatile struct item *old = malloc(sizeof *old);
  if (!old) exit(2);
  old->data = (volatile char *)(uintptr_t)0x112233445500;
  free((void *)(uintptr_t)old);
  volatile struct item *item = malloc(sizeof *item);
  if (!item) exit(2);
  volatile char *data = item->data;
  if (data) data[0] = 1;
  free((void *)(uintptr_t)item);
}

// Twenty mebibytes, a kibibyte at a time.
static int deep(int left) {
  volatile char frame[1024];
  memset((char *)frame, left, sizeof frame);
  return left > 0 ? deep(left - 1) + frame[7] : frame[3];
}

int main(int count, char **arguments) {
  const char *fault = count > 1 ? arguments[1] : "";
#ifndef FIXED
  if (!strcmp(fault, "uninitialised")) uninitialised();
  if (!strcmp(fault, "deep")) printf("%d\n", deep(20 * 1024));
#endif
  for (;;) pause();
}
