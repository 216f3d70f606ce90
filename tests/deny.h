/* deny.h: a child process in which the kernel refuses a system call, as an older or a stricter one
 * does (seccomp). */
#ifndef RM_TESTS_DENY_H
#define RM_TESTS_DENY_H

#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From now on, in this process, the call fails with error when its argument has all bits of mask
 * (0: always). False where filters are not allowed. */
static inline bool deny(uint32_t call, uint32_t argument, uint32_t mask, uint32_t error) {
    const uint32_t at = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * argument);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* Runs body in a child; its failures are this program's. False: body said that it could not run. */
static inline bool in_child(bool (*body)(void)) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int before = t_failures;
        const bool ran = body();
        _exit(t_failures != before ? 1 : ran ? 0 : 77);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 77)) {
        t_fail("the child ended with %#x", (unsigned)status);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) != 77;
}

#endif /* RM_TESTS_DENY_H */
