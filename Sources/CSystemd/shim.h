#pragma once
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <systemd/sd-journal.h>
// What the Glibc module leaves out.
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/xattr.h>
