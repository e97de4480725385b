// A service whose READY=1 comes from a child that is gone before anybody can look who it was. The child sends BARRIER=1
// with it and leaves the other end to its parent, which writes one line into the file that it is given: whether guardian
// closed the barrier within ten seconds.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *text, int descriptor) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, getenv("NOTIFY_SOCKET"), sizeof address.sun_path - 1);
  int end = socket(AF_UNIX, SOCK_DGRAM, 0);
  struct iovec part = {(void *)text, strlen(text)};
  union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
  struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
  }
  if (sendmsg(end, &message, 0) < 0) _exit(1);
}

int main(int count, char **words) {
  int barrier[2];
  if (count != 2 || pipe(barrier) < 0) return 64;
  pid_t child = fork();
  if (child == 0) {
    say("READY=1", -1);
    say("BARRIER=1", barrier[1]);
    _exit(0);
  }
  close(barrier[1]);
  int status = 0;
  waitpid(child, &status, 0);
  struct pollfd closed = {.fd = barrier[0], .events = POLLIN};
  char line[64];
  int length = snprintf(line, sizeof line, "%s\n", status == 0 && poll(&closed, 1, 10000) == 1 ? "closed" : "open");
  int file = open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (write(file, line, length) != length) return 1;
  for (;;) pause();
}
