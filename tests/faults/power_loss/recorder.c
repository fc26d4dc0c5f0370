/* Records what a process changes below one folder: data, names and syncs, in order.
 *
 * Loaded with LD_PRELOAD. CROSSBIT_RECORD_ROOT is the folder, as a canonical path, and
 * CROSSBIT_RECORD_LOG the file to append to. Every function below replaces the one of the C
 * library: it makes the system call and, if that succeeded below the folder, appends one record.
 * One lock is held over both, so the order of the records is the order of the calls. Files and
 * folders are identified by their inode numbers; recording.py keeps track of reused numbers.
 *
 * Stores into shared writable mappings cannot be seen. The mapping itself is recorded, and the
 * reader of the log accepts it for SQLite's -shm file alone, which SQLite never trusts after a
 * crash. sync_file_range is no promise of durability and is not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    CREATE = 1, MKDIR, LINK, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, EXTEND, SYNC, SYNC_ALL, MAP,
    MARK, UNSUPPORTED
};

struct record { /* followed by the two names and `length` bytes of data */
    uint32_t kind, flags;
    uint64_t inode, folder, folder2, offset, length;
    uint32_t name_length, name2_length;
};

struct place { /* where a path points: the folder that holds its last part */
    uint64_t folder;
    char name[NAME_MAX + 1];
};

static char root[PATH_MAX];
static int log_file = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("CROSSBIT_RECORD_ROOT");
    const char *log = getenv("CROSSBIT_RECORD_LOG");
    if (folder == NULL || log == NULL || strlen(folder) >= sizeof root) return;
    strcpy(root, folder);
    int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    log_file = fcntl(file, F_DUPFD_CLOEXEC, 200);
    syscall(SYS_close, file);
}

static void append(struct record r, const char *name, const char *name2, const void *data) {
    r.name_length = name ? strlen(name) : 0;
    r.name2_length = name2 ? strlen(name2) : 0;
    struct iovec parts[] = {
        {&r, sizeof r},
        {(void *)name, r.name_length},
        {(void *)name2, r.name2_length},
        {(void *)data, data ? r.length : 0},
    };
    size_t total = sizeof r + r.name_length + r.name2_length + parts[3].iov_len;
    if (syscall(SYS_writev, log_file, parts, 4) != (ssize_t)total) abort(); /* no holes in the log */
}

static int below_root(int fd) {
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    size_t prefix = strlen(root);
    if (n < (ssize_t)prefix || memcmp(path, root, prefix) != 0) return 0;
    return n == (ssize_t)prefix || path[prefix] == '/';
}

static uint64_t inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/* Fills in a place and returns 1 if it is below the root. */
static int locate(int at, const char *path, struct place *place) {
    char folder[PATH_MAX];
    if (log_file < 0 || path == NULL || strlen(path) >= sizeof folder) return 0;
    strcpy(folder, path);
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') folder[--end] = 0;
    char *slash = strrchr(folder, '/');
    const char *name = slash ? slash + 1 : folder;
    if (strlen(name) > NAME_MAX) return 0;
    strcpy(place->name, name);
    if (slash) slash[slash == folder] = 0;
    int fd = syscall(SYS_openat, at, slash ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    int inside = below_root(fd);
    place->folder = inode_of(fd);
    syscall(SYS_close, fd);
    return inside;
}

static int recorded(int fd) {
    return log_file >= 0 && fd >= 0 && below_root(fd);
}

/* Appends `length` bytes that were just written at `offset`, or, without data, reads them back. */
static void wrote(int fd, int64_t offset, const void *data, size_t length) {
    struct record r = {.kind = WRITE, .inode = inode_of(fd), .offset = offset, .length = length};
    if (data != NULL) {
        append(r, NULL, NULL, data);
        return;
    }
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int file = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    void *copy = malloc(length);
    if (file < 0 || syscall(SYS_pread64, file, copy, length, offset) != (ssize_t)length) abort();
    append(r, NULL, NULL, copy);
    free(copy);
    syscall(SYS_close, file);
}

/* Marks of the process itself, such as "acknowledged 3"; Python calls this through ctypes. */
void crossbit_mark(const char *text) {
    pthread_mutex_lock(&order);
    append((struct record){.kind = MARK}, text, NULL, NULL);
    pthread_mutex_unlock(&order);
}

/* --- names --- */

static int open_recorded(int at, const char *path, int flags, mode_t mode) {
    struct place place;
    if (!(flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE)
        return syscall(SYS_openat, at, path, flags, mode);
    if (!locate(at, path, &place)) return syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&order);
    struct stat before;
    int existed = fstatat(at, path, &before, 0) == 0;
    int fd = syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0) {
        struct record r = {.kind = CREATE, .inode = inode_of(fd), .folder = place.folder};
        if ((flags & O_TMPFILE) == O_TMPFILE) r.kind = UNSUPPORTED;
        else if (existed) r.kind = TRUNCATE;
        if (!existed || (flags & O_TRUNC) || r.kind == UNSUPPORTED)
            append(r, r.kind == TRUNCATE ? NULL : place.name, NULL, NULL);
    }
    pthread_mutex_unlock(&order);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_recorded(AT_FDCWD, path, flags, mode);                                         \
    }
