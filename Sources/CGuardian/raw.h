// System calls that touch nothing of the C library's: no errno, no cancellation, no locks, no signals to other threads.
#pragma once
#include <sys/syscall.h>

// Nothing between clone and exec may call into a sanitizer's run-time, which the child shares with the caller.
#define GUARDIAN_RAW __attribute__((no_sanitize("thread", "address", "undefined")))

#if defined(__x86_64__)
GUARDIAN_RAW static inline long raw6(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  long answer;
  __asm__ volatile("syscall"
                   : "=a"(answer)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return answer;
}

/// A clone call whose child runs `body(context)` on the stack that the call names, and never returns from here.
GUARDIAN_RAW __attribute__((noinline, unused)) static long raw_clone(long number, long a, long b, long c,
                                                             void (*body)(void *), void *context) {
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  register void (*r12)(void *) __asm__("r12") = body;
  register void *r13 __asm__("r13") = context;
  long answer;
  __asm__ volatile("syscall\n\t"
                   "testq %%rax, %%rax\n\t"
                   "jnz 1f\n\t"
                   "xorl %%ebp, %%ebp\n\t"
                   "andq $-16, %%rsp\n\t"
                   "movq %%r13, %%rdi\n\t"
                   "callq *%%r12\n\t"
                   "ud2\n"
                   "1:"
                   : "=a"(answer)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
                   : "rcx", "r11", "memory");
  return answer;
}
#elif defined(__aarch64__)
GUARDIAN_RAW static inline long raw6(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

/// A clone call whose child runs `body(context)` on the stack that the call names, and never returns from here.
GUARDIAN_RAW __attribute__((noinline, unused)) static long raw_clone(long number, long a, long b, long c,
                                                             void (*body)(void *), void *context) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = 0;
  register long x4 __asm__("x4") = 0;
  register void (*x9)(void *) __asm__("x9") = body;
  register void *x10 __asm__("x10") = context;
  __asm__ volatile("svc #0\n\t"
                   "cbnz x0, 1f\n\t"
                   "mov x29, xzr\n\t"
                   "mov x30, xzr\n\t"
                   "mov x0, x10\n\t"
                   "blr x9\n\t"
                   "brk #1\n"
                   "1:"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9), "r"(x10)
                   : "memory");
  return x0;
}
#else
#error "guardian starts processes with a raw clone3, which is written for x86-64 and AArch64"
#endif

#define raw1(n, a) raw6((n), (long)(a), 0, 0, 0, 0, 0)
#define raw2(n, a, b) raw6((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define raw3(n, a, b, c) raw6((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define raw4(n, a, b, c, d) raw6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
