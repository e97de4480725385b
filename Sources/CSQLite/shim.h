#pragma once
#include <sqlite3.h>
/* The store answers by eventfd, which Glibc's module leaves out. */
#include <sys/eventfd.h>

/* Swift cannot call functions with variable arguments. */

/* Whether sqlite3_close leaves the write-ahead log alone: neither copied back nor deleted. */
static inline int guardian_sqlite_keep_log(sqlite3 *db, int keep) {
  return sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep, (int *)0);
}

/* Syncs the write-ahead log by itself, through the file system layer in use. */
static inline int guardian_sqlite_sync_log(sqlite3 *db) {
  sqlite3_file *log = 0;
  int code = sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (code != SQLITE_OK) return code;
  return log && log->pMethods ? log->pMethods->xSync(log, SQLITE_SYNC_NORMAL) : SQLITE_OK;
}

/* SQLITE_TRANSIENT is a cast that Swift does not import. */
static inline int guardian_sqlite_bind_blob(sqlite3_stmt *s, int column, const void *bytes, int count) {
  return count > 0 ? sqlite3_bind_blob(s, column, bytes, count, SQLITE_TRANSIENT) : sqlite3_bind_zeroblob(s, column, 0);
}
static inline int guardian_sqlite_bind_text(sqlite3_stmt *s, int column, const char *bytes, int count) {
  return sqlite3_bind_text(s, column, bytes ? bytes : "", count, SQLITE_TRANSIENT);
}
