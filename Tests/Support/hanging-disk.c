// Preloaded: as long as the file that HANGING_DISK names is there, nothing that is synced comes back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void hang(void) {
  const char *path = getenv("HANGING_DISK");
  while (path && access(path, F_OK) == 0) usleep(10000);
}

int fsync(int fd) {
  hang();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  hang();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
