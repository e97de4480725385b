#define _GNU_SOURCE
#include "guardian_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failpoint.h"
#include "hide.h"
#include "raw.h"

// Deep enough for the child's few frames many times over; a guard page lies below it.
#define STACK_SIZE ((size_t)64 * 1024)
#define GUARD_SIZE ((size_t)64 * 1024)

// As the kernel has it; the C library's differs.
struct kernel_sigaction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)(void);
  uint64_t mask;
};

struct birth {
  const struct guardian_spawn_request *request;
  // Written by a child that shares our memory, read by us after it has gone on.
  volatile int stage, index, error;
  int report;
  // When above 0, the table of descriptors is still the caller's; the child leaves it first, with the numbers below this.
  unsigned unshare_from;
};

GUARDIAN_RAW __attribute__((noreturn)) static void fail(struct birth *birth, enum guardian_stage stage, long index,
                                                        long answer) {
  if (birth->report >= 0) {
    struct guardian_report report = {stage, (int32_t)index, (int32_t)-answer};
    raw3(SYS_write, birth->report, &report, sizeof report);
  } else {
    birth->stage = stage;
    birth->index = (int)index;
    birth->error = (int)-answer;
  }
  for (;;) raw1(SYS_exit_group, 127);
}

GUARDIAN_RAW static void close_listed(unsigned first, unsigned last) {
  // What close_range does, for kernels that lack it and filters that refuse it.
  long directory = raw4(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory < 0) {
    for (unsigned fd = first; fd <= last && fd < 65536; fd++) raw1(SYS_close, fd);
    return;
  }
  for (;;) {
    char entries[1024] __attribute__((aligned(8)));
    long length = raw3(SYS_getdents64, directory, entries, sizeof entries);
    if (length <= 0) break;
    for (long at = 0; at < length;) {
      unsigned short size = *(unsigned short *)(entries + at + 16);
      unsigned number = 0;
      bool digits = false;
      for (const char *name = entries + at + 19; *name >= '0' && *name <= '9'; name++, digits = true)
        number = number * 10 + (unsigned)(*name - '0');
      if (digits && number >= first && number <= last && number != (unsigned)directory) raw1(SYS_close, number);
      at += size;
    }
  }
  raw1(SYS_close, directory);
}

GUARDIAN_RAW static void close_from_to(unsigned first, unsigned last) {
  if (first > last) return;
  if (raw3(SYS_close_range, first, last, 0) < 0) close_listed(first, last);
}

GUARDIAN_RAW static void arrange_descriptors(struct birth *birth) {
  const struct guardian_spawn_request *request = birth->request;
  size_t count = request->descriptor_count;
  // No number above the targets is overwritten, so sources that lie among the targets go there first.
  unsigned top = count ? (unsigned)request->descriptors[count - 1].target + 1 : 0;
  if (top < 3) top = 3;

  if (birth->report >= 0 && (unsigned)birth->report < top) {
    long moved = raw3(SYS_fcntl, birth->report, F_DUPFD_CLOEXEC, top);
    if (moved < 0) fail(birth, GUARDIAN_STAGE_DESCRIPTORS, -1, moved);
    birth->report = (int)moved;
  }
  for (size_t i = 0; i < count; i++) {
    if ((unsigned)request->descriptors[i].source >= top) continue;
    long moved = raw3(SYS_fcntl, request->descriptors[i].source, F_DUPFD_CLOEXEC, top);
    if (moved < 0) fail(birth, GUARDIAN_STAGE_DESCRIPTORS, (long)i, moved);
    request->descriptors[i].source = (int)moved;
  }
  unsigned next = 0;
  for (size_t i = 0; i < count; i++) {
    unsigned target = (unsigned)request->descriptors[i].target;
    long answer = raw3(SYS_dup3, request->descriptors[i].source, target, 0);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_DESCRIPTORS, (long)i, answer);
    if (target > next) close_from_to(next, target - 1);
    next = target + 1;
  }
  if (birth->report >= 0) {
    close_from_to(next, (unsigned)birth->report - 1);
    next = (unsigned)birth->report + 1;
  }
  close_from_to(next, ~0u);
}

