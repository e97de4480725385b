import Glibc

/// The kernel's error numbers in an operator's words.
package enum ErrnoText {
  /// `no such file or directory`: lower case, no full stop, no number where the number has a name of its own.
  package static func reason(_ code: Int32) -> String {
    if let words = words(code) { return words }
    var buffer = [CChar](repeating: 0, count: 128)
    guard strerror_r(code, &buffer, buffer.count) == 0 else { return "error \(code)" }
    let sentence = String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    guard let first = sentence.first, !sentence.hasPrefix("Unknown error") else { return "error \(code)" }
    return first.lowercased() + sentence.dropFirst()
  }

  /// `ENOENT`; `errno 4711` where there is no name.
  package static func name(_ code: Int32) -> String { names[code] ?? "errno \(code)" }

  private static func words(_ code: Int32) -> String? {
    switch code {
    case 0: "no error"
    case EPERM: "not permitted"
    case ENOENT: "no such file or directory"
    case ESRCH: "no such process"
    case EINTR: "interrupted"
    case EIO: "the device reports an input/output error"
    case E2BIG: "arguments and environment are too large"
    case ENOEXEC: "not a program that this machine can run"
    case EBADF: "not an open descriptor"
    case ECHILD: "no such child"
    case EAGAIN: "a limit is reached, or try again"
    case ENOMEM: "not enough memory"
    case EACCES: "permission denied"
    case EBUSY: "in use"
    case EEXIST: "already exists"
    case EXDEV: "lies on another file system"
    case ENOTDIR: "a component of the path is not a directory"
    case EISDIR: "is a directory"
    case EINVAL: "invalid argument"
    case ENFILE: "the host has too many open files"
    case EMFILE: "too many open files"
    case ETXTBSY: "the file is open for writing"
    case EFBIG: "the file is too large"
    case ENOSPC: "no space left on the device"
    case EROFS: "the file system is read-only"
    case EPIPE: "nobody reads at the other end"
    case ENAMETOOLONG: "the name is too long"
    case ENOSYS: "the kernel does not have this call"
    case ENOTEMPTY: "the directory is not empty"
    case ELOOP: "too many symbolic links, or a link where none may be"
    case EDQUOT: "the disk quota is used up"
    case ESTALE: "the file handle is stale (network file system)"
    case ETIMEDOUT: "timed out"
    case ECONNREFUSED: "nobody listens there"
    case ENOTSUP: "not supported here"
    case ELIBBAD: "its interpreter is damaged"
    default: nil
    }
  }

  private static let names: [Int32: String] = [
    EPERM: "EPERM", ENOENT: "ENOENT", ESRCH: "ESRCH", EINTR: "EINTR", EIO: "EIO", ENXIO: "ENXIO", E2BIG: "E2BIG",
    ENOEXEC: "ENOEXEC", EBADF: "EBADF", ECHILD: "ECHILD", EAGAIN: "EAGAIN", ENOMEM: "ENOMEM", EACCES: "EACCES",
    EFAULT: "EFAULT", EBUSY: "EBUSY", EEXIST: "EEXIST", EXDEV: "EXDEV", ENODEV: "ENODEV", ENOTDIR: "ENOTDIR",
    EISDIR: "EISDIR", EINVAL: "EINVAL", ENFILE: "ENFILE", EMFILE: "EMFILE", ETXTBSY: "ETXTBSY", EFBIG: "EFBIG",
    ENOSPC: "ENOSPC", EROFS: "EROFS", EMLINK: "EMLINK", EPIPE: "EPIPE", ERANGE: "ERANGE", EDEADLK: "EDEADLK",
    ENAMETOOLONG: "ENAMETOOLONG", ENOSYS: "ENOSYS", ENOTEMPTY: "ENOTEMPTY", ELOOP: "ELOOP", EDQUOT: "EDQUOT",
    ESTALE: "ESTALE", ETIMEDOUT: "ETIMEDOUT", ECONNREFUSED: "ECONNREFUSED", ENOTSUP: "ENOTSUP",
    ELIBBAD: "ELIBBAD", ELIBACC: "ELIBACC", ENOTCONN: "ENOTCONN", EADDRINUSE: "EADDRINUSE",
    ECONNRESET: "ECONNRESET", EOVERFLOW: "EOVERFLOW", EINPROGRESS: "EINPROGRESS",
  ]
}
