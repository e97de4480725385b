#pragma once
#include <stddef.h>
#include <stdint.h>

/* A layer of SQLite's file system for tests: it fails, hangs, counts and records. Each instance is a VFS of its own. */

enum { FAULT_WRITE = 1, FAULT_SYNC = 2, FAULT_TRUNCATE = 4, FAULT_OPEN = 8, FAULT_READ = 16 };

/* Of the recorder; the files are 0: database, 1: write-ahead log, 2: journal. */
enum { OP_WRITE, OP_SYNC, OP_TRUNCATE, OP_DELETE, OP_MARK, OP_FAILED_SYNC };
struct store_op {
  int kind, file;
  int64_t offset, length; /* of a mark: its value; of a truncation: the length */
  const uint8_t *data;
};

struct store_faults;

/* Registers a VFS with this name; null if there is no memory. Never freed: files may be open to the end. */
struct store_faults *store_faults_new(const char *name);

/* After `skip` operations of the kinds in `mask`, the next `times` (-1: all) give SQLite's `code`. */
void store_faults_fail(struct store_faults *, int mask, int code, int skip, int times);
/* Operations of the kinds in `mask` wait; 0 lets them go. */
void store_faults_hang(struct store_faults *, int mask);
long store_faults_syncs(struct store_faults *);
/* How many operations have failed or hung so far. */
long store_faults_hit(struct store_faults *);

void store_faults_record(struct store_faults *, int on);
void store_faults_mark(struct store_faults *, int64_t value);
size_t store_faults_count(struct store_faults *);
struct store_op store_faults_operation(struct store_faults *, size_t index);

/* Gives the calling thread, and those it starts, mounts of their own, with a tmpfs at `path`. 0, or errno. */
int store_private_tmpfs(const char *path, const char *options);
