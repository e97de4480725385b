/// One part of a service that can be switched off, and how: every way that it has is used, for one run of the service.
package struct PluginSpec: Hashable, Sendable {
  package var name: String
  /// Set in the environment while the plugin is off.
  package var environment: [EnvironmentVariable] = []
  /// Not in the environment while the plugin is off.
  package var unset: [String] = []
  /// Elements that are missing in lists while the plugin is off.
  package var removeFrom: [ListRemoval] = []
  /// Libraries that are missing in `LD_PRELOAD` while the plugin is off: as they are written there, or by the name of
  /// the file alone.
  package var preload: [String] = []
  /// Appended to the command while the plugin is off.
  package var arguments: [String] = []
  /// Missing in the command while the plugin is off: each one argument, or several that follow each other.
  package var removeArguments: [[String]] = []
  /// Others in their place while the plugin is off.
  package var replaceArguments: [ArgumentReplacement] = []
  /// Absent for this one service while the plugin is off.
  package var hide: [String] = []
  /// Empty for this one service while the plugin is off.
  package var empty: [String] = []
  /// Files of which this one service sees the last known good copy while the plugin is off.
  package var goodCopy: [String] = []
  /// How those of `goodCopy` were when they were looked at last; nil: they have not been. No part of the definition.
  package var sight: GoodCopySight?
  /// The path of the entry of `plugins.directory` that it is; nil: it is written in the file. What comes and goes in a
  /// directory changes no definition.
  package var entry: String?

  package init(name: String) { self.name = name }

  /// Nothing to be done: it cannot be switched off.
  package var hasNoWay: Bool {
    var bare = PluginSpec(name: name)
    bare.entry = entry
    bare.sight = sight
    return self == bare
  }

  /// It would change nothing to switch it off: all it has are files, and they are as they were when the service was last
  /// well, as far as is known.
  package var isIdle: Bool {
    guard !goodCopy.isEmpty, sight?.changed.isEmpty ?? true else { return false }
    var bare = PluginSpec(name: name)
    bare.goodCopy = goodCopy
    bare.sight = sight
    return self == bare
  }

  /// Paths of the file system that are the plugin, as far as its definition tells.
  package var paths: [String] {
    var all: [String] = []
    for path in [entry].compactMap({ $0 }) + hide + empty + goodCopy where !all.contains(path) { all.append(path) }
    return all
  }
}

/// What a look at the files of a plugin has told.
package struct GoodCopySight: Hashable, Sendable {
  /// Those that are not as their good copies are. A file of which none is known is not among them.
  package var changed: [FileChange]
  package init(changed: [FileChange]) { self.changed = changed }
}

/// A declared file that is another than when the service was last well.
package struct FileChange: Hashable, Sendable, CustomStringConvertible {
  package var path: String
  /// Nil: it is not there any more.
  package var at: WallTime?
  package init(path: String, at: WallTime?) {
    self.path = path
    self.at = at
  }
  /// `/etc/web.conf as changed on 2026-03-01T12:00:00Z`
  package var description: String {
    guard let at else { return "\(path), which is gone" }
    var bytes: [UInt8] = []
    at.appendRFC3339(to: &bytes)
    return "\(path) as changed on \(String(decoding: bytes.prefix(19), as: UTF8.self))Z"
  }
}

/// One element to be taken out of a list.
package struct ListRemoval: Hashable, Sendable {
  package enum List: Hashable, Sendable {
    /// The value of this variable.
    case variable(String)
    /// What follows this argument, or in the same argument an `=` after it.
    case argument(String)
  }
  package var list: List
  /// Several elements that follow each other where it contains the separator.
  package var item: String
  /// Never empty.
  package var separator: String
  package init(_ list: List, item: String, separator: String = ",") {
    self.list = list
    self.item = item
    self.separator = separator
  }
}

/// Arguments that follow each other, and what stands in their place.
package struct ArgumentReplacement: Hashable, Sendable {
  /// Never empty.
  package var from: [String]
  package var to: [String]
  package init(from: [String], to: [String]) {
    self.from = from
    self.to = to
  }
}

/// `plugins.directory`: each of its entries is a plugin.
package struct PluginDirectory: Hashable, Sendable {
  package var path: String
  /// Only entries of which one of these tells the name: `*` is any text, `?` any character. Empty: all.
  package var only: [String] = []
  /// How an entry is switched off, with `%n` for its name, `%s` for its name without the suffix, `%p` for its path and
  /// `%%` for a percent sign. Nil: it is hidden.
  package var way: PluginSpec?
  package init(path: String) { self.path = path }

  /// All plugins of one service, those in its file included.
  package static let most = 64
}

/// What must confirm that plugins are off, in a run that was started so.
package enum Acknowledgement: Hashable, Sendable {
  /// The check of this name passes. It is probed in such runs only, and says nothing about health.
  case check(String)
  /// A `STATUS=` of the run that begins with this.
  case status(String)
}