GUARDIAN_RAW static void set_oom_score(struct birth *birth) {
  char text[12];
  int length = 0;
  int score = birth->request->oom_score;
  unsigned rest = score < 0 ? -(unsigned)score : (unsigned)score;
  char digits[10];
  int count = 0;
  do digits[count++] = (char)('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (score < 0) text[length++] = '-';
  while (count > 0) text[length++] = digits[--count];

  long fd = raw4(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) fail(birth, GUARDIAN_STAGE_OOM_SCORE, 0, fd);
  long answer = raw3(SYS_write, fd, text, length);
  raw1(SYS_close, fd);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_OOM_SCORE, 0, answer);
}

// Whether the supplementary groups are those wanted. The main group counts for nothing: it is in force in any case.
GUARDIAN_RAW static bool has_groups(const struct guardian_spawn_request *request) {
  long count = raw2(SYS_getgroups, request->group_count + 1, request->group_room);
  if (count < 0) return false;
  long have = 0;
  size_t want = 0;
  for (;;) {
    while (have < count && request->group_room[have] == request->gid) have++;
    while (want < request->group_count && request->groups[want] == request->gid) want++;
    if (have == count || want == request->group_count) return have == count && want == request->group_count;
    if (request->group_room[have++] != request->groups[want++]) return false;
  }
}

// The user has changed, and with it the kernel has taken away what was in effect; KEEPCAPS has left what is permitted.
GUARDIAN_RAW static void take_capabilities(struct birth *birth) {
  const uint64_t wanted = birth->request->capabilities;
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  for (int half = 0; half < 2; half++) {
    uint32_t bits = (uint32_t)(wanted >> (32 * half));
    data[half].effective = data[half].permitted = data[half].inheritable = bits;
  }
  long answer = raw2(SYS_capset, &header, data);
  if (answer < 0) {
    // The first that is not to be had is the one to name.
    struct __user_cap_data_struct have[2] = {{0, 0, 0}, {0, 0, 0}};
    raw2(SYS_capget, &header, have);
    for (int number = 0; number < 64; number++) {
      bool given = have[number / 32].permitted >> (number % 32) & 1;
      if ((wanted >> number & 1) && !given) fail(birth, GUARDIAN_STAGE_CAPABILITIES, number, answer);
    }
    fail(birth, GUARDIAN_STAGE_CAPABILITIES, -1, answer);
  }
  answer = raw4(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_CAPABILITIES, -1, answer);
  for (int number = 0; number < 64; number++) {
    if (!(wanted >> number & 1)) continue;
    answer = raw4(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_CAPABILITIES, number, answer);
  }
  // Read back, as the user is: what the program is to have, and nothing else.
  struct __user_cap_data_struct now[2] = {{0, 0, 0}, {0, 0, 0}};
  answer = raw2(SYS_capget, &header, now);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_CAPABILITIES, -1, answer);
  for (int number = 0; number < 64; number++) {
    bool wants = wanted >> number & 1;
    bool has = now[number / 32].permitted >> (number % 32) & 1;
    // Above the kernel's last one the answer is an error.
    bool ambient = raw4(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, number, 0) == 1;
    if (has != wants || ambient != wants) fail(birth, GUARDIAN_STAGE_CAPABILITIES, number, -ENOTSUP);
  }
}

GUARDIAN_RAW static void write_own_pid(char *text) {
  unsigned rest = (unsigned)raw1(SYS_getpid, 0);
  char digits[10];
  int count = 0;
  do digits[count++] = (char)('0' + rest % 10);
  while ((rest /= 10) > 0);
  while (count > 0) *text++ = digits[--count];
  *text = 0;
}

