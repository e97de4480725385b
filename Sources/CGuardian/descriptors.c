#define _GNU_SOURCE
#include "guardian_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int guardian_send_message(int socket, const void *bytes, size_t count, int descriptor) {
  struct iovec part = {(void *)bytes, count};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    memset(&control, 0, sizeof control);
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

int64_t guardian_receive_message(int socket, void *bytes, size_t count, int *descriptor) {
  struct iovec part = {bytes, count};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(8 * sizeof(int))];
  } control;
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  *descriptor = -1;
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return -errno;
  for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    size_t number = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < number; i++) {
      int one;
      memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof one);
      if (*descriptor < 0)
        *descriptor = one;
      else
        close(one);
    }
  }
  if (message.msg_flags & MSG_TRUNC) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
    return -EMSGSIZE;
  }
  return got;
}

int guardian_poll_make(void) {
  int made = epoll_create1(EPOLL_CLOEXEC);
  return made < 0 ? -errno : made;
}

int guardian_poll_watch(int poll, int descriptor, int wanted, int add) {
  struct epoll_event event = {.data.fd = descriptor};
  if (wanted & GUARDIAN_POLL_READ) event.events |= EPOLLIN;
  if (wanted & GUARDIAN_POLL_WRITE) event.events |= EPOLLOUT;
  return epoll_ctl(poll, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event) < 0 ? -errno : 0;
}

int guardian_poll_forget(int poll, int descriptor) {
  return epoll_ctl(poll, EPOLL_CTL_DEL, descriptor, NULL) < 0 ? -errno : 0;
}

int guardian_poll_wait(int poll, int *ready, int count, int milliseconds) {
  struct epoll_event events[64];
  if (count > 64) count = 64;
  int number = epoll_wait(poll, events, count, milliseconds);
  if (number < 0) return -errno;
  for (int i = 0; i < number; i++) ready[i] = events[i].data.fd;
  return number;
}

int guardian_pipe_room(int pipe, int bytes) {
  int room = fcntl(pipe, F_SETPIPE_SZ, bytes);
  return room < 0 ? -errno : room;
}

int guardian_give_up_power(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -errno;
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}
