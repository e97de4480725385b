#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guardian_kernel.h"

// The first published form of the kernel's struct pidfd_info; later ones are longer, and the kernel takes either.
struct pidfd_info_v0 {
  uint64_t mask, cgroup;
  uint32_t pid, thread_group, parent;
  uint32_t ids[8];
  int32_t exit_code;
};
_Static_assert(sizeof(struct pidfd_info_v0) == 64, "PIDFD_INFO_SIZE_VER0");
#define GET_INFO _IOWR(0xFF, 11, struct pidfd_info_v0)
#define INFO_EXIT ((uint64_t)1 << 3)

int guardian_pidfd_end(int pidfd, int *wait_status) {
  struct pidfd_info_v0 info;
  memset(&info, 0, sizeof info);
  info.mask = INFO_EXIT;
  if (ioctl(pidfd, GET_INFO, &info) < 0) return -errno;
  if (!(info.mask & INFO_EXIT)) return 0;
  *wait_status = info.exit_code;
  return 1;
}

int guardian_memfd(const char *name) {
  int made = memfd_create(name, MFD_CLOEXEC);
  if (made >= 0) return made;
  int error = errno;
  if (error != ENOSYS && error != EPERM) return -error;
  static const char *const places[] = {"/dev/shm", "/run", "/tmp", "/var/tmp"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    made = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (made >= 0) return made;
  }
  return -error;
}

// Flags that there will never be: a kernel that knows the call finds them wrong.
int guardian_has_memfd(void) { return memfd_create("", ~0u) < 0 && errno == EINVAL; }

int guardian_exec(int descriptor, const char *path, char *const *argv, char *const *envp) {
  if (descriptor < 0)
    execve(path, argv, envp);
  else
    // Not fexecve: its way round by /proc needs a /proc.
    if (syscall(SYS_execveat, descriptor, "", argv, envp, AT_EMPTY_PATH) < 0 && (errno == ENOSYS || errno == EPERM)) {
      // Only where it must be.
      char link[40];
      snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
      execve(link, argv, envp);
    }
  return -errno;
}

int guardian_set_cloexec(int descriptor, int on) {
  int flags = fcntl(descriptor, F_GETFD);
  if (flags < 0) return -errno;
  return fcntl(descriptor, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC) < 0 ? -errno : 0;
}