GUARDIAN_RAW static void keep_to_one_processor(void) {
  enum { bits = 8 * sizeof(unsigned long) };
  unsigned long allowed[8192 / bits], one[8192 / bits];
  long length = raw3(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
  if (length <= 0 || (size_t)length > sizeof allowed) return;
  unsigned words = (unsigned)length / sizeof(unsigned long), count = 0;
  for (unsigned at = 0; at < words * bits; at++) count += allowed[at / bits] >> at % bits & 1;
  if (count == 0) return;
  // Not all of them on the first one.
  unsigned chosen = (unsigned)raw1(SYS_getpid, 0) % count;
  for (unsigned word = 0; word < words; word++) one[word] = 0;
  for (unsigned at = 0; at < words * bits; at++) {
    if (!(allowed[at / bits] >> at % bits & 1) || chosen-- > 0) continue;
    one[at / bits] = 1ul << at % bits;
    break;
  }
  raw3(SYS_sched_setaffinity, 0, words * sizeof(unsigned long), one);
}

GUARDIAN_RAW static void take_identity(struct birth *birth) {
  const struct guardian_spawn_request *request = birth->request;
  // An unprivileged guardian may not set groups, and need not where it has them already. Whoever may sets them all the
  // same, so that the main group is listed among them, as systemd has it.
  long answer = raw2(SYS_setgroups, request->group_count, request->groups);
  if (answer < 0 && !has_groups(request)) fail(birth, GUARDIAN_STAGE_IDENTITY, 0, answer);
  answer = raw3(SYS_setresgid, request->gid, request->gid, request->gid);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_IDENTITY, 1, answer);
  answer = raw3(SYS_setresuid, request->uid, request->uid, request->uid);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_IDENTITY, 2, answer);

  // Believed only when read back: a partial drop is worse than no start.
  uid_t uids[3] = {0, 0, 0};
  gid_t gids[3] = {0, 0, 0};
  raw3(SYS_getresuid, &uids[0], &uids[1], &uids[2]);
  raw3(SYS_getresgid, &gids[0], &gids[1], &gids[2]);
  bool taken = has_groups(request);
  for (int i = 0; i < 3; i++) taken = taken && uids[i] == request->uid && gids[i] == request->gid;
  if (!taken) fail(birth, GUARDIAN_STAGE_IDENTITY, 3, -EPERM);
}

GUARDIAN_RAW static void child(void *context) {
  struct birth *birth = context;
  const struct guardian_spawn_request *request = birth->request;

  long answer;
  guardian_hold_point(request->separate ? "separate-child.unmarked" : "child.unmarked");
  // Whoever comes after the caller, should that be killed now, has nothing else to know this process by. It comes before
  // a single descriptor is let go: as long as there is no mark, the caller's locks are held here, and nobody comes after.
  if (request->mark) {
    volatile struct guardian_birth_mark *mark = request->mark;
    struct timespec now = {0, 0};
    raw4(SYS_clock_gettime, CLOCK_BOOTTIME, &now, 0, 0);
    mark->high = mark->low = 0;
    mark->at = now.tv_sec * 1000000000ll + now.tv_nsec;
    mark->pid = (int32_t)raw1(SYS_getpid, 0);
    mark->low = request->run_low;
    mark->high = request->run_high;
  }

  if (birth->unshare_from > 0) {
    answer = raw3(SYS_close_range, birth->unshare_from, ~0u, CLOSE_RANGE_UNSHARE);
    if (answer < 0) answer = raw1(SYS_unshare, CLONE_FILES);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_DESCRIPTORS, -1, answer);
  }

  answer = raw1(SYS_setsid, 0);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_SESSION, 0, answer);

  // The dispositions are a copy, since sighand is not shared. SIGKILL and SIGSTOP refuse, which is as well.
  for (int number = 1; number <= 64; number++) {
    struct kernel_sigaction action = {SIG_DFL, 0, 0, 0};
    if (number == SIGKILL || number == SIGSTOP) continue;
    if (number == SIGPIPE && request->keep_sigpipe_ignored) action.handler = SIG_IGN;
    answer = raw4(SYS_rt_sigaction, number, &action, 0, sizeof action.mask);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_SIGNALS, number, answer);
  }

  // Early, so that a child that blocks further down holds nothing of guardian's.
  arrange_descriptors(birth);
  guardian_hold_point(request->separate ? "separate-child.marked" : "child.marked");

  if (request->set_nice) {
    answer = raw3(SYS_setpriority, PRIO_PROCESS, 0, request->nice);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_PRIORITY, 0, answer);
  }
  if (request->set_oom_score) set_oom_score(birth);
  if (request->single_cpu) keep_to_one_processor();

  if (request->hide_count > 0) {
    // Only with our own memory, so here the C library may be used, short of malloc.
    int index = 0;
    answer = guardian_hide_paths(request, birth->report, &index);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_HIDE, index, answer);
  }

  // After everything that opens a file, which a low limit would forbid; before the right to raise one is given up.
  for (size_t i = 0; i < request->limit_count; i++) {
    const struct guardian_limit *limit = &request->limits[i];
    uint64_t pair[2] = {limit->soft, limit->hard};
    if (!limit->set_hard) {
      answer = raw4(SYS_prlimit64, 0, limit->resource, 0, pair);
      if (answer < 0) fail(birth, GUARDIAN_STAGE_LIMITS, (long)i, answer);
      pair[0] = limit->soft < pair[1] ? limit->soft : pair[1];
    }
    answer = raw4(SYS_prlimit64, 0, limit->resource, pair, 0);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_LIMITS, (long)i, answer);
  }

  raw1(SYS_umask, request->umask);
  // From here to the exec other processes of that user may signal the child, and SIGSTOP would hold up the caller too.
  // It is a matter of a few calls; what need not come behind it stands above.
  if (request->capabilities != 0) {
    answer = raw4(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_CAPABILITIES, -1, answer);
  }
  if (request->set_identity) take_identity(birth);
  if (request->capabilities != 0) take_capabilities(birth);
  if (request->own_pid) write_own_pid(request->own_pid);

  answer = raw1(SYS_chdir, request->directory);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_DIRECTORY, 0, answer);

  guardian_hold_point(request->separate ? "separate-child.exec" : "child.exec");
  // What was told when guardian was gone already left a SIGPIPE behind, which would end the child now.
  if (birth->report >= 0) {
    struct kernel_sigaction ignore = {SIG_IGN, 0, 0, 0}, before;
    answer = raw4(SYS_rt_sigaction, SIGPIPE, &ignore, &before, sizeof ignore.mask);
    if (answer == 0) answer = raw4(SYS_rt_sigaction, SIGPIPE, &before, 0, sizeof before.mask);
    if (answer < 0) fail(birth, GUARDIAN_STAGE_SIGNALS, SIGPIPE, answer);
  }

  // The default actions are in force: from here on a signal ends the child, and not half of it.
  uint64_t none = 0;
  answer = raw4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
  if (answer < 0) fail(birth, GUARDIAN_STAGE_SIGNALS, 0, answer);

  answer = raw3(SYS_execve, request->path, request->argv, request->envp);
  fail(birth, GUARDIAN_STAGE_EXEC, 0, answer);
}

