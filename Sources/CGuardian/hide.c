// Paths made absent for one process.
//
// In a mount namespace of its own, whose mounts no longer reach the host's, a read-only overlay is laid over the
// directory of the path: above a small tmpfs with a whiteout of the name, below the directory itself. The tmpfs lies over
// the directory for a moment only, since an overlay takes its layers from mounted places; so no place of the file system
// is needed for it, and nothing of it is left behind.
//
// Where that cannot be, an empty file or directory lies over the path. A plugin directory gets a view of its own instead:
// a read-only tmpfs in its place, in which whatever else is in it is mounted.
//
// A copy of a file lies over the file in the same way; where the file is gone, it is in the overlay's upper layer.
#define _GNU_SOURCE
#include "hide.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "raw.h"

// <sys/mount.h> and <linux/mount.h> cannot be had together everywhere.
#ifndef MS_SLAVE
#define MS_SLAVE (1 << 19)
#endif
#ifndef MS_REC
#define MS_REC 16384
#endif
#define DETACH 2  // MNT_DETACH
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
// struct statfs's f_flags are those of statvfs.
enum { READ_ONLY = 1, NO_SUID = 2, NO_DEV = 4, NO_EXEC = 8 };

static void name_of_descriptor(char *out, int fd) {
  static const char prefix[] = "/proc/self/fd/";
  memcpy(out, prefix, sizeof prefix - 1);
  out += sizeof prefix - 1;
  char digits[10];
  int count = 0;
  do digits[count++] = (char)('0' + fd % 10);
  while ((fd /= 10) > 0);
  while (count > 0) *out++ = digits[--count];
  *out = 0;
}
#define DESCRIPTOR_NAME_SIZE 32

// Room for all copies that one service may have; a tmpfs takes no more than what is in it.
#define LAYER_SIZE "32m"

