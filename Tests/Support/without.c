// without RULE... -- PROGRAM [ARGUMENT]... : runs PROGRAM where a filter answers some calls of the kernel with an error.
//
// A RULE is CALL:ERROR, or CALL:ERROR:SIZE, which lets the call through where its second argument is SIZE: glibc makes its
// threads by a clone3 of another size than guardian its children, and takes no refusal but ENOSYS for an answer.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static const struct { const char *name; unsigned number; } calls[] = {
    {"clone3", SYS_clone3},           {"pidfd_open", SYS_pidfd_open},
    {"close_range", SYS_close_range}, {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"execveat", SYS_execveat},       {"memfd_create", SYS_memfd_create},
    {"openat2", SYS_openat2},         {"getrandom", SYS_getrandom},
};
static const struct { const char *name; unsigned number; } errors[] = {
    {"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN},
};

#define FIND(table, text, length)                                                                  \
  ({                                                                                               \
    unsigned found = ~0u;                                                                          \
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)                                      \
      if (strlen(table[i].name) == (length) && !strncmp(table[i].name, text, length)) found = table[i].number; \
    if (found == ~0u) {                                                                            \
      fprintf(stderr, "without: unknown: %s\n", text);                                             \
      return 64;                                                                                   \
    }                                                                                              \
    found;                                                                                         \
  })

int main(int count, char **words) {
  struct sock_filter code[256];
  unsigned short length = 0;
  code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0);
  code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  int at = 1;
  for (; at < count && strcmp(words[at], "--") != 0; at++) {
    if (length > 240) return 64;
    const char *error = strchr(words[at], ':');
    if (!error) return 64;
    const char *size = strchr(error + 1, ':');
    unsigned number = FIND(calls, words[at], (size_t)(error - words[at]));
    unsigned answer = FIND(errors, error + 1, size ? (size_t)(size - error - 1) : strlen(error + 1));
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, size ? 3 : 1);
    if (size) {
      code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
      code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(size + 1), 1, 0);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer);
  }
  code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  if (at + 1 >= count) return 64;
  struct sock_fprog program = {length, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("without");
    return 70;
  }
  execv(words[at + 1], words + at + 1);
  perror(words[at + 1]);
  return 127;
}
