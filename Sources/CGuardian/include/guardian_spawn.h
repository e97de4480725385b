#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// Where a start failed, mostly in the order in which the child takes the stages. GuardianModel's `SpawnFailure.Stage` has the
/// same raw values.
enum guardian_stage {
  GUARDIAN_STAGE_CLONE = 1,
  GUARDIAN_STAGE_SESSION,
  GUARDIAN_STAGE_SIGNALS,
  GUARDIAN_STAGE_DESCRIPTORS,
  GUARDIAN_STAGE_LIMITS,
  GUARDIAN_STAGE_PRIORITY,
  GUARDIAN_STAGE_OOM_SCORE,
  GUARDIAN_STAGE_HIDE,
  GUARDIAN_STAGE_IDENTITY,
  GUARDIAN_STAGE_UMASK,
  GUARDIAN_STAGE_DIRECTORY,
  GUARDIAN_STAGE_EXEC,
  // 13 is a stage before the child. Numbers are kept on disk, so that what comes later has the next one.
  GUARDIAN_STAGE_CAPABILITIES = 14,
};

/// `source` is a descriptor of the caller, `target` its number in the child.
struct guardian_descriptor {
  int source, target;
};

struct guardian_limit {
  int resource;
  /// When 0, the hard limit stays as it is and `soft` is cut down to it.
  int set_hard;
  uint64_t soft, hard;
};

/// One path to hide, split at its last slash. Paths of one directory follow each other, and a directory comes before
/// those below it.
struct guardian_hide {
  const char *_Nonnull directory, *_Nonnull name;
  /// Of `guardian_hide_way`.
  int way;
  /// Of a copy: what is in it, and whose it is. Borrowed for the call.
  const void *_Nullable content;
  size_t size;
  uid_t uid;
  gid_t gid;
  mode_t mode;
};

enum guardian_hide_way {
  /// Absent, unless its directory must stay writable.
  GUARDIAN_HIDE_ABSENT,
  /// Absent in a view of the directory that is made for this, and read-only.
  GUARDIAN_HIDE_IN_VIEW,
  /// There, and empty.
  GUARDIAN_HIDE_EMPTY,
  /// There, and with other content.
  GUARDIAN_HIDE_COPY,
};

enum guardian_hidden {
  GUARDIAN_HIDDEN_ABSENT = 1,
  GUARDIAN_HIDDEN_EMPTY,
  GUARDIAN_HIDDEN_MISSING,
  GUARDIAN_HIDDEN_COPY,
};

/// What a child leaves behind of its birth, in memory that outlives its parent: it is `pid`, of the run `high`, `low`, and it
/// was there at `at` (CLOCK_BOOTTIME, nanoseconds). Written by the child itself, its run last, so a mark that names a run is
/// whole.
struct guardian_birth_mark {
  uint64_t high, low;
  int64_t at;
  int32_t pid;
  int32_t reserved;
};

/// All pointers are borrowed for the call.
struct guardian_spawn_request {
  const char *_Nonnull path;
  char *const _Nullable *_Nonnull argv;
  char *const _Nullable *_Nonnull envp;
  const char *_Nonnull directory;
  uint32_t umask;

  /// Sorted by target, targets unique; whatever is not listed is closed, also 0, 1 and 2. The sources are changed.
  struct guardian_descriptor *_Nullable descriptors;
  size_t descriptor_count;

  const struct guardian_limit *_Nullable limits;
  size_t limit_count;

  int set_nice, nice;
  int set_oom_score, oom_score;

  int set_identity;
  uid_t uid;
  gid_t gid;
  /// Sorted upwards, as the kernel gives them back, none twice.
  const gid_t *_Nullable groups;
  size_t group_count;
  /// Room for `group_count` + 1, in which the child reads its groups back.
  gid_t *_Nullable group_room;

  /// Ambient, as bits by number, beside what `uid` has by itself; 0 leaves capabilities to the kernel's rules.
  uint64_t capabilities;

  int keep_sigpipe_ignored;

  /// Room for ten digits and a NUL within a string of `envp`, where the child writes its own pid.
  char *_Nullable own_pid;

  /// The directory of the control group (version 2) in which the child is born, or below 0: the caller's own. CLONE_INTO_CGROUP.
  int cgroup;

  /// Shared memory; the run to be written into it.
  volatile struct guardian_birth_mark *_Nullable mark;
  uint64_t run_high, run_low;

  /// Keep to one processor of those that the caller may use. Left undone where that is not possible.
  int single_cpu;

  /// Not empty only with `separate`.
  const struct guardian_hide *_Nullable hide;
  size_t hide_count;

  /// A child with its own memory, which may block without holding up the caller; what it has to say comes as
  /// `guardian_report`s through the pipe.
  int separate;
  /// The write end of that pipe, CLOEXEC; the caller closes its own copy afterwards.
  int report;
};

struct guardian_spawn_result {
  pid_t pid;
  /// CLOEXEC; the caller owns it.
  int pidfd;
  /// On failure: where, and the number of the descriptor, limit or hidden path concerned.
  enum guardian_stage stage;
  int index;
};

/// What a child with its own memory tells. End of file after no failure means that it has come to its exec (or was
/// killed on the way).
struct guardian_report {
  /// 0: hidden path `index` was treated as `value` (enum guardian_hidden). Else an enum guardian_stage that failed with
  /// errno `value` at `index`.
  int32_t stage, index, value;
};

/// Whether a child that is born in the control group `directory` lives to its end, which is at once: 1, 0 (the kernel kills
/// it), or -errno.
int guardian_probe_cgroup(int directory);

/// Starts a process in a session of its own. Returns 0 and fills pid and pidfd, or returns -errno with stage and index;
/// then nothing is left of the child. Without `separate` the calling thread stands still until the exec; the child
/// then makes raw system calls only, since it shares all memory with the caller. May be called from several threads.
int guardian_spawn(const struct guardian_spawn_request *_Nonnull request, struct guardian_spawn_result *_Nonnull result);
