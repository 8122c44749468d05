// Processes that come from processes. Each allocates under the hooks; the page tells who counted what.
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>
#include "cuda.h"

static void hold(size_t bytes) {
    Ptr p;
    OK(cuMemAlloc_v2(&p, bytes));
}

static int reap(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) return 96;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}

int main(int argc, char **argv) {
    const char *way = argv[1];
    pid_t child;
    if (!strcmp(way, "fork_before")) {
        if (!(child = fork())) { hold(100); _exit(0); }
        hold(1000);
        return reap(child);
    }
    if (!strcmp(way, "fork_after") || !strcmp(way, "raw_clone")) {
        Ptr p;
        OK(cuMemAlloc_v2(&p, 1000));
        child = way[0] == 'f' ? fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!child) {
            hold(100);
            cuMemFree_v2(p);  // the parent's, not the child's
            _exit(0);
        }
        return reap(child);
    }
    if (!strcmp(way, "idle_child")) {  // outlives its parent, which must be seen to end
        hold(1000);
        if (!fork()) { close(0); close(1); close(2); sleep(3); _exit(0); }
        return 0;
    }
    if (!strcmp(way, "vfork_exec")) {
        hold(1000);
        if (!(child = vfork())) { execl("/proc/self/exe", argv[0], "hold", "30", NULL); _exit(94); }
        return reap(child);
    }
    if (!strcmp(way, "exec")) {  // the same process, another program: its memory went with the first
        hold(1000);
        execl("/proc/self/exe", argv[0], "hold", "30", NULL);
        return 94;
    }
    if (!strcmp(way, "hold")) { hold(atol(argv[2])); return 0; }
    if (!strcmp(way, "closed_fds")) {
        close(0); close(1); close(2);
        hold(1000);
        // The next file is 0, as it is without us.
        return open("/dev/null", O_RDWR) == 0 && open("/dev/null", O_RDWR) == 1 ? 0 : 93;
    }
    if (!strcmp(way, "small_files")) {  // a file that grows beyond the limit raises SIGXFSZ
        struct rlimit limit = {4096, 4096};
        if (setrlimit(RLIMIT_FSIZE, &limit)) return 90;
        hold(1000);
        return 0;
    }
    if (!strcmp(way, "few_files")) {  // no descriptor is left for us
        struct rlimit limit = {3, 3};
        if (setrlimit(RLIMIT_NOFILE, &limit)) return 90;
        hold(1000);
        return 0;
    }
    if (!strcmp(way, "close_all")) {  // as a daemon does
        hold(1000);
        for (int fd = 3; fd < 256; fd++) close(fd);
        for (int i = 0; i < 20; i++) { hold(10); usleep(10000); }
        return 0;
    }
    if (!strcmp(way, "take_numbers")) {  // puts a file of its own in the place of each descriptor
        hold(1000);
        usleep(50000);
        char name[] = "/tmp/migm-numbers-XXXXXX";
        int file = mkstemp(name);
        unlink(name);
        struct stat own, now;
        fstat(file, &own);
        for (int fd = 60; fd < 100; fd++) dup2(file, fd);
        for (int i = 0; i < 30; i++) { hold(10); cuCtxSynchronize(); usleep(10000); }
        for (int fd = 60; fd < 100; fd++)
            if (fstat(fd, &now) || now.st_ino != own.st_ino) return 88;
        return lseek(file, 0, SEEK_END) == 0 ? 0 : 92;
    }
    if (!strcmp(way, "daemon")) {  // argv[2] appears when the daemon is done
        hold(1000);
        if (fork()) return 0;
        setsid();
        if (fork()) _exit(0);
        for (int fd = 0; fd < 1024; fd++) close(fd);
        int done = open(argv[2], O_CREAT | O_WRONLY, 0600);
        if (done != 0) return 89;  // the first number is free, as it is without us
        hold(30);
        hold(4);
        return write(done, "done", 4) == 4 ? 0 : 87;
    }
    if (!strcmp(way, "upgraded")) {  // waits for a line while the interposer's file is replaced
        hold(1000);
        printf("ready\n");
        fflush(stdout);
        if (getchar() != '\n') return 86;
        for (int i = 0; i < 100; i++) hold(1);
        execl("/proc/self/exe", argv[0], "hold", "30", NULL);
        return 94;
    }
    if (!strcmp(way, "killed")) {
        hold(1000);
        hold(234);
        kill(getpid(), SIGKILL);
    }
    return 91;
}
