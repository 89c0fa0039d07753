/*
 * bin/seglog of a bundle: runs the Python beside it, wherever the bundle lies and however it is called.
 *
 * It is static and needs nothing of the system. Python is isolated: no variable of the environment, no directory of a
 * user and not the working directory change what is imported, and nothing is written into the bundle.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PYTHON "/python/bin/" PYTHON_NAME
#define START "/python/start.py"

/* The path of this program, without symbolic links. Without /proc, that by which it was called. */
static int own_path(char *path)
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = '\0';
        return 1;
    }
    const char *called = (const char *)getauxval(AT_EXECFN);
    return called != NULL && realpath(called, path) != NULL;
}

int main(int count, char **arguments)
{
    char root[PATH_MAX], python[PATH_MAX + sizeof PYTHON], start[PATH_MAX + sizeof START];
    char **given = calloc((size_t)count + 6, sizeof *given);
    if (given == NULL || !own_path(root)) {
        fprintf(stderr, "error: seglog cannot find its own directory: %s\n", strerror(errno));
        return 1;
    }
    for (int levels = 0; levels < 2; levels++) { /* bin/seglog */
        char *slash = strrchr(root, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    strcat(strcpy(python, root), PYTHON);
    strcat(strcpy(start, root), START);
    char *fixed[] = {python, "-I", "-B", start};
    memcpy(given, fixed, sizeof fixed);
    for (int i = 1; i < count; i++)
        given[sizeof fixed / sizeof *fixed + (size_t)i - 1] = arguments[i];
    execv(python, given);
    int reason = errno;
    fprintf(stderr, "error: %s: %s\n", python, strerror(reason));
    if (reason == ENOENT && access(python, F_OK) == 0)
        fputs("seglog's bundle needs glibc 2.17 or later, and this system has another C library (Alpine's is musl): use"
              " the image, or run it from a container or host with glibc\n", stderr);
    if (reason == EACCES)
        fputs("the bundle must lie on a file system that is not mounted noexec\n", stderr);
    return 126;
}
