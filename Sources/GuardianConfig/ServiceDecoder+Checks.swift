import GuardianModel

// `checks:` of a service's file.

extension ServiceDecoder {
  /// More checks than this are better made by one program.
  private static let mostChecks = 32

  mutating func checks(_ top: Fields, _ spec: inout ServiceSpec) {
    var names: [String: Node] = [:]
    let items = list(top["checks"], "'checks'") ?? []
    if items.count > Self.mostChecks {
      fault(top["checks"], "more than \(Self.mostChecks) checks", "one 'exec' check can look at many things")
    }
    for item in items.prefix(Self.mostChecks) {
      guard let fields = fields(of: item, at: "checks[]", called: "a check") else { continue }
      let name = self.name(fields["name"], of: item, "check", &names)
      let kind = kind(of: fields, item)
      guard var check = kind.map({ CheckSpec(name: name ?? "", kind: $0) }) else { continue }
      check.every = duration(fields["every"], "'every'", atLeast: .milliseconds(100)) ?? check.every
      check.timeout = duration(fields["timeout"], "'timeout'", atLeast: .milliseconds(1)) ?? check.timeout
      check.failures = integer(fields["failures"], "'failures'", 1...1000) ?? check.failures
      check.successes = integer(fields["successes"], "'successes'", 1...1000) ?? check.successes
      if check.timeout > .hour { fault(fields["timeout"], "'timeout' must be at most 1h", "a check is a quick look") }
      spec.checks.append(check)
    }
    if spec.ready == .check, items.isEmpty, !isDefaults {
      fault(top["ready"], "'ready: check' without 'checks'", "the service would never be told to be ready")
    }
  }

  private static let kinds = ["http", "tcp", "exec", "file"]
  /// Which keys belong to one kind alone.
  private static let own = ["status": "http", "body": "http", "unix": "http", "within": "file"]

  private mutating func kind(of fields: Fields, _ item: Node) -> CheckKind? {
    let given = Self.kinds.filter { fields[$0] != nil }
    guard let word = given.first, let node = fields[word] else {
      if fields.hasMisspelt { return nil }  // probably it
      fault(item, "a check without http, tcp, exec or file", "it would look at nothing")
      return nil
    }
    if given.count > 1 {
      fault(fields[given[1]], "'\(given[0])' and '\(given[1])' in one check", "write two; each has its own name")
      return nil
    }
    for (key, owner) in Self.own.sorted(by: { $0.key < $1.key }) where owner != word && fields[key] != nil {
      fault(fields[key], "'\(key)' has no meaning in a check of kind \(word)", "it belongs to \(owner)")
    }
    switch word {
    case "http": return http(node, fields).map { .http($0) }
    case "tcp": return tcp(node).map { .tcp($0) }
    case "exec": return command(node, "'exec'").map { .exec($0) }
    default:
      let path = path(node, "'file'")
      guard let within = fields["within"] else {
        fault(item, "a check of a file without 'within'", "how old it may be, as in within: 1min")
        return nil
      }
      let age = duration(within, "'within'", atLeast: .seconds(1))
      guard let path, let age else { return nil }
      return .file(FileProbe(path: path, within: age))
    }
  }

  private mutating func http(_ node: Node, _ fields: Fields) -> HTTPProbe? {
    guard let url = text(node, "'http'") else { return nil }
    let lower = url.lowercased()
    let scheme = ["http://", "https://"].first { lower.hasPrefix($0) }
    let rest = url.dropFirst(scheme?.utf8.count ?? 0)
    let clean = url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f } && url.utf8.count <= 2000
    guard scheme != nil, clean, let first = rest.first, !"/?#:".contains(first) else {
      wrong(
        node, "'http'", "a URL that begins with http:// or https:// and a host", "as in http://127.0.0.1:8080/health")
      return nil
    }
    if rest.prefix(while: { !"/?#".contains($0) }).contains("@") {
      fault(node, "'http' with a password in it", "anybody who may see the status could read it")
      return nil
    }
    var probe = HTTPProbe(url: url)
    if let unix = fields["unix"] { probe.unix = socketPath(unix, "'unix'") }
    if let status = fields["status"] {
      var nodes = [status]
      if case .list(let several) = status.content { nodes = several }
      for node in nodes {
        if let code = integer(node, "'status'", 100...599) { probe.statuses.append(code) }
      }
      if nodes.isEmpty { fault(status, "'status' is empty", "without it any of 200 to 299 will do") }
    }
    if let body = fields["body"], let text = text(body, "'body'") {
      if text.isEmpty || text.utf8.count > 1000 {
        fault(body, "'body' must have 1 to 1000 bytes", "it is looked for in the first 64 KiB of the answer")
      } else {
        probe.body = text
      }
    }
    return probe
  }

  private mutating func tcp(_ node: Node) -> TCPProbe? {
    guard let text = text(node, "'tcp'") else { return nil }
    if text.hasPrefix("/") { return socketPath(node, "'tcp'").map { .unix($0) } }
    var host = "127.0.0.1"
    var port = text[...]
    if let colon = text.lastIndex(of: ":") {
      host = String(text[..<colon])
      port = text[text.index(after: colon)...]
      if host.hasPrefix("["), host.hasSuffix("]") {
        host = String(host.dropFirst().dropLast())
      } else if host.contains(":") {
        fault(node, "'tcp': an IPv6 address needs brackets", "as in \"[::1]:5432\"")
        return nil
      }
    }
    let named = host.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
        UInt8(ascii: ":"):
        true
      default: false
      }
    }
    guard let number = Scalars.integer(Array(port.utf8)), (1...65535).contains(number), named,
      (1...253).contains(host.utf8.count)
    else {
      wrong(node, "'tcp'", "a port, HOST:PORT or the path of a socket", "as in 5432, \"127.0.0.1:5432\"")
      return nil
    }
    return .host(host, port: Int(number))
  }

  /// Of a socket: the kernel has little room for it.
  private mutating func socketPath(_ node: Node, _ name: String) -> String? {
    guard let path = path(node, name) else { return nil }
    if path.utf8.count > 107 {
      fault(node, "\(name) is longer than 107 bytes", "the address of a socket has no more room")
      return nil
    }
    return path
  }
}
