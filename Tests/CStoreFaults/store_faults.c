#define _GNU_SOURCE
#include "store_faults.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

struct store_faults {
  sqlite3_vfs vfs;
  sqlite3_vfs *real;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int mask, code, skip, times, hang, recording;
  long syncs, hit;
  struct store_op *ops;
  size_t count, capacity;
};

struct file {
  sqlite3_file base;
  struct store_faults *owner;
  int slot;
  /* The real file follows. */
};

static sqlite3_file *real_file(sqlite3_file *f) { return (sqlite3_file *)((struct file *)f + 1); }
static struct store_faults *owner(sqlite3_file *f) { return ((struct file *)f)->owner; }

/* SQLITE_OK: go on. */
static int gate(struct store_faults *s, int kind) {
  int code = SQLITE_OK;
  pthread_mutex_lock(&s->lock);
  if (s->hang & kind) s->hit++;
  while (s->hang & kind) pthread_cond_wait(&s->changed, &s->lock);
  if (s->mask & kind) {
    if (s->skip > 0) s->skip--;
    else if (s->times != 0) {
      if (s->times > 0) s->times--;
      s->hit++;
      code = s->code;
    }
  }
  pthread_mutex_unlock(&s->lock);
  return code;
}

static void record(struct store_faults *s, int kind, int file, int64_t offset, int64_t length, const void *data) {
  if (file < 0) return;
  pthread_mutex_lock(&s->lock);
  if (s->recording) {
    if (s->count == s->capacity) {
      size_t capacity = s->capacity ? s->capacity * 2 : 256;
      struct store_op *ops = realloc(s->ops, capacity * sizeof *ops);
      if (!ops) abort();
      s->ops = ops;
      s->capacity = capacity;
    }
    uint8_t *copy = NULL;
    if (data && length > 0) {
      copy = malloc((size_t)length);
      if (!copy) abort();
      memcpy(copy, data, (size_t)length);
    }
    s->ops[s->count++] = (struct store_op){kind, file, offset, length, copy};
  }
  pthread_mutex_unlock(&s->lock);
}

static int f_close(sqlite3_file *f) { return real_file(f)->pMethods->xClose(real_file(f)); }
static int f_read(sqlite3_file *f, void *b, int n, sqlite3_int64 o) {
  int code = gate(owner(f), FAULT_READ);
  return code ? code : real_file(f)->pMethods->xRead(real_file(f), b, n, o);
}
static int f_write(sqlite3_file *f, const void *b, int n, sqlite3_int64 o) {
  int code = gate(owner(f), FAULT_WRITE);
  if (code) return code;
  code = real_file(f)->pMethods->xWrite(real_file(f), b, n, o);
  if (code == SQLITE_OK) record(owner(f), OP_WRITE, ((struct file *)f)->slot, o, n, b);
  return code;
}
static int f_truncate(sqlite3_file *f, sqlite3_int64 n) {
  int code = gate(owner(f), FAULT_TRUNCATE);
  if (code) return code;
  code = real_file(f)->pMethods->xTruncate(real_file(f), n);
  if (code == SQLITE_OK) record(owner(f), OP_TRUNCATE, ((struct file *)f)->slot, 0, n, NULL);
  return code;
}
static int f_sync(sqlite3_file *f, int flags) {
  struct store_faults *s = owner(f);
  int code = gate(s, FAULT_SYNC);
  if (code) {
    record(s, OP_FAILED_SYNC, ((struct file *)f)->slot, 0, 0, NULL);
    return code;
  }
  pthread_mutex_lock(&s->lock);
  s->syncs++;
  pthread_mutex_unlock(&s->lock);
  code = real_file(f)->pMethods->xSync(real_file(f), flags);
  if (code == SQLITE_OK) record(s, OP_SYNC, ((struct file *)f)->slot, 0, 0, NULL);
  return code;
}
static int f_size(sqlite3_file *f, sqlite3_int64 *n) { return real_file(f)->pMethods->xFileSize(real_file(f), n); }
static int f_lock(sqlite3_file *f, int l) { return real_file(f)->pMethods->xLock(real_file(f), l); }
static int f_unlock(sqlite3_file *f, int l) { return real_file(f)->pMethods->xUnlock(real_file(f), l); }
static int f_reserved(sqlite3_file *f, int *r) {
  return real_file(f)->pMethods->xCheckReservedLock(real_file(f), r);
}
static int f_control(sqlite3_file *f, int op, void *a) {
  return real_file(f)->pMethods->xFileControl(real_file(f), op, a);
}
static int f_sector(sqlite3_file *f) { return real_file(f)->pMethods->xSectorSize(real_file(f)); }
/* No promises, so that SQLite takes all its precautions. */
static int f_character(sqlite3_file *f) { (void)f; return 0; }