GUARDIAN_RAW static long clone_child(uint64_t flags, char *stack, int *pidfd, struct birth *birth) {
  struct clone_args arguments = {
      .flags = flags | CLONE_PIDFD,
      .pidfd = (uint64_t)(uintptr_t)pidfd,
      .exit_signal = SIGCHLD,
      .stack = (uint64_t)(uintptr_t)stack,
      .stack_size = stack ? STACK_SIZE : 0,
  };
  bool into = birth->request->cgroup >= 0;
  if (into) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = (uint64_t)birth->request->cgroup;
  }
  // Kernels that know no control groups here refuse the longer form.
  long answer = raw_clone(SYS_clone3, (long)&arguments, into ? CLONE_ARGS_SIZE_VER2 : CLONE_ARGS_SIZE_VER0, 0, child,
                          birth);
  // Born elsewhere is not what was asked for.
  if ((answer != -ENOSYS && answer != -EPERM) || into) return answer;
  // Filters of containers say that there is no clone3, or that it is forbidden; the older call can do the same.
  return raw_clone(SYS_clone, (long)(flags | CLONE_PIDFD | SIGCHLD), (long)(stack ? stack + STACK_SIZE : 0),
                   (long)pidfd, child, birth);
}

GUARDIAN_RAW __attribute__((noreturn)) static void be_gone(void *context) {
  (void)context;
  for (;;) raw1(SYS_exit_group, 0);
}

int guardian_probe_cgroup(int directory) {
  struct clone_args arguments = {
      .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)directory};
  uint64_t all = ~(uint64_t)0, before = 0;
  raw4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  long pid = raw_clone(SYS_clone3, (long)&arguments, CLONE_ARGS_SIZE_VER2, 0, be_gone, 0);
  int answer = (int)pid;
  if (pid > 0) {
    siginfo_t end = {0};
    while (waitid(P_PID, (id_t)pid, &end, WEXITED) < 0 && errno == EINTR) continue;
    answer = end.si_code == CLD_EXITED && end.si_status == 0;
  }
  raw4(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before);
  return answer;
}

