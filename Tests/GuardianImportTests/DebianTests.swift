import GuardianConfig
import GuardianImport
import GuardianModel
import Testing

/// The units that Debian ships for well-known daemons, which Tests/Support/fetch-programs unpacks; not shown without them.
private let units = ".build/programs/units/"

/// Whose line README has; shown without the units too.
@Test func `README tells of each of twenty daemons what was carried over`() throws {
  let readme = try #require(read("README.md"))
  #expect(`the unit of a daemon of Debian`.all.count == 20)
  for daemon in `the unit of a daemon of Debian`.all {
    #expect(readme.contains("\n| \(daemon.unit) | "), "\(daemon.unit)")
  }
}

@Suite(.enabled(if: read(units + ".complete") != nil, "the units of Debian's daemons were not fetched"))
struct `the unit of a daemon of Debian` {
  struct Daemon: CustomTestStringConvertible, Sendable {
    var unit: String
    /// Its file, where the unit is an instance.
    var file: String?
    var command: [String], ready: Readiness, restart: RestartPolicy
    /// Keys of which the most is lost.
    var lost: [String] = []
    init(
      _ unit: String, file: String? = nil, _ command: [String], _ ready: Readiness, _ restart: RestartPolicy,
      lost: [String] = []
    ) {
      (self.unit, self.file, self.command, self.ready, self.restart, self.lost) = (
        unit, file, command, ready, restart, lost
      )
    }
    var testDescription: String { unit }
  }

  static let all = [
    Daemon("apache2", ["/usr/sbin/apachectl", "start"], .none, .onCrash, lost: ["Type=forking", "ExecStop="]),
    Daemon("avahi-daemon", ["/usr/sbin/avahi-daemon", "-s"], .none, .never, lost: ["Requires=avahi-daemon.socket"]),
    Daemon(
      "named", ["/bin/sh", "-c", "set -f; exec /usr/sbin/named -f $OPTIONS"], .notify, .onCrash, lost: ["ExecStop="]),
    Daemon(
      "chrony", ["/bin/sh", "-c", "set -f; exec /usr/sbin/chronyd $DAEMON_OPTS"], .none, .never, lost: ["Type=forking"]),
    Daemon(
      "cron", ["/bin/sh", "-c", "set -f; exec /usr/sbin/cron -f $EXTRA_OPTS"], .none, .onCrash,
      lost: ["KillMode=process"]),
    Daemon("cups", ["/usr/sbin/cupsd", "-l"], .notify, .onCrash, lost: ["Requires=cups.socket"]),
    Daemon(
      "dnsmasq", ["/usr/share/dnsmasq/systemd-helper", "exec"], .none, .never, lost: ["Type=forking", "ExecStartPost="]),
    Daemon("fail2ban", ["/usr/bin/fail2ban-server", "-xf", "start"], .none, .onCrash, lost: ["ExecStop=", "PartOf="]),
    Daemon(
      "haproxy", ["/bin/sh", "-c", "set -f; exec /usr/sbin/haproxy -Ws -f $CONFIG -p $PIDFILE $EXTRAOPTS"], .notify,
      .always,
      lost: ["BindReadOnlyPaths="]),
    Daemon(
      "knot", ["/bin/sh", "-c", "set -f; exec /usr/sbin/knotd -m $KNOT_CONF_MAX_SIZE $KNOTD_ARGS"], .notify, .onCrash,
      lost: ["RuntimeDirectory=", "StateDirectory="]),
    Daemon("lighttpd", ["/usr/sbin/lighttpd", "-D", "-f", "/etc/lighttpd/lighttpd.conf"], .none, .onCrash),
    Daemon(
      "memcached", ["/usr/share/memcached/scripts/systemd-memcached-wrapper", "/etc/memcached.conf"], .none, .always,
      lost: ["CapabilityBoundingSet=", "ProtectSystem="]),
    Daemon("mosquitto", ["/usr/sbin/mosquitto", "-c", "/etc/mosquitto/mosquitto.conf"], .notify, .onCrash),
    Daemon(
      "nginx", ["/usr/sbin/nginx", "-g", "daemon on; master_process on;"], .none, .never,
      lost: ["Type=forking", "ExecStop="]),
    Daemon(
      "ssh", ["/bin/sh", "-c", "set -f; exec /usr/sbin/sshd -D $SSHD_OPTS"], .notify, .onCrash,
      lost: ["KillMode=process"]),
    Daemon(
      "postgresql@15-main", file: "postgresql@",
      ["/usr/bin/pg_ctlcluster", "--skip-systemctl-redirect", "15-main", "start"],
      .none, .never, lost: ["Type=forking", "ExecStop="]),
    Daemon(
      "redis-server",
      ["/usr/bin/redis-server", "/etc/redis/redis.conf", "--supervised", "systemd", "--daemonize", "no"],
      .notify, .always, lost: ["RuntimeDirectory=", "ProtectSystem="]),
    Daemon("rsyslog", ["/usr/sbin/rsyslogd", "-n", "-iNONE"], .notify, .onCrash, lost: ["Requires=syslog.socket"]),
    Daemon(
      "smartmontools", ["/bin/sh", "-c", "set -f; exec /usr/sbin/smartd -n $smartd_opts"], .notify, .never,
      lost: ["ConditionVirtualization="]),
    Daemon(
      "unbound", ["/bin/sh", "-c", "set -f; exec /usr/sbin/unbound -d -p $DAEMON_OPTS"], .notify, .onCrash,
      lost: ["ExecStopPost="]),
  ]

  @Test(arguments: all) func `becomes a valid service, with a word about every line`(_ daemon: Daemon) throws {
    let file = (daemon.file ?? daemon.unit) + ".service"
    let files = [ImportedFile(name: file, text: try #require(read(units + file)))]
    let imported = UnitSource(unit: daemon.unit + ".service", files: files, host: "box").imported
    let service = try only(imported)
    let spec = try spec(service)
    #expect(spec.process.command == daemon.command)
    #expect(spec.ready == daemon.ready && spec.restart == daemon.restart)
    for key in daemon.lost {
      #expect(service.remarks.contains { $0.kind == .lost && $0.what.hasPrefix(key) }, "\(key): \(service.remarks)")
    }
    #expect(!service.remarks.contains { $0.why.hasPrefix("guardian has nothing like") })
    #expect(imported.unmentioned(files) { $0.hasPrefix("#") || $0.hasPrefix(";") || $0.hasPrefix("[") } == [])
  }
}
