#pragma once
#include <curl/curl.h>
/* A look at a file answers by eventfd, which Glibc's module leaves out. */
#include <sys/eventfd.h>

/* Swift cannot call functions with variable arguments. */

static inline CURLcode guardian_curl_long(CURL *easy, CURLoption option, long value) {
  return curl_easy_setopt(easy, option, value);
}
/* libcurl copies the text. */
static inline CURLcode guardian_curl_text(CURL *easy, CURLoption option, const char *text) {
  return curl_easy_setopt(easy, option, text);
}
static inline CURLcode guardian_curl_pointer(CURL *easy, CURLoption option, void *pointer) {
  return curl_easy_setopt(easy, option, pointer);
}
static inline CURLcode guardian_curl_write(CURL *easy, size_t (*write)(char *, size_t, size_t, void *), void *user) {
  CURLcode code = curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, write);
  return code != CURLE_OK ? code : curl_easy_setopt(easy, CURLOPT_WRITEDATA, user);
}
/* 0 where it is not known. */
static inline long guardian_curl_info(CURL *easy, CURLINFO info) {
  long value = 0;
  return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}
