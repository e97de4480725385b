/// One health check of a service, as its file has it.
package struct CheckSpec: Hashable, Sendable {
  package var name: String
  package var kind: CheckKind
  /// From the begin of one probe to the begin of the next, give or take a twentieth.
  package var every = Duration.seconds(10)
  /// A probe that has not come to an end by then has failed.
  package var timeout = Duration.seconds(3)
  /// As many failed probes in a row make the check fail.
  package var failures = 3
  /// As many good probes in a row make it pass.
  package var successes = 1
  package init(name: String, kind: CheckKind) {
    self.name = name
    self.kind = kind
  }
}

/// What a check looks at.
package enum CheckKind: Hashable, Sendable {
  case http(HTTPProbe)
  case tcp(TCPProbe)
  /// A program with its arguments, run as the service's user; exit status 0 is good.
  case exec([String])
  case file(FileProbe)

  /// As written in the file.
  package var name: String {
    switch self {
    case .http: "http"
    case .tcp: "tcp"
    case .exec: "exec"
    case .file: "file"
    }
  }
}

/// A GET, and what its answer has to be like. No redirect is followed and no proxy is used.
package struct HTTPProbe: Hashable, Sendable {
  /// `http://` or `https://`.
  package var url: String
  /// Connects to this socket in the file system instead of the URL's host.
  package var unix: String?
  /// Empty: 200 … 299.
  package var statuses: [Int] = []
  /// Text that must be within the first 64 KiB of the body.
  package var body: String?
  package init(url: String) { self.url = url }
}

/// Somebody accepts the connection.
package enum TCPProbe: Hashable, Sendable {
  /// A name or an address, without the brackets of an IPv6 address.
  case host(String, port: Int)
  /// A stream socket in the file system.
  case unix(String)
}

/// The file's time of modification is not older than that.
package struct FileProbe: Hashable, Sendable {
  package var path: String
  package var within: Duration
  package init(path: String, within: Duration) {
    self.path = path
    self.within = within
  }
}

/// What came of one probe. The text is for people: bounded and without control characters.
package enum ProbeResult: Hashable, Sendable {
  case passed(String)
  case failed(String)
  /// It could not be made: guardian's own trouble, which says nothing of the service.
  case notMade(String)

  package var text: String {
    switch self {
    case .passed(let text), .failed(let text), .notMade(let text): text
    }
  }
}

/// One probe to be made. A check has at most one at a time.
package struct ProbeRequest: Hashable, Sendable {
  package var run: RunID
  /// Rises within one service.
  package var number: UInt64
  package var check: CheckSpec
  package init(run: RunID, number: UInt64, check: CheckSpec) {
    self.run = run
    self.number = number
    self.check = check
  }
}

/// What a check has come to, in the present run.
package enum CheckState: String, Hashable, Sendable, CaseIterable {
  /// Not enough probes since the run's start, or since guardian's.
  case unknown
  case passing, failing
}

/// One check as `status` shows it.
package struct CheckStatus: Hashable, Sendable {
  package var name: String
  /// `http`, `tcp`, `exec` or `file`.
  package var kind: String
  package var state: CheckState
  /// When it came to this state.
  package var since: WallTime
  /// Of the last probe; empty before the first.
  package var text: String
  /// Failed probes in a row.
  package var failures: Int
  package init(
    name: String, kind: String, state: CheckState, since: WallTime, text: String = "", failures: Int = 0
  ) {
    self.name = name
    self.kind = kind
    self.state = state
    self.since = since
    self.text = text
    self.failures = failures
  }
}
