#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "guardian_kernel.h"

int guardian_copy_attributes(int from, int to) {
  enum { limit = 65536 };  // XATTR_LIST_MAX, XATTR_SIZE_MAX
  char names[limit], value[limit];
  ssize_t length = flistxattr(from, names, sizeof names);
  if (length < 0) return errno == ENOTSUP ? 0 : -errno;
  int answer = 0;
  for (const char *name = names; name < names + length; name += strlen(name) + 1) {
    ssize_t size = fgetxattr(from, name, value, sizeof value);
    if (size < 0) {
      if (errno != ENODATA) answer = -errno;
      continue;
    }
    if (fsetxattr(to, name, value, (size_t)size, 0) < 0) answer = -errno;
  }
  return answer;
}

int guardian_has_capabilities(const char *path) { return getxattr(path, "security.capability", NULL, 0) > 0; }
