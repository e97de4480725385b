#define _GNU_SOURCE
#include "guardian_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

// A call that neither the kernel nor a filter knows. Of these calls none says EPERM by itself for what it is asked here.
static int is_missing(int error) { return error == ENOSYS || error == EPERM; }

int guardian_pidfd_open(pid_t pid) {
  long fd = syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0) return (int)fd;
  int error = errno;
  if (!is_missing(error)) return -error;
  // The process's directory holds on to the process as well, and is taken for a handle by what sends signals.
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", (int)pid);
  fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) return (int)fd;
  return errno == ENOENT && access("/proc/self", F_OK) == 0 ? -ESRCH : -error;
}

int guardian_is_proc_handle(int handle) {
  struct stat about;
  return fstat(handle, &about) == 0 && S_ISDIR(about.st_mode);
}

int guardian_has_pidfd_open(void) {
  long fd = syscall(SYS_pidfd_open, getpid(), 0);
  if (fd >= 0) close((int)fd);
  return fd >= 0 || !is_missing(errno);
}

int guardian_has_pidfd_signal(void) {
  return syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0) < 0 && !is_missing(errno);
}

// The number behind a handle whose process has not been reaped; 0 where it has.
static pid_t number_of(int handle) {
  char path[64], text[256];
  if (guardian_is_proc_handle(handle)) {
    // It has a file in it for as long as the process is there.
    int file = openat(handle, "stat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = 0, got;
    while (length < (ssize_t)sizeof text - 1 &&
           ((got = read(file, text + length, sizeof text - 1 - (size_t)length)) > 0 || (got < 0 && errno == EINTR)))
      if (got > 0) length += got;
    close(file);
    text[length] = 0;
    return (pid_t)strtol(text, NULL, 10);
  }
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", handle);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  pid_t number = 0;
  while (fgets(text, sizeof text, file))
    if (strncmp(text, "Pid:", 4) == 0) number = (pid_t)strtol(text + 4, NULL, 10);
  fclose(file);
  return number > 0 ? number : 0;
}

int guardian_pidfd_signal(int pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0) return 0;
  int error = errno;
  if (!is_missing(error) || guardian_has_pidfd_signal()) return -error;
  pid_t number = number_of(pidfd);
  // Between the look and the signal somebody would have to reap it, and the number come round again.
  if (number < 2) return -ESRCH;
  return kill(number, signal) < 0 ? -errno : 0;
}

int guardian_has_close_range(void) {
  return syscall(SYS_close_range, ~0u, 0u, 0) < 0 && errno == EINVAL;
}

int guardian_pipe(int *ends) { return pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0; }

int guardian_openat2(int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
  struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
  long fd;
  do {
    fd = syscall(SYS_openat2, directory, path, &how, sizeof how);
  } while (fd < 0 && errno == EINTR);
  return fd < 0 ? -errno : (int)fd;
}

int guardian_rename_new(int from, const char *name, int to, const char *new_name) {
  return syscall(SYS_renameat2, from, name, to, new_name, 1u /* RENAME_NOREPLACE */) < 0 ? -errno : 0;
}

// The C library's struct statx may be older than the kernel's; this is the part that we read.
static int look(int directory, const char *name, unsigned flags, unsigned mask, uint64_t *attributes,
                uint64_t *known_attributes, uint32_t *got, uint64_t *mount) {
  union {
    struct statx status;
    char room[256];
  } u;
  memset(&u, 0, sizeof u);
  if (syscall(SYS_statx, directory, name, flags, mask, &u) < 0) return -errno;
  if (attributes) *attributes = u.status.stx_attributes;
  if (known_attributes) *known_attributes = u.status.stx_attributes_mask;
  if (got) *got = u.status.stx_mask;
  // stx_mnt_id, at a fixed place since 5.8.
  if (mount) memcpy(mount, u.room + 0x90, sizeof *mount);
  return 0;
}

