package import GuardianModel

/// Everything about one start, decided. Descriptors are borrowed for the call.
package struct SpawnRequest: Sendable {
  /// The absolute path of the program, then its arguments; never empty. No PATH look-up is made.
  package var command: [String]
  /// `NAME=value`, exactly what the program gets.
  package var environment: [String]
  /// Nil: guardian's own user and groups.
  package var identity: Identity?
  /// Ambient, beside what the user has by itself. Empty: whatever the kernel's rules leave of guardian's own.
  package var capabilities: [Capability] = []
  /// A variable that tells the program its own pid, which nobody knows before it is there: `LISTEN_PID`.
  package var ownPidVariable: String?
  /// Nil: `/`.
  package var directory: String?
  package var umask: UInt32 = 0o022
  package var limits: [ResourceLimit] = []
  /// The soft limit of open files that a child gets where `limits` does not name one; guardian raises its own. The hard
  /// limit stays. Nil: inherited.
  package var softOpenFiles: UInt64?
  /// Nil: inherited.
  package var nice: Int32?
  /// Nil: inherited.
  package var oomScoreAdjust: Int32?
  package var input = Stream.null, output = Stream.null, error = Stream.null
  /// Descriptors beyond the standard three; targets 3 and above, unique.
  package var passed: [PassedDescriptor] = []
  /// Absolute paths that are absent for this one process and its children.
  package var hide: [String] = []
  /// Absolute paths that are there and empty for this one process and its children.
  package var empty: [String] = []
  /// Files that have this content for this one process and its children. Read-only for them.
  package var copies: [FileCopy] = []
  /// Directories of which a read-only view without the hidden entries is shown, whoever could write there.
  package var views: [String] = []
  /// Changed for a trial. Nil: nothing, also where the program turned out to be another one.
  package var surroundings: Surroundings?
  /// For output to the journal, as systemd does it: a child must not die of a journal that restarts.
  package var keepsSIGPIPEIgnored = false
  /// The directory of the control group in which it is born. Nil: guardian's own.
  package var group: Int32?
  /// Where the child tells of its birth, for whoever comes after guardian.
  package var mark: BirthMarks.Place?
  /// Takes the way that cannot block the caller even where the quick one would do. For measuring and for tests.
  package var forceSlowPath = false

  package init(command: [String], environment: [String] = []) {
    self.command = command
    self.environment = environment
  }

  package enum Stream: Hashable, Sendable {
    case null
    /// Guardian's own descriptor of the same number.
    case inherit
    case descriptor(Int32)
  }

  /// What is changed for a program that is this version of itself, and not privileged.
  package struct Surroundings: Hashable, Sendable {
    /// As `ExecutableLook.print`.
    package var program: UInt64
    /// `NAME=value`, in place of what is there.
    package var environment: [String] = []
    /// The soft limit of the stack, in bytes, as far as the hard one allows. In place of one in `limits`.
    package var stack: UInt64?
    /// On one of the processors that it could use, whichever.
    package var singleCPU = false
    package init(program: UInt64) { self.program = program }
  }

  package struct PassedDescriptor: Hashable, Sendable {
    package var target: Int32, source: Int32
    package init(target: Int32, source: Int32) {
      self.target = target
      self.source = source
    }
  }
}

/// A process that has come to its exec. It is to be reaped by `ChildReaper`.
package struct Child: ~Copyable, Sendable {
  /// Pid, session and process group alike.
  package let pid: Int32
  /// Readable when the process has ended.
  package var pidfd: OwnedFD
  package let executable: ExecutableLook?
  package let hidden: [HiddenPath]

  /// The caller keeps the handle, and lets the rest go.
  package consuming func takeHandle() -> OwnedFD { pidfd }
}

/// What a file is to contain for one process.
package struct FileCopy: Hashable, Sendable {
  /// Absolute.
  package var path: String
  package var content: [UInt8]
  package var uid: UInt32, gid: UInt32, mode: UInt32
  package init(path: String, content: [UInt8], uid: UInt32, gid: UInt32, mode: UInt32) {
    self.path = path
    self.content = content
    self.uid = uid
    self.gid = gid
    self.mode = mode
  }
}

/// What became of a path that was to be hidden.
package struct HiddenPath: Hashable, Sendable {
  package enum Way: Int32, Hashable, Sendable {
    /// It is not there; its directory is read-only for this service.
    case absent = 1
    /// An empty file or directory lies over it: by order, or because its directory stays writable or overlays cannot be
    /// had there.
    case empty
    /// It did not exist in the first place; or a copy has no place there.
    case missing
    /// A copy lies over it, or is in its place.
    case copy
  }
  package var path: String
  package var way: Way
  package init(path: String, way: Way) {
    self.path = path
    self.way = way
  }
}

package enum SpawnOutcome: ~Copyable {
  case started(Child)
  /// The child is on its way, by a road that may block. Watch `reportDescriptor` and call `advance()` when it is
  /// readable.
  case pending(PendingSpawn)
  case failed(SpawnFailure)
}
