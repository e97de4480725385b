#pragma once
#include <stddef.h>
#include <stdint.h>

/// Sends one message, with a duplicate of `descriptor` where that is not below 0. Waits for nothing and raises no SIGPIPE.
/// 0 or -errno (EAGAIN: there is no room now). sendmsg(2) with SCM_RIGHTS.
int guardian_send_message(int socket, const void *_Nonnull bytes, size_t count, int descriptor);

/// Receives one message of at most `count` bytes and the descriptor that came with it, CLOEXEC and the caller's to close, or
/// -1. The number of bytes (0: nobody is at the other end any more), or -errno (EAGAIN: there is none now; EMSGSIZE: it was
/// longer). Of several descriptors the first is kept. Waits for nothing.
int64_t guardian_receive_message(int socket, void *_Nonnull bytes, size_t count, int *_Nonnull descriptor);

/// epoll_create1(2), CLOEXEC: a descriptor or -errno.
int guardian_poll_make(void);

enum { GUARDIAN_POLL_READ = 1, GUARDIAN_POLL_WRITE = 2 };

/// What `descriptor` is watched for from now on, a sum of GUARDIAN_POLL_; its end and its errors always count. `add` it
/// first. 0 or -errno. epoll_ctl(2).
int guardian_poll_watch(int poll, int descriptor, int wanted, int add);
int guardian_poll_forget(int poll, int descriptor);

/// Waits for at most `milliseconds` (below 0: as long as it takes) and fills `ready` with descriptors that are readable,
/// writable or at their end. How many there are, at most `count`, at most 64; or -errno. epoll_wait(2).
int guardian_poll_wait(int poll, int *_Nonnull ready, int count, int milliseconds);

/// Makes room for `bytes` in a pipe: how much there is now, or -errno. fcntl(2) F_SETPIPE_SZ.
int guardian_pipe_room(int pipe, int bytes);

/// Gives all capabilities up for good, whoever the user is; 0 or -errno. capset(2), PR_SET_NO_NEW_PRIVS.
int guardian_give_up_power(void);
