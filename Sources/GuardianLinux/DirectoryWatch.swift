import Glibc

/// What changes in one directory below a place, told by an inotify instance of its own: so that it can be asked, without
/// waiting for the loop, whether anything has changed that nobody has looked at. The kernel tells it before the call that
/// changed something returns.
///
/// The directory may be missing: then the place is watched for it to come.
package final class DirectoryWatch {
  private let handle: OwnedFD
  private let place: String
  private let name: String
  /// −1: none.
  private var directory: CInt = -1, above: CInt = -1

  /// - Parameters:
  ///   - place: The directory that `name` is in, or comes to be in.
  /// - Source: inotify(7).
  package init(_ name: String, in place: String) throws(SystemError) {
    self.name = name
    self.place = place
    let raw = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard raw >= 0 else { throw SystemError.last("watch \(place)/\(name)") }
    handle = OwnedFD(adopting: raw)
    try watch()
  }

  /// Readable when there are news. Borrowed.
  package var descriptor: Int32 { handle.number }

  /// Whether anything in the directory has changed, or the directory is another one or gone. What is told once is told no
  /// more.
  ///
  /// - Throws: It is not watched any more.
  package func takeNews() throws(SystemError) -> Bool {
    var news = false, isOther = false
    var buffer = [UInt8](repeating: 0, count: 16_384)
    // Whoever changes files without end is heard again by the next call.
    for _ in 0..<64 {
      let count = buffer.withUnsafeMutableBytes { read(handle.number, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      if count <= 0 { break }
      buffer.withUnsafeBytes { bytes in
        let head = MemoryLayout<inotify_event>.size
        var place = 0
        while place + head <= count {
          let event = bytes.loadUnaligned(fromByteOffset: place, as: inotify_event.self)
          let next = place + head + Int(event.len)
          guard next <= count else { break }
          let text = bytes[(place + head)..<next].prefix { $0 != 0 }
          place = next
          if event.mask & UInt32(IN_Q_OVERFLOW) != 0 {
            news = true
            isOther = true
          } else if event.wd == above {
            // All but the one name is others' business.
            if text.elementsEqual(name.utf8) || event.mask & Self.ends != 0 { isOther = true }
          } else if event.wd == directory {
            news = true
            if event.mask & Self.ends != 0 { isOther = true }
          }
        }
      }
    }
    guard isOther else { return news }
    try watch()
    return true
  }

  private static let ends = UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)

  /// The place is watched too, since the directory may be put there, or another one in its place.
  private func watch() throws(SystemError) {
    if directory >= 0 { inotify_rm_watch(handle.number, directory) }
    if above >= 0 { inotify_rm_watch(handle.number, above) }
    directory = -1
    above = inotify_add_watch(
      handle.number, place,
      UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF) | UInt32(IN_ONLYDIR))
    guard above >= 0 else { throw SystemError.last("watch \(place)") }
    directory = inotify_add_watch(
      handle.number, place + "/" + name,
      UInt32(
        IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF
          | IN_MOVE_SELF) | UInt32(IN_ONLYDIR))
    if directory < 0, errno != ENOENT, errno != ENOTDIR { throw SystemError.last("watch \(place)/\(name)") }
  }
}