#define OPENAT(name)                                                                               \
    int name(int at, const char *path, int flags, ...) {                                           \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_recorded(at, path, flags, mode);                                               \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t mode) {
    return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int mkdirat(int at, const char *path, mode_t mode) {
    struct place place;
    if (!locate(at, path, &place)) return syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&order);
    int result = syscall(SYS_mkdirat, at, path, mode);
    struct stat made;
    if (result == 0 && fstatat(at, path, &made, 0) == 0)
        append((struct record){.kind = MKDIR, .inode = made.st_ino, .folder = place.folder},
               place.name, NULL, NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int at, const char *path, int flags) {
    struct place place;
    if (!locate(at, path, &place)) return syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&order);
    int result = syscall(SYS_unlinkat, at, path, flags);
    if (result == 0)
        append((struct record){.kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK,
                               .folder = place.folder}, place.name, NULL, NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int result = unlink(path);
    return result < 0 && errno == EISDIR ? rmdir(path) : result;
}

int renameat2(int at, const char *from, int at2, const char *to, unsigned flags) {
    struct place source, target;
    if (!locate(at, from, &source) || !locate(at2, to, &target))
        return syscall(SYS_renameat2, at, from, at2, to, flags);
    pthread_mutex_lock(&order);
    int result = syscall(SYS_renameat2, at, from, at2, to, flags);
    if (result == 0)
        append((struct record){.kind = RENAME, .flags = flags, .folder = source.folder,
                               .folder2 = target.folder}, source.name, target.name, NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int renameat(int at, const char *from, int at2, const char *to) {
    return renameat2(at, from, at2, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int at, const char *from, int at2, const char *to, int flags) {
    struct place place;
    if (!locate(at2, to, &place)) return syscall(SYS_linkat, at, from, at2, to, flags);
    pthread_mutex_lock(&order);
    int result = syscall(SYS_linkat, at, from, at2, to, flags);
    struct stat linked;
    if (result == 0 && fstatat(at2, to, &linked, AT_SYMLINK_NOFOLLOW) == 0)
        append((struct record){.kind = LINK, .inode = linked.st_ino, .folder = place.folder},
               place.name, NULL, NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *target, int at, const char *path) {
    struct place place;
    int inside = locate(at, path, &place);
    int result = syscall(SYS_symlinkat, target, at, path);
    if (result == 0 && inside) {
        pthread_mutex_lock(&order);
        append((struct record){.kind = UNSUPPORTED, .folder = place.folder}, place.name, NULL, NULL);
        pthread_mutex_unlock(&order);
    }
    return result;
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

/* --- data --- */

/* Makes a call that writes at the file's own position, and records what it wrote. */
#define AT_POSITION(fd, call, data)                                                                \
    if (!recorded(fd)) return call;                                                                \
    pthread_mutex_lock(&order);                                                                    \
    ssize_t n = call;                                                                              \
    if (n > 0) wrote(fd, syscall(SYS_lseek, fd, 0, SEEK_CUR) - n, data, n);                        \
    pthread_mutex_unlock(&order);                                                                  \
    return n;
#define AT_OFFSET(fd, call, offset, data)                                                          \
    if (!recorded(fd)) return call;                                                                \
    pthread_mutex_lock(&order);                                                                    \
    ssize_t n = call;                                                                              \
    if (n > 0) wrote(fd, offset, data, n);                                                         \
    pthread_mutex_unlock(&order);                                                                  \
    return n;

ssize_t write(int fd, const void *data, size_t size) {
    AT_POSITION(fd, syscall(SYS_write, fd, data, size), data)
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    AT_POSITION(fd, syscall(SYS_writev, fd, parts, count), NULL)
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    AT_OFFSET(fd, syscall(SYS_pwrite64, fd, data, size, offset), offset, data)
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite64(fd, data, size, offset);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    AT_OFFSET(fd, syscall(SYS_pwritev, fd, parts, count, offset, 0L), offset, NULL)
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    AT_POSITION(to, syscall(SYS_sendfile, to, from, offset, size), NULL)
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return sendfile64(to, from, offset, size);
}
ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size,
                        unsigned flags) {
    off64_t start = to_offset ? *to_offset : 0;
    if (to_offset == NULL) {
        AT_POSITION(to, syscall(SYS_copy_file_range, from, from_offset, to, to_offset, size, flags),
                    NULL)
    }
    AT_OFFSET(to, syscall(SYS_copy_file_range, from, from_offset, to, to_offset, size, flags), start,
              NULL)
}

/* Streams of the C library (numpy's tofile) write through internal calls: flush around each. */
size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    static size_t (*original)(const void *, size_t, size_t, FILE *);
    if (original == NULL) *(void **)&original = dlsym(RTLD_NEXT, "fwrite");
    int fd = fileno(stream);
    if (!recorded(fd)) return original(data, size, count, stream);
    pthread_mutex_lock(&order);
    fflush(stream);
    size_t done = original(data, size, count, stream);
    fflush(stream);
    if (done > 0)
        wrote(fd, syscall(SYS_lseek, fd, 0, SEEK_CUR) - done * size, data, done * size);
    pthread_mutex_unlock(&order);
    return done;
}

static int resized(int fd, int result, enum kind kind, int64_t size) {
    if (result == 0)
        append((struct record){.kind = kind, .inode = inode_of(fd), .offset = size}, NULL, NULL,
               NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int ftruncate64(int fd, off64_t size) {
    if (!recorded(fd)) return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&order);
    return resized(fd, syscall(SYS_ftruncate, fd, size), TRUNCATE, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int truncate64(const char *path, off64_t size) {
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = ftruncate64(fd, size);
    syscall(SYS_close, fd);
    return result;
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }

int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
    if (!recorded(fd)) return syscall(SYS_fallocate, fd, mode, offset, size);
    pthread_mutex_lock(&order);
    int result = syscall(SYS_fallocate, fd, mode, offset, size);
    return resized(fd, result, mode == 0 ? EXTEND : UNSUPPORTED, offset + size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
    return fallocate64(fd, mode, offset, size);
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    return fallocate64(fd, 0, offset, size) == 0 ? 0 : errno;
}
int posix_fallocate(int fd, off_t offset, off_t size) {
    return posix_fallocate64(fd, offset, size);
}

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
    if ((flags & MAP_TYPE) != MAP_PRIVATE && (protection & PROT_WRITE) && recorded(fd)) {
        pthread_mutex_lock(&order);
        append((struct record){.kind = MAP, .inode = inode_of(fd)}, NULL, NULL, NULL);
        pthread_mutex_unlock(&order);
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap64(address, size, protection, flags, fd, offset);
}

/* --- syncs --- */

static int synced(int fd, long number) {
    if (!recorded(fd)) return syscall(number, fd);
    pthread_mutex_lock(&order);
    int result = syscall(number, fd);
    if (result == 0)
        append((struct record){.kind = number == SYS_syncfs ? SYNC_ALL : SYNC,
                               .inode = inode_of(fd)}, NULL, NULL, NULL);
    pthread_mutex_unlock(&order);
    return result;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int syncfs(int fd) { return synced(fd, SYS_syncfs); }
void sync(void) {
    pthread_mutex_lock(&order);
    syscall(SYS_sync);
    if (log_file >= 0) append((struct record){.kind = SYNC_ALL}, NULL, NULL, NULL);
    pthread_mutex_unlock(&order);
}