int guardian_is_mount_root(int directory, const char *name) {
  uint64_t attributes, known;
  int answer = look(directory, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH, STATX_BASIC_STATS,
                    &attributes, &known, NULL, NULL);
  if (answer < 0) return answer;
  if (!(known & STATX_ATTR_MOUNT_ROOT)) return -EOPNOTSUPP;
  return (attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

int64_t guardian_mount_id(int descriptor) {
  uint32_t got;
  uint64_t mount;
  int answer = look(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, NULL, NULL, &got, &mount);
  if (answer < 0) return answer;
  return got & STATX_MNT_ID ? (int64_t)mount : -EOPNOTSUPP;
}

int guardian_become_subreaper(void) {
  return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ? -errno : 0;
}

int guardian_is_subreaper(void) {
  int on = 0;
  return prctl(PR_GET_CHILD_SUBREAPER, &on, 0, 0, 0) < 0 ? -errno : on != 0;
}

int guardian_may_mount(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) < 0) return -errno;
  return (data[CAP_SYS_ADMIN / 32].effective >> (CAP_SYS_ADMIN % 32)) & 1;
}

uint64_t guardian_permitted_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  if (syscall(SYS_capget, &header, data) < 0) return 0;
  return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

int guardian_is_noexec(const char *path) {
  struct statvfs system;
  if (statvfs(path, &system) < 0) return -errno;
  return (system.f_flag & ST_NOEXEC) != 0;
}

pid_t guardian_thread_id(void) { return (pid_t)syscall(SYS_gettid); }

static int wait_for(idtype_t kind, pid_t pid, int flags, struct guardian_end *end) {
  siginfo_t info;
  struct rusage usage;
  long answer;
  memset(&usage, 0, sizeof usage);
  do {
    memset(&info, 0, sizeof info);
    // The library's function leaves out the last argument of the call.
    answer = syscall(SYS_waitid, kind, (id_t)pid, &info, WEXITED | flags, &usage);
  } while (answer < 0 && errno == EINTR);
  if (answer < 0) return -errno;
  if (info.si_pid == 0) return 0;
  end->pid = info.si_pid;
  end->code = info.si_code;
  end->status = info.si_status;
  end->user_us = (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
  end->system_us = (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec;
  end->peak_kib = usage.ru_maxrss;
  return 1;
}

int guardian_peek_any(int of_this_thread, struct guardian_end *end) {
  return wait_for(P_ALL, 0, WNOHANG | WNOWAIT | (of_this_thread ? __WNOTHREAD : 0), end);
}

int guardian_reap(pid_t pid, int wait, struct guardian_end *end) {
  return wait_for(P_PID, pid, wait ? 0 : WNOHANG, end);
}

// Without arguments it makes no process anywhere: a kernel that knows it finds them too short.
int guardian_has_clone3(void) { return syscall(SYS_clone3, NULL, 0) < 0 && errno == EINVAL; }

int guardian_is_local(int descriptor) {
  // nfs, smb, cifs, smb2, fuse (virtiofs included), 9p, ceph, afs, coda, ocfs2, gfs2, vmhgfs, vboxsf
  static const uint32_t shared[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x65735546, 0x01021997, 0x00c36400,
                                    0x5346414f, 0x73757245, 0x7461636f, 0x01161970, 0xbacbacbc, 0x786f4256};
  struct statfs system;
  if (fstatfs(descriptor, &system) < 0) return -errno;
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
    if ((uint32_t)system.f_type == shared[i]) return 0;
  }
  return 1;
}

int guardian_is_cgroup2(int descriptor) {
  struct statfs system;
  if (fstatfs(descriptor, &system) < 0) return -errno;
  return (uint32_t)system.f_type == 0x63677270u;
}
void guardian_hide_process(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

void guardian_use_one_arena(void) { mallopt(M_ARENA_MAX, 1); }

void guardian_trim_heap(void) { malloc_trim(0); }

// Segments that cannot be written are as their file has them, unless a debugger has put its breakpoints there.
static int let_go(struct dl_phdr_info *object, size_t size, void *page) {
  (void)size;
  for (size_t i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || segment->p_flags & PF_W) continue;
    uintptr_t from = (object->dlpi_addr + segment->p_vaddr) & ~(*(uintptr_t *)page - 1);
    uintptr_t to = object->dlpi_addr + segment->p_vaddr + segment->p_memsz;
    madvise((void *)from, to - from, MADV_DONTNEED);
  }
  return 0;
}

void guardian_trim_text(void) {
  char status[4096];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t length = read(fd, status, sizeof status - 1);
  close(fd);
  if (length <= 0) return;
  status[length] = 0;
  if (!strstr(status, "\nTracerPid:\t0\n")) return;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  dl_iterate_phdr(let_go, &page);
}
