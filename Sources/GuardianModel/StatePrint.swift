/// One thing that a service is made of, or depends on, as it was at a moment.
package struct StateItem: Hashable, Sendable {
  package enum Group: String, Hashable, Sendable, CaseIterable {
    case plugins, config, program, libraries, start, state, system, dependencies, pressure
  }
  package var group: Group
  /// `/etc/nginx/nginx.conf`, `kernel`, `db`.
  package var name: String
  /// Its content, or what it is in a few words; empty: not known. Equal values are equal things.
  package var value: String
  /// What it was before, where that is known otherwise than by a healthy run.
  package var old = ""
  /// Of a file: by its identity, size and time; compared where one of the values is not known.
  package var look = ""
  /// When it became so; nil: not known.
  package var since: WallTime?
  /// It may have become so after the run began, which then has not seen it.
  package var isLate = false
  package init(_ group: Group, _ name: String, _ value: String, look: String = "", since: WallTime? = nil) {
    self.group = group
    self.name = name
    self.value = value
    self.look = look
    self.since = since
  }

  /// In `value`, of a file.
  package static let absent = "absent"
  /// A name begins with it: `package libssl3:amd64`.
  package static let package = "package "
  /// In `value`, of a file system.
  package static let full = "full", readOnly = "read-only"
}

/// What a service is made of and depends on, at a moment; bounded by whoever takes it.
package struct StatePrint: Hashable, Sendable {
  package var items: [StateItem]
  package init(_ items: [StateItem] = []) { self.items = items }
}