// To copy a table of thousands of descriptors and to close them again takes several times as long as all the rest of a
// start. So the child shares the table at first, and leaves it with a copy of the lowest numbers alone. What it is to
// keep must be there: a few low numbers are set aside for that, and are filled for the time of a start. The first of
// them stays /dev/null, with which the others are emptied: a descriptor left in one would keep a pipe open for ever.
enum { SLOTS = 9, LOW = 256 };
static int slots[SLOTS];

static void set_slots_aside(void) {
  int idle = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int i = 0; i < SLOTS; i++) slots[i] = idle < 0 ? -1 : i == 0 ? idle : fcntl(idle, F_DUPFD_CLOEXEC, 3);
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i] >= 3 && slots[i] < LOW) continue;
    // Too late for low numbers, or none is left: starts are slower then, and no less right.
    for (int j = i; j < SLOTS; j++) {
      if (slots[j] >= 0) close(slots[j]);
      slots[j] = -1;
    }
    return;
  }
}

// How many slots are filled; `*highest` is the highest number that the child is to keep, or -1 where it is no low one.
static int fill_slots(const struct guardian_spawn_request *request, int *highest) {
  int used = 0;
  *highest = 2;
  for (size_t i = 0; i < request->descriptor_count && *highest >= 0; i++) {
    struct guardian_descriptor *one = &request->descriptors[i];
    if (one->source >= LOW) {
      int slot = used + 1 < SLOTS ? slots[used + 1] : -1;
      if (slot < 0 || dup3(one->source, slot, O_CLOEXEC) < 0) {
        *highest = -1;
        break;
      }
      one->source = slot;
      used++;
    }
    if (one->source > *highest) *highest = one->source;
  }
  return used;
}

static void empty_slots(int used) {
  for (int i = 1; i <= used; i++) dup3(slots[0], slots[i], O_CLOEXEC);
}

int guardian_spawn(const struct guardian_spawn_request *request, struct guardian_spawn_result *result) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char *stack;
  static bool slots_are_set;

  *result = (struct guardian_spawn_result){.pid = -1, .pidfd = -1, .stage = GUARDIAN_STAGE_CLONE, .index = 0};
  struct birth birth = {.request = request, .report = request->separate ? request->report : -1};

  guardian_read_fail_points();
  // The C library's own signals too: its handlers would act upon our threads from within the child.
  uint64_t all = ~(uint64_t)0, before = 0;
  raw4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);

  int pidfd = -1;
  long pid;
  if (request->separate) {
    pid = clone_child(0, NULL, &pidfd, &birth);
  } else {
    pthread_mutex_lock(&lock);
    if (!slots_are_set) {
      set_slots_aside();
      slots_are_set = true;
    }
    if (!stack) {
      char *mapping = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
      if (mapping != MAP_FAILED && mprotect(mapping + GUARD_SIZE, STACK_SIZE, PROT_READ | PROT_WRITE) == 0)
        stack = mapping + GUARD_SIZE;
      else if (mapping != MAP_FAILED)
        munmap(mapping, GUARD_SIZE + STACK_SIZE);
    }
    if (stack) {
      int highest;
      int used = fill_slots(request, &highest);
      birth.unshare_from = highest < 0 ? 0 : (unsigned)highest + 1;
      uint64_t share = highest < 0 ? 0 : CLONE_FILES;
      int dumpable = request->set_identity ? prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) : -1;
      pid = clone_child(CLONE_VM | CLONE_VFORK | share, stack, &pidfd, &birth);
      // A child that changes its user takes the right to dump core from all who share its memory, which is us.
      if (dumpable == 1) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
      empty_slots(used);
    } else {
      pid = -ENOMEM;
    }
    pthread_mutex_unlock(&lock);
  }

  int answer = 0;
  if (pid < 0) {
    answer = (int)pid;
  } else if (birth.stage != 0) {
    result->stage = (enum guardian_stage)birth.stage;
    result->index = birth.index;
    answer = -birth.error;
    siginfo_t ignored;
    while (waitid(P_PID, (id_t)pid, &ignored, WEXITED) < 0 && errno == EINTR) continue;
    close(pidfd);
  } else {
    result->pid = (pid_t)pid;
    result->pidfd = pidfd;
  }
  raw4(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before);
  return answer;
}
