// Preloaded: makes calls of the C library behave as on a bad day. BAD_DAY names what, several separated by commas:
//
//   short    reads and writes of files, pipes and streams move one byte at a time (509 of SQLite's, by the 64-bit calls), and
//            every third of all such calls is interrupted first
//   names    look-ups of users and groups hang as long as the file is there that BAD_DAY_FILE names
//   epoll    nothing more can be watched as long as that file is there
//   entropy  there is no random number yet for who does not wait for one
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int has(const char *what) {
  const char *all = getenv("BAD_DAY");
  return all && strstr(all, what);
}

static int interrupted(void) {
  static atomic_uint calls;
  if (!has("short") || atomic_fetch_add(&calls, 1) % 3 != 0) return 0;
  errno = EINTR;
  return 1;
}

// How many of `wanted` bytes are moved: whole messages stay whole, and so do the kernel's own files when written.
static size_t allowed(int fd, size_t wanted, int writing, size_t most) {
  struct stat about;
  if (!has("short") || wanted <= most || fstat(fd, &about) < 0) return wanted;
  if (S_ISSOCK(about.st_mode)) {
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM) return wanted;
  } else if (S_ISREG(about.st_mode)) {
    struct statfs system;
    if (writing && fstatfs(fd, &system) == 0 && ((unsigned)system.f_type == 0x63677270u || system.f_type == 0x9fa0))
      return wanted;
  } else if (!S_ISFIFO(about.st_mode)) {
    return wanted;
  }
  return most;
}

ssize_t read(int fd, void *to, size_t n) {
  if (interrupted()) return -1;
  return REAL(read)(fd, to, allowed(fd, n, 0, 1));
}
ssize_t write(int fd, const void *from, size_t n) {
  if (interrupted()) return -1;
  return REAL(write)(fd, from, allowed(fd, n, 1, 1));
}
ssize_t pread(int fd, void *to, size_t n, off_t at) {
  if (interrupted()) return -1;
  return REAL(pread)(fd, to, allowed(fd, n, 0, 1), at);
}
ssize_t pread64(int fd, void *to, size_t n, off64_t at) {
  if (interrupted()) return -1;
  return REAL(pread64)(fd, to, allowed(fd, n, 0, 509), at);
}
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) {
  if (interrupted()) return -1;
  return REAL(pwrite64)(fd, from, allowed(fd, n, 1, 509), at);
}
ssize_t recv(int fd, void *to, size_t n, int flags) {
  if (interrupted()) return -1;
  return REAL(recv)(fd, to, allowed(fd, n, 0, 1), flags);
}
ssize_t send(int fd, const void *from, size_t n, int flags) {
  if (interrupted()) return -1;
  return REAL(send)(fd, from, allowed(fd, n, 1, 1), flags);
}
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  return interrupted() ? -1 : REAL(recvmsg)(fd, message, flags);
}
int accept(int fd, struct sockaddr *address, socklen_t *size) {
  return interrupted() ? -1 : REAL(accept)(fd, address, size);
}
int epoll_wait(int fd, struct epoll_event *events, int most, int time) {
  return interrupted() ? -1 : REAL(epoll_wait)(fd, events, most, time);
}
int waitid(idtype_t kind, id_t id, siginfo_t *info, int options) {
  return interrupted() ? -1 : REAL(waitid)(kind, id, info, options);
}

int epoll_ctl(int fd, int what, int other, struct epoll_event *event) {
  const char *path = getenv("BAD_DAY_FILE");
  if (has("epoll") && what == EPOLL_CTL_ADD && path && access(path, F_OK) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return REAL(epoll_ctl)(fd, what, other, event);
}

static void hang(void) {
  const char *path = getenv("BAD_DAY_FILE");
  while (has("names") && path && access(path, F_OK) == 0) usleep(10000);
}
int getpwnam_r(const char *name, struct passwd *one, char *room, size_t size, struct passwd **result) {
  hang();
  return REAL(getpwnam_r)(name, one, room, size, result);
}
int getpwuid_r(uid_t id, struct passwd *one, char *room, size_t size, struct passwd **result) {
  hang();
  return REAL(getpwuid_r)(id, one, room, size, result);
}
int getgrnam_r(const char *name, struct group *one, char *room, size_t size, struct group **result) {
  hang();
  return REAL(getgrnam_r)(name, one, room, size, result);
}
int getgrouplist(const char *user, gid_t group, gid_t *groups, int *count) {
  hang();
  return REAL(getgrouplist)(user, group, groups, count);
}

ssize_t getrandom(void *to, size_t n, unsigned flags) {
  if (has("entropy") && flags & GRND_NONBLOCK) {
    errno = EAGAIN;
    return -1;
  }
  return REAL(getrandom)(to, n, flags);
}
