#define _GNU_SOURCE
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guardian_kernel.h"

#define EVENT_PTRACE 0x00000100u

// Linux 6.6 has it in its headers; the C library's may be older. A kernel that is older takes no notice of a message of
// this length, and so sends nothing, where the short form would have it send every fork and every exit.
struct filtered_listen {
  uint32_t operation;
  uint32_t events;
};

int guardian_tracers_open(void) {
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
  if (fd < 0) return -errno;
  struct sockaddr_nl us = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
  if (bind(fd, (struct sockaddr *)&us, sizeof us) < 0) goto failed;

  char message[NLMSG_SPACE(sizeof(struct cn_msg) + sizeof(struct filtered_listen))] __attribute__((aligned(8)));
  memset(message, 0, sizeof message);
  struct nlmsghdr *header = (struct nlmsghdr *)message;
  header->nlmsg_len = NLMSG_LENGTH(sizeof(struct cn_msg) + sizeof(struct filtered_listen));
  header->nlmsg_type = NLMSG_DONE;
  header->nlmsg_pid = (uint32_t)getpid();
  struct cn_msg body = {.id = {CN_IDX_PROC, CN_VAL_PROC}, .len = sizeof(struct filtered_listen)};
  memcpy(NLMSG_DATA(header), &body, sizeof body);
  struct filtered_listen listen = {PROC_CN_MCAST_LISTEN, EVENT_PTRACE};
  memcpy((char *)NLMSG_DATA(header) + sizeof body, &listen, sizeof listen);
  if (send(fd, message, header->nlmsg_len, MSG_DONTWAIT) < 0) goto failed;
  return fd;

failed:;
  int error = errno;
  close(fd);
  return -error;
}

int guardian_tracers_read(int descriptor, pid_t *process, pid_t *tracer) {
  for (;;) {
    char message[1024] __attribute__((aligned(8)));
    struct sockaddr_nl from;
    socklen_t from_length = sizeof from;
    ssize_t length = recvfrom(descriptor, message, sizeof message, MSG_DONTWAIT, (struct sockaddr *)&from, &from_length);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return errno == EAGAIN ? 0 : -errno;
    // Any process may send to this address; only the kernel has the number 0.
    if (from_length < sizeof from || from.nl_pid != 0) continue;
    size_t before = NLMSG_HDRLEN + sizeof(struct cn_msg);
    struct proc_event event;
    if ((size_t)length < before + sizeof event) continue;
    struct cn_msg body;
    memcpy(&body, message + NLMSG_HDRLEN, sizeof body);
    memcpy(&event, message + before, sizeof event);
    if (body.id.idx != CN_IDX_PROC || (uint32_t)event.what != EVENT_PTRACE) continue;
    *process = event.event_data.ptrace.process_tgid;
    *tracer = event.event_data.ptrace.tracer_tgid;
    return 1;
  }
}
