import Glibc
import GuardianModel
import GuardianStore

/// What `guardian --take-over-check` answers: whether this program could go on with the snapshot on standard input.
///
/// The guardian that asks has the state and the sockets open, so nothing is locked or written here.
///
/// - Returns: The version, or why not.
func checkTakeOver(_ bytes: [UInt8], _ directories: Directories) -> Result<String, TakeOverFault> {
  do throws(TakeOverFault) {
    let snapshot = try TakeOver(decoding: bytes)
    let loaded = Surroundings.look().loader(directories.configuration).load()
    guard loaded.listed || snapshot.services.isEmpty else {
      throw TakeOverFault("it cannot read the configuration in \(directories.configuration)")
    }
    // What this version no longer understands would have no definition after the switch.
    for service in snapshot.services {
      guard let name = ServiceName(service.name), loaded.invalid.contains(name) else { continue }
      let why = loaded.byService[name]?.first { $0.severity == .error }
      throw TakeOverFault("the file of '\(name)' is not valid to it" + (why.map { ": \($0)" } ?? ""))
    }
    for service in snapshot.services {
      guard let record = service.record, RecordCoding.decode(record) == nil else { continue }
      throw TakeOverFault("it cannot read what is remembered of '\(service.name)'")
    }
    // Where the directory cannot be used the state is volatile for both.
    if access(directories.state, R_OK | X_OK) == 0, let why = Store.readOnlyCheck(directory: directories.state) {
      throw TakeOverFault("it cannot use the state in \(directories.state): \(why)")
    }
    return .success(guardianVersion)
  } catch {
    return .failure(error)
  }
}

/// All of a descriptor; nil where it cannot be read, or is longer than a snapshot may be.
func readSnapshot(_ descriptor: Int32) -> [UInt8]? {
  var bytes: [UInt8] = []
  var chunk = [UInt8](repeating: 0, count: 1 << 16)
  while true {
    let got = read(descriptor, &chunk, chunk.count)
    if got < 0 && errno == EINTR { continue }
    guard got >= 0 else { return nil }
    if got == 0 { return bytes }
    bytes += chunk[..<got]
    guard bytes.count <= TakeOver.largest else { return nil }
  }
}