static int open_tmpfs(const char *mode, unsigned attributes) {
  long fs = raw2(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
  if (fs < 0) return (int)fs;
  long answer = raw6(SYS_fsconfig, fs, FSCONFIG_SET_STRING, (long)"mode", (long)mode, 0, 0);
  if (answer == 0) answer = raw6(SYS_fsconfig, fs, FSCONFIG_SET_STRING, (long)"size", (long)LAYER_SIZE, 0, 0);
  if (answer == 0) answer = raw6(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0, 0);
  if (answer == 0) answer = raw3(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
  close((int)fs);
  return (int)answer;
}

static long attach(int mount, int target) {
  return raw6(SYS_move_mount, mount, (long)"", target, (long)"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH, 0);
}

static void detach(int mount) {
  char name[DESCRIPTOR_NAME_SIZE];
  name_of_descriptor(name, mount);
  raw2(SYS_umount2, name, DETACH);
}

static void copy_attribute(const char *from, const char *to, const char *attribute) {
  char value[4096];
  ssize_t size = getxattr(from, attribute, value, sizeof value);
  if (size >= 0) (void)setxattr(to, attribute, value, (size_t)size, 0);
}

// The overlay's root shows the uppermost layer's attributes; they are to be the directory's own.
static int dress_as(int layer, int directory) {
  struct stat status;
  if (fstatat(directory, "", &status, AT_EMPTY_PATH) < 0) return -errno;
  char from[DESCRIPTOR_NAME_SIZE], to[DESCRIPTOR_NAME_SIZE];
  name_of_descriptor(from, directory);
  name_of_descriptor(to, layer);
  if (fchownat(layer, "", status.st_uid, status.st_gid, AT_EMPTY_PATH) < 0) return -errno;
  if (chmod(to, status.st_mode & 07777) < 0) return -errno;
  copy_attribute(from, to, "system.posix_acl_access");
  copy_attribute(from, to, "security.selinux");
  struct timespec times[2] = {status.st_atim, status.st_mtim};
  (void)utimensat(AT_FDCWD, to, times, 0);
  return 0;
}

static bool exists(int directory, const char *name) {
  struct stat status;
  return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 || errno != ENOENT;
}

// Stays where it is whatever becomes of the directory's other entries.
static bool stays(const struct guardian_hide *hide) {
  return hide->way == GUARDIAN_HIDE_EMPTY || hide->way == GUARDIAN_HIDE_COPY;
}

// A file in the layer as the copy is, with the labels and lists of what it stands for, if that is there. Or -errno.
static int make_copy(int layer, const struct guardian_hide *copy, const char *name, int original) {
  int file = openat(layer, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return -errno;
  const char *at = copy->content;
  size_t left = copy->size;
  int answer = 0;
  while (left > 0 && answer == 0) {
    ssize_t count = write(file, at, left);
    if (count < 0) {
      if (errno != EINTR) answer = -errno;
      continue;
    }
    at += count;
    left -= (size_t)count;
  }
  if (answer == 0 && fchown(file, copy->uid, copy->gid) < 0) answer = -errno;
  if (answer == 0 && original >= 0) {
    char from[DESCRIPTOR_NAME_SIZE], to[DESCRIPTOR_NAME_SIZE];
    name_of_descriptor(from, original);
    name_of_descriptor(to, file);
    copy_attribute(from, to, "system.posix_acl_access");
    copy_attribute(from, to, "security.selinux");
  }
  if (answer == 0 && fchmod(file, copy->mode & 0777) < 0) answer = -errno;
  close(file);
  return answer;
}

// Read-only, and otherwise as what the directory is on; or -errno.
static int attributes_of(int directory) {
  struct statfs system;
  if (fstatfs(directory, &system) < 0) return -errno;
  unsigned attributes = MOUNT_ATTR_RDONLY;
  if (system.f_flags & NO_SUID) attributes |= MOUNT_ATTR_NOSUID;
  if (system.f_flags & NO_DEV) attributes |= MOUNT_ATTR_NODEV;
  if (system.f_flags & NO_EXEC) attributes |= MOUNT_ATTR_NOEXEC;
  return (int)attributes;
}

static int cover_with_overlay(int directory, const struct guardian_hide *hide, size_t count) {
  int attributes = attributes_of(directory);
  if (attributes < 0) return attributes;

  int layer = open_tmpfs("0755", 0);
  if (layer < 0) return layer;
  int answer = 0;
  for (size_t i = 0; i < count && answer == 0; i++) {
    bool there = exists(directory, hide[i].name);
    if (hide[i].way == GUARDIAN_HIDE_COPY && !there) answer = make_copy(layer, hide + i, hide[i].name, -1);
    if (stays(hide + i) || !there) continue;
    if (mknodat(layer, hide[i].name, S_IFCHR, 0) < 0) answer = -errno;
  }
  if (answer == 0) answer = dress_as(layer, directory);
  if (answer < 0) {
    close(layer);
    return answer;
  }

  // "lowerdir=/proc/self/fd/LAYER:/proc/self/fd/DIRECTORY": no name of a path that could hold a colon.
  char layers[2 * DESCRIPTOR_NAME_SIZE];
  name_of_descriptor(layers, layer);
  size_t length = strlen(layers);
  layers[length] = ':';
  name_of_descriptor(layers + length + 1, directory);

  long overlay = -ENODEV;
  answer = (int)attach(layer, directory);
  if (answer == 0) {
    long fs = raw2(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    if (fs >= 0) {
      overlay = raw6(SYS_fsconfig, fs, FSCONFIG_SET_STRING, (long)"lowerdir", (long)layers, 0, 0);
      if (overlay == 0) overlay = raw6(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0, 0);
      if (overlay == 0) overlay = raw3(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
      close((int)fs);
    } else {
      overlay = fs;
    }
    detach(layer);
    answer = overlay < 0 ? (int)overlay : (int)attach((int)overlay, directory);
    if (overlay >= 0) close((int)overlay);
  }
  close(layer);
  return answer;
}

static bool is_hidden(const struct guardian_hide *hide, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (!stays(hide + i) && strcmp(hide[i].name, name) == 0) return true;
  return false;
}

// A place in the layer for the entry, to be mounted over; a link is made again. Or -errno.
static int make_place(int layer, int directory, const char *name) {
  struct stat status;
  if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) return errno == ENOENT ? 0 : -errno;
  if (S_ISLNK(status.st_mode)) {
    char link[PATH_MAX];
    ssize_t length = readlinkat(directory, name, link, sizeof link - 1);
    if (length < 0) return -errno;
    link[length] = 0;
    return symlinkat(link, layer, name) < 0 ? -errno : 0;
  }
  if (S_ISDIR(status.st_mode)) return mkdirat(layer, name, 0755) < 0 ? -errno : 0;
  int file = openat(layer, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return -errno;
  close(file);
  return 0;
}

// Mounts what is in the directory where its place was made; links have none.
static int fill_place(int layer, int directory, const char *name) {
  struct stat status;
  if (fstatat(layer, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(status.st_mode)) return 0;
  int target = openat(layer, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (target < 0) return -errno;
  long tree = raw3(SYS_open_tree, directory, name,
                   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
  int answer = tree < 0 ? (int)tree : (int)attach((int)tree, target);
  if (tree >= 0) close((int)tree);
  close(target);
  return answer;
}

enum { MOST_ENTRIES = 1024 };

// What is in the directory and not hidden, each at its turn. 0, or -errno.
static int for_each_kept(int directory, const struct guardian_hide *hide, size_t count, int layer,
                         int (*body)(int layer, int directory, const char *name)) {
  int list = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) return -errno;
  struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    unsigned char type;
    char name[];
  };
  _Alignas(struct entry) char buffer[4096];
  int answer = 0, entries = 0;
  long got = 0;
  while (answer == 0 && (got = raw3(SYS_getdents64, list, (long)buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < got && answer == 0;) {
      const struct entry *entry = (const struct entry *)(buffer + at);
      at += entry->size;
      const char *name = entry->name;
      if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || is_hidden(hide, count, name)) continue;
      // A view of that many mounts is none that a start should wait for.
      answer = ++entries > MOST_ENTRIES ? -E2BIG : body(layer, directory, name);
    }
  }
  close(list);
  return answer == 0 && got < 0 ? (int)got : answer;
}

// In the directory's place, a read-only one with everything in it but what is hidden. 0, or -errno, and all is as it was.
static int cover_with_selection(int directory, const struct guardian_hide *hide, size_t count) {
  int attributes = attributes_of(directory);
  if (attributes < 0) return attributes;
  int layer = open_tmpfs("0755", 0);
  if (layer < 0) return layer;
  int answer = for_each_kept(directory, hide, count, layer, make_place);
  if (answer == 0) answer = dress_as(layer, directory);
  if (answer == 0) answer = (int)attach(layer, directory);
  if (answer == 0) {
    answer = for_each_kept(directory, hide, count, layer, fill_place);
    if (answer == 0) {
      struct mount_attr set = {.attr_set = (unsigned)attributes};
      // Where the kernel cannot do that, the directory's mode is all that keeps it as it is.
      raw6(SYS_mount_setattr, layer, (long)"", AT_EMPTY_PATH, (long)&set, sizeof set, 0);
    } else {
      detach(layer);
    }
  }
  close(layer);
  return answer;
}

// Mounts the file of that name in the layer over the target: the layer lies over the directory for a moment only. Or
// -errno.
static int attach_alone(int layer, const char *name, int directory, int target, unsigned attributes) {
  int answer = (int)attach(layer, directory);
  if (answer < 0) return answer;
  long alone = raw3(SYS_open_tree, layer, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  detach(layer);
  if (alone < 0) return (int)alone;
  struct mount_attr set = {.attr_set = attributes};
  // Where the kernel cannot do that, the file's mode is what keeps it as it is.
  raw6(SYS_mount_setattr, alone, (long)"", AT_EMPTY_PATH, (long)&set, sizeof set, 0);
  answer = (int)attach((int)alone, target);
  close((int)alone);
  return answer;
}

// 1: the name leads nowhere, or to what no file can lie over. 0: covered, with the copy or with nothing. Or -errno.
static int cover(int directory, const struct guardian_hide *hide) {
  // A link is followed: what it leads to is covered, for nothing can be mounted upon a link.
  int target = openat(directory, hide->name, O_PATH | O_CLOEXEC);
  if (target < 0) return errno == ENOENT ? 1 : -errno;
  struct stat status;
  const bool copies = hide->way == GUARDIAN_HIDE_COPY;
  unsigned attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  int answer = fstatat(target, "", &status, AT_EMPTY_PATH) < 0 ? -errno : 0;
  if (answer == 0 && copies) {
    // What is executed may be a configuration too.
    int own = attributes_of(directory);
    attributes = own < 0 ? attributes : (unsigned)own | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  }
  if (answer == 0 && S_ISDIR(status.st_mode)) {
    int layer = copies ? 1 : open_tmpfs("0555", attributes);
    answer = copies || layer < 0 ? layer : (int)attach(layer, target);
    if (!copies && layer >= 0) close(layer);
  } else if (answer == 0) {
    int layer = open_tmpfs("0755", 0);
    if (layer < 0) {
      answer = layer;
    } else if (copies) {
      answer = make_copy(layer, hide, "copy", target);
      if (answer == 0) answer = attach_alone(layer, "copy", directory, target, attributes);
    } else {
      int file = openat(layer, "empty", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
      answer = file < 0 || fchmod(file, 0444) < 0 ? -errno : 0;
      if (file >= 0) close(file);
      if (answer == 0) answer = attach_alone(layer, "empty", directory, target, attributes);
    }
    if (layer >= 0) close(layer);
  }
  close(target);
  return answer;
}

// Whether the service itself could write in the directory, which a read-only overlay would take from it. For root, who
// can write anywhere, a directory counts when it is meant to be written by others than its owner.
static bool must_stay_writable(const struct guardian_spawn_request *request, int directory) {
  struct statfs system;
  if (fstatfs(directory, &system) == 0 && (system.f_flags & READ_ONLY)) return false;
  uid_t uid = request->set_identity ? request->uid : geteuid();
  if (uid == 0) {
    struct stat status;
    return fstatat(directory, "", &status, AT_EMPTY_PATH) < 0 || (status.st_mode & 022) != 0;
  }
  // The kernel knows best, access lists included. The groups stay: the identity that follows wants them too.
  if (request->set_identity) {
    raw2(SYS_setgroups, request->group_count, request->groups);
    setfsgid(request->gid);
    setfsuid(request->uid);
  }
  long answer = raw4(SYS_faccessat2, directory, "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH);
  if (request->set_identity) {
    setfsuid(geteuid());
    setfsgid(getegid());
  }
  return answer == 0 || answer == -ENOSYS;
}

// Whether something is mounted below the directory, which an overlay would bury. True where that cannot be told.
static bool has_mounts_below(int directory) {
  char link[DESCRIPTOR_NAME_SIZE], path[PATH_MAX];
  name_of_descriptor(link, directory);
  ssize_t length = readlink(link, path, sizeof path);
  if (length <= 0 || (size_t)length >= sizeof path) return true;
  if (length == 1) length = 0;  // everything is below /

  int table = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (table < 0) return true;
  char buffer[4096];
  int field = 0, octal = 0, digits = -1;
  ssize_t at = 0, got;
  bool same = true, below = false;
  while (!below && (got = read(table, buffer, sizeof buffer)) > 0) {
    for (ssize_t i = 0; i < got && !below; i++) {
      char c = buffer[i];
      if (c == '\n') {
        field = 0;
        at = 0;
        same = true;
        continue;
      }
      if (c == ' ') {
        field++;
        continue;
      }
      if (field != 4) continue;
      // Blanks and backslashes are written in octal.
      if (digits >= 0) {
        octal = octal * 8 + (c - '0');
        if (++digits < 3) continue;
        c = (char)octal;
        digits = -1;
      } else if (c == '\\') {
        octal = 0;
        digits = 0;
        continue;
      }
      if (at < length) same = same && c == path[at];
      else if (at == length && same) below = c == '/';
      at++;
    }
  }
  if (got < 0) below = true;
  close(table);
  return below;
}

static void tell(int report, size_t index, enum guardian_hidden way) {
  struct guardian_report one = {0, (int32_t)index, way};
  raw3(SYS_write, report, &one, sizeof one);
}

int guardian_hide_paths(const struct guardian_spawn_request *request, int report, int *index) {
  *index = 0;
  if (unshare(CLONE_NEWNS) < 0) return -errno;
  // What the host mounts later still arrives here; what is mounted here stays here.
  long slave = raw6(SYS_mount, (long)"none", (long)"/", 0, MS_REC | MS_SLAVE, 0, 0);
  if (slave < 0) return (int)slave;

  const struct guardian_hide *hide = request->hide;
  size_t count = request->hide_count, end;
  for (size_t first = 0; first < count; first = end) {
    for (end = first + 1; end < count && strcmp(hide[end].directory, hide[first].directory) == 0;) end++;
    *index = (int)first;

    int directory = open(hide[first].directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 && errno != ENOENT && errno != ENOTDIR) return -errno;
    size_t hidden = 0, covers = 0, fresh = 0;
    bool replace = false;
    for (size_t i = first; i < end; i++) {
      if (hide[i].way == GUARDIAN_HIDE_IN_VIEW) replace = true;
      if (directory >= 0 && exists(directory, hide[i].name)) *(stays(hide + i) ? &covers : &hidden) += 1;
      else if (directory >= 0 && hide[i].way == GUARDIAN_HIDE_COPY) fresh++;
      else tell(report, i, GUARDIAN_HIDDEN_MISSING);
    }
    if (hidden > 0 || covers > 0 || fresh > 0) {
      const struct guardian_hide *group = hide + first;
      bool overlaid = (hidden > 0 || fresh > 0) && (replace || !must_stay_writable(request, directory)) &&
                      !has_mounts_below(directory) && cover_with_overlay(directory, group, end - first) == 0;
      bool covered = overlaid;
      if (!covered && replace && hidden > 0) covered = cover_with_selection(directory, group, end - first) == 0;
      // Through the descriptor the directory is seen as it was before.
      int now = covered && covers > 0 ? open(hide[first].directory, O_PATH | O_DIRECTORY | O_CLOEXEC) : directory;
      if (now < 0) return -errno;
      for (size_t i = first; i < end; i++) {
        const bool copies = hide[i].way == GUARDIAN_HIDE_COPY;
        if (!exists(directory, hide[i].name)) {
          if (copies) tell(report, i, overlaid ? GUARDIAN_HIDDEN_COPY : GUARDIAN_HIDDEN_MISSING);
          continue;
        }
        *index = (int)i;
        bool absent = covered && !stays(hide + i);
        int nothing = absent ? 0 : cover(now, hide + i);
        if (nothing < 0) return nothing;
        tell(report, i,
             absent    ? GUARDIAN_HIDDEN_ABSENT
             : nothing ? GUARDIAN_HIDDEN_MISSING
             : copies  ? GUARDIAN_HIDDEN_COPY
                       : GUARDIAN_HIDDEN_EMPTY);
      }
      if (now != directory) close(now);
    }
    if (directory >= 0) close(directory);
  }
  return 0;
}