/* Version 1: no shared memory, which the store does without. */
static const sqlite3_io_methods methods = {
  .iVersion = 1, .xClose = f_close, .xRead = f_read, .xWrite = f_write, .xTruncate = f_truncate, .xSync = f_sync,
  .xFileSize = f_size, .xLock = f_lock, .xUnlock = f_unlock, .xCheckReservedLock = f_reserved,
  .xFileControl = f_control, .xSectorSize = f_sector, .xDeviceCharacteristics = f_character,
};

static int slot_of(const char *name) {
  size_t n = name ? strlen(name) : 0;
  if (n > 11 && !strcmp(name + n - 11, "guardian.db")) return 0;
  if (n > 15 && !strcmp(name + n - 15, "guardian.db-wal")) return 1;
  if (n > 19 && !strcmp(name + n - 19, "guardian.db-journal")) return 2;
  return -1;
}

static int v_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out) {
  struct store_faults *s = v->pAppData;
  f->pMethods = NULL;
  int code = gate(s, FAULT_OPEN);
  if (code) return code;
  struct file *file = (struct file *)f;
  file->owner = s;
  file->slot = slot_of(name);
  code = s->real->xOpen(s->real, name, real_file(f), flags, out);
  if (real_file(f)->pMethods) f->pMethods = &methods;
  return code;
}
static int v_delete(sqlite3_vfs *v, const char *name, int sync) {
  struct store_faults *s = v->pAppData;
  int code = s->real->xDelete(s->real, name, sync);
  if (code == SQLITE_OK) record(s, OP_DELETE, slot_of(name), 0, 0, NULL);
  /* The directory has been synced too. */
  if (code == SQLITE_OK && sync) record(s, OP_SYNC, slot_of(name), 0, 0, NULL);
  return code;
}
static int v_access(sqlite3_vfs *v, const char *name, int flags, int *out) {
  struct store_faults *s = v->pAppData;
  return s->real->xAccess(s->real, name, flags, out);
}
static int v_full(sqlite3_vfs *v, const char *name, int n, char *out) {
  struct store_faults *s = v->pAppData;
  return s->real->xFullPathname(s->real, name, n, out);
}
static int v_random(sqlite3_vfs *v, int n, char *out) {
  struct store_faults *s = v->pAppData;
  return s->real->xRandomness(s->real, n, out);
}
static int v_sleep(sqlite3_vfs *v, int n) {
  struct store_faults *s = v->pAppData;
  return s->real->xSleep(s->real, n);
}
static int v_time(sqlite3_vfs *v, double *out) {
  struct store_faults *s = v->pAppData;
  return s->real->xCurrentTime(s->real, out);
}
static int v_error(sqlite3_vfs *v, int n, char *out) { (void)v; (void)n; (void)out; return 0; }

struct store_faults *store_faults_new(const char *name) {
  struct store_faults *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->real = sqlite3_vfs_find(NULL);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  s->vfs = (sqlite3_vfs){
    .iVersion = 1, .szOsFile = (int)sizeof(struct file) + s->real->szOsFile, .mxPathname = s->real->mxPathname,
    .zName = strdup(name), .pAppData = s, .xOpen = v_open, .xDelete = v_delete, .xAccess = v_access,
    .xFullPathname = v_full, .xRandomness = v_random, .xSleep = v_sleep, .xCurrentTime = v_time,
    .xGetLastError = v_error,
  };
  return sqlite3_vfs_register(&s->vfs, 0) == SQLITE_OK ? s : NULL;
}

void store_faults_fail(struct store_faults *s, int mask, int code, int skip, int times) {
  pthread_mutex_lock(&s->lock);
  s->mask = mask;
  s->code = code;
  s->skip = skip;
  s->times = times;
  pthread_mutex_unlock(&s->lock);
}
void store_faults_hang(struct store_faults *s, int mask) {
  pthread_mutex_lock(&s->lock);
  s->hang = mask;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

#define READ_LOCKED(type, field)       \
  pthread_mutex_lock(&s->lock);        \
  type value = s->field;               \
  pthread_mutex_unlock(&s->lock);      \
  return value
long store_faults_syncs(struct store_faults *s) { READ_LOCKED(long, syncs); }
long store_faults_hit(struct store_faults *s) { READ_LOCKED(long, hit); }
size_t store_faults_count(struct store_faults *s) { READ_LOCKED(size_t, count); }
struct store_op store_faults_operation(struct store_faults *s, size_t index) {
  READ_LOCKED(struct store_op, ops[index]);
}
void store_faults_record(struct store_faults *s, int on) {
  pthread_mutex_lock(&s->lock);
  s->recording = on;
  pthread_mutex_unlock(&s->lock);
}
void store_faults_mark(struct store_faults *s, int64_t value) { record(s, OP_MARK, 0, 0, value, NULL); }

int store_private_tmpfs(const char *path, const char *options) {
  if (unshare(CLONE_NEWNS) != 0) return errno;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return errno;
  if (mount("tmpfs", path, "tmpfs", 0, options) != 0) return errno;
  return 0;
}
