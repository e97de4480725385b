#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// A handle for process `pid`, CLOEXEC, or -errno. pidfd_open(2); where the kernel or a filter has no such call, the
/// process's directory in /proc, which does not tell of the process's end (`guardian_is_proc_handle`).
int guardian_pidfd_open(pid_t pid);

/// Sends `signal` to the process behind `pidfd`, of either kind; 0 or -errno. pidfd_send_signal(2); where there is no such
/// call, kill(2) by the number that the handle still holds.
int guardian_pidfd_signal(int pidfd, int signal);

/// Whether a handle is a directory of /proc: it cannot be waited for.
int guardian_is_proc_handle(int handle);

/// Whether the kernel has these calls and no filter forbids them: 1 or 0. Nothing is done by asking.
int guardian_has_pidfd_open(void);
int guardian_has_pidfd_signal(void);
int guardian_has_close_range(void);
int guardian_has_memfd(void);

/// Blocks the signals that guardian takes from its event loop, for this thread and those it makes later; 0 or -errno.
/// As PID 1 that has happened before main. Children start with an empty mask all the same.
int guardian_block_signals(void);

/// Copies all extended attributes, access lists and security labels among them. 0, or -errno of the last that could not
/// be copied; the others are.
int guardian_copy_attributes(int from, int to);

/// Whether the file at `path` gives capabilities to whoever executes it.
int guardian_has_capabilities(const char *_Nonnull path);

/// A pipe, read end first; both CLOEXEC and non-blocking. 0 or -errno. pipe2(2).
int guardian_pipe(int *_Nonnull ends);

/// openat2(2): a descriptor or -errno. `resolve` holds RESOLVE_ flags.
int guardian_openat2(int directory, const char *_Nonnull path, uint64_t flags, uint64_t mode, uint64_t resolve);

/// Flags that Swift does not see, RESOLVE_ and O_.
enum {
  GUARDIAN_RESOLVE_NO_SYMLINKS = 0x04,
  GUARDIAN_RESOLVE_NO_MAGICLINKS = 0x02,
  GUARDIAN_RESOLVE_NO_XDEV = 0x01,
  GUARDIAN_RESOLVE_CACHED = 0x20,
  GUARDIAN_O_PATH = 010000000,
};

/// Like renameat2 with RENAME_NOREPLACE; 0 or -errno. Falls back to link-free checks nowhere: EINVAL where the file
/// system cannot do it.
int guardian_rename_new(int from, const char *_Nonnull name, int to, const char *_Nonnull new_name);

/// Whether `name` in `directory` (the directory itself, where empty) is the root of a mount: 1, 0, or -errno. Follows
/// no link. statx(2).
int guardian_is_mount_root(int directory, const char *_Nonnull name);

/// The number of the mount on which `descriptor` lies, as in /proc/self/mountinfo, without asking a server; or -errno.
int64_t guardian_mount_id(int descriptor);

/// Makes orphaned descendants ours to reap; 0 or -errno. prctl(2) PR_SET_CHILD_SUBREAPER.
int guardian_become_subreaper(void);
/// 1, 0 or -errno.
int guardian_is_subreaper(void);

/// 1 if this thread has CAP_SYS_ADMIN in effect, 0 if not, or -errno. capget(2).
int guardian_may_mount(void);

/// The capabilities that are permitted to this thread, as bits by number; 0 where the kernel does not tell. capget(2).
uint64_t guardian_permitted_capabilities(void);

/// Whether `path` lies on a mount that executes nothing: 1, 0 or -errno. statvfs(3).
int guardian_is_noexec(const char *_Nonnull path);

/// mallopt(3) M_ARENA_MAX and malloc_trim(3), which the C library's module does not show.
void guardian_use_one_arena(void);
void guardian_trim_heap(void);
/// Lets go of the pages of the program and its libraries that are as their files have them: what is needed of them again
/// comes back from the page cache as it is touched. Not under a debugger, whose breakpoints would go with them.
void guardian_trim_text(void);

/// Opens the kernel's news of tracers that attach and detach, of any process on the host; the caller owns the
/// descriptor. -errno where they are not to be had: needs CAP_NET_ADMIN and the initial pid namespace. Before Linux 6.6
/// it opens and stays silent. Netlink connector, PROC_EVENT_PTRACE.
int guardian_tracers_open(void);
/// 1 and `process` has the tracer `tracer` from now on (0: none); 0 where there is no news, or -errno (ENOBUFS: lost some).
int guardian_tracers_read(int descriptor, pid_t *_Nonnull process, pid_t *_Nonnull tracer);

/// The calling thread's number. gettid(2).
pid_t guardian_thread_id(void);

/// Nobody but root can read or trace this process from here on, and it dumps no core. PR_SET_DUMPABLE.
void guardian_hide_process(void);

/// How a process ended, by waitid(2).
struct guardian_end {
  pid_t pid;
  /// CLD_EXITED, CLD_KILLED or CLD_DUMPED.
  int code;
  int status;
  /// What it and those that it had waited for have used.
  int64_t user_us, system_us, peak_kib;
};

/// Looks at any child that has ended (of any thread, or of this one) and leaves it to be reaped. 1 and `end`, 0 where
/// none has, or -errno (ECHILD: there are no children).
int guardian_peek_any(int of_this_thread, struct guardian_end *_Nonnull end);

/// Reaps child `pid` if it has ended; with `wait`, waits for it. Answers as `guardian_peek_any`.
int guardian_reap(pid_t pid, int wait, struct guardian_end *_Nonnull end);

/// How the process behind `pidfd` ended, also where it is not our child: 1 and `wait_status` as of wait(2); 0 where it
/// lives, or nobody has reaped it yet; -ESRCH where it is gone and the kernel does not know any more; -ENOTTY and the
/// like where the kernel lacks this (before 6.15). The descriptor must be older than the reaping. ioctl PIDFD_GET_INFO.
int guardian_pidfd_end(int pidfd, int *_Nonnull wait_status);

/// memfd_create(2), CLOEXEC: a descriptor or -errno. Where there is no such call, a file without a name in /dev/shm, /run
/// or /tmp, for this user alone.
int guardian_memfd(const char *_Nonnull name);

/// execve(2) of an open file, or of `path` where `descriptor` is below 0; returns only on failure, -errno.
int guardian_exec(int descriptor, const char *_Nonnull path, char *const _Nullable *_Nonnull argv,
                  char *const _Nullable *_Nonnull envp);

/// Whether a child can be born in a control group: 1, 0 (no clone3, or a filter forbids it). Version 2 itself is not looked at.
int guardian_has_clone3(void);

/// Whether everything that is changed below `descriptor` is changed by this kernel, which then tells it to whoever watches:
/// 1, 0 (network and user-space file systems) or -errno. fstatfs(2).
int guardian_is_local(int descriptor);

/// Whether `descriptor` lies on the file system of control groups, version 2: 1, 0 or -errno. fstatfs(2).
int guardian_is_cgroup2(int descriptor);

/// Closes or opens the way of a descriptor through exec; 0 or -errno. FD_CLOEXEC.
int guardian_set_cloexec(int descriptor, int on);
