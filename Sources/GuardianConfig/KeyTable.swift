/// A key that a configuration file may have, as data: the reader takes its valid words from here, and tests compare the
/// manual page and `etc/guardian.yaml` with it.
package struct KeyTable: Sendable {
  package struct Key: Hashable, Sendable {
    /// `stop.timeout`; a list's elements have `[]`: `repair[].name`.
    package var path: String
    /// What may be written: `duration`, `journal | inherit | none`.
    package var shape: String
    /// As it would be written; empty where there is no default but absence.
    package var standard: String
    package var meaning: String
    /// A piece of a service's file that shows it and, beside `command`, makes the service a different one.
    package var example: String

    init(_ path: String, _ shape: String, _ standard: String, _ meaning: String, _ example: String) {
      self.path = path
      self.shape = shape
      self.standard = standard
      self.meaning = meaning
      self.example = example
    }

    /// The last part, as written in the file.
    package var word: String { path.split(separator: ".").last.map(String.init) ?? path }
    /// What it is within: `repair[]`; empty at the top.
    package var parent: String { path.split(separator: ".").dropLast().joined(separator: ".") }
  }

  package let keys: [Key]
  private let words: [String: [String]]

  private init(_ keys: [Key]) {
    self.keys = keys
    words = Dictionary(grouping: keys, by: \.parent).mapValues { $0.map(\.word) }
  }

  /// The valid keys of the mapping at `path`, in the order of the manual.
  package func words(under path: String) -> [String] { words[path] ?? [] }

  /// guardian.yaml.
  package static let host = KeyTable([
    Key(
      "defaults", "mapping of service keys", "{}", "what every service has that does not say otherwise",
      "defaults: {umask: \"0027\", stop: {timeout: 30s}}"),
    Key("access", "mapping", "{}", "who may do what, beside root and guardian's own user", "access: {view: [web]}"),
    Key("access.view", "list of users and @groups", "[]", "they may look at every service", "access: {view: [web]}"),
    Key(
      "access.operate", "list of users and @groups", "[]", "they may also give orders about every service",
      "access: {operate: [\"@redis\"]}"),
    Key("access.admin", "list of users and @groups", "[]", "they may do everything", "access: {admin: [web]}"),
    Key("cgroup", "auto | off | path", "auto", "whether each run has a control group of its own", "cgroup: /guardian"),
    Key(
      "governor", "mapping | off", "{starts-per-second: 200, concurrent: 64}",
      "how fast services may start, all together",
      "governor: off"),
    Key(
      "governor.starts-per-second", "1 … 1000000", "200", "so many starts, and as many at once after a quiet second",
      "governor: {starts-per-second: 50}"
    ),
    Key(
      "governor.concurrent", "1 … 100000", "64", "starts under way at the same time: not ready yet",
      "governor: {concurrent: 8}"),
    Key(
      "common-cause", "mapping | off", "{services: 3, within: 10s, freeze: 5min}",
      "when the troubles of several services are taken for one", "common-cause: off"),
    Key(
      "common-cause.services", "2 … 100000", "3", "so many, and a quarter of those that were settled, begin to loop",
      "common-cause: {services: 5}"
    ),
    Key("common-cause.within", "duration from 1ms", "10s", "within this time", "common-cause: {within: 30s}"),
    Key(
      "common-cause.freeze", "duration from 1s", "5min", "then no service moves a step up for so long",
      "common-cause: {freeze: 10min}"),
    Key("history", "mapping", "{events: 100000}", "how much is kept of what has happened", "history: {events: 10000}"),
    Key(
      "history.events", "100 … 10000000", "100000", "events, and runs with their ends, the latest",
      "history: {events: 10000}"),
    Key(
      "history.reports-per-service", "1 … 10000", "20", "so many crash reports of each service",
      "history: {reports-per-service: 5}"),
    Key("history.total", "size from 1M", "50M", "so much of all crash reports together", "history: {total: 10M}"),
    Key(
      "swift-backtrace", "auto | off | path", "auto",
      "the program by which Swift's run-time writes down where a service has crashed", "swift-backtrace: off"),
    Key(
      "logs", "mapping", "{rotate: 10M, age: never, keep: 10, total: 1G, compress: none, full: drop}",
      "how files with the output of services are kept", "logs: {rotate: 50M, keep: 5}"),
    Key(
      "logs.directory", "path", "guardian's own, as in guardian(8)", "where they are: NAME/current below it",
      "logs: {directory: /srv/log/guardian}"),
    Key("logs.rotate", "size from 16K", "10M", "a file that is larger is put aside", "logs: {rotate: 50M}"),
    Key("logs.age", "duration from 1min | never", "never", "a file that is older is put aside too", "logs: {age: 1d}"),
    Key("logs.keep", "0 … 10000", "10", "so many that were put aside are kept of each service", "logs: {keep: 5}"),
    Key(
      "logs.total", "size from 32K", "1G", "so many bytes are kept of all services together; the oldest go first",
      "logs: {total: 4G}"),
    Key("logs.compress", "none | gzip", "none", "what is done to a file that was put aside", "logs: {compress: gzip}"),
    Key(
      "logs.full", "drop | wait", "drop",
      "output that the disk does not take is dropped and counted, or the service waits", "logs: {full: wait}"),
    Key(
      "metrics", "mapping", "{}", "where what is measured is written, for a monitoring system",
      "metrics: {textfile: /var/lib/node/guardian.prom}"),
    Key(
      "metrics.textfile", "path", "", "the file, for the text file collector of node_exporter",
      "metrics: {textfile: /var/lib/node/guardian.prom}"),
    Key(
      "metrics.every", "duration", "15s", "how often it is written",
      "metrics: {textfile: /var/lib/node/guardian.prom, every: 1min}"),
  ])

  /// switches.d/NAME.yaml.
  package static let switches = KeyTable([
    Key(
      "reason", "text", "", "why, for people", "reason: payments 3.2 empties carts, OPS-123"),
    Key(
      "until", "time", "never", "when it ends by itself, as RFC 3339 has it", "until: 2026-12-24T06:00:00Z"),
    Key("services", "list of services | all", "", "whose plugins, steps or ladder", "services: [web]"),
    Key("plugins", "list of names | all", "[]", "plugins that are off", "plugins: [payments]"),
    Key(
      "steps", "list of restart, repair, safe-mode, quarantine", "[]", "steps that are not taken",
      "steps: [repair, quarantine]"),
    Key("ladder", "off", "", "restarted for ever, with backoff, and nothing else", "ladder: off"),
  ])

  /// Keys that make no sense for all services at once.
  package static let notInDefaults = ["command", "description", "requires", "after"]

  /// services/NAME.yaml.
  package static let service = KeyTable([
    Key("description", "text", "", "what the service is, for people", "description: Shop front end"),
    Key(
      "command", "list, or one line", "", "the program's absolute path and its arguments",
      "command: [/usr/bin/node, /srv/web/server.js]"),
    Key("user", "name or number", "guardian's own", "who runs it, with all groups of the user database", "user: web"),
    Key("group", "name or number", "the user's", "its primary group", "group: web"),
    Key("directory", "path", "/", "its working directory", "directory: /srv/web"),
    Key(
      "environment", "mapping of names to text", "{}", "variables on top of PATH HOME USER LOGNAME SHELL LANG",
      "environment: {PORT: \"8080\"}"),
    Key(
      "environment-file", "list of paths", "[]", "files with NAME=value lines; one that starts with '-' may be missing",
      "environment-file: [-/etc/default/web]"),
    Key("umask", "quoted octal", "\"0022\"", "permissions that new files do not get", "umask: \"0027\""),
    Key("limits", "mapping", "{}", "resource limits, as setrlimit(2) has them", "limits: {open-files: 65536}"),
    Key(
      "limits.open-files", "number from 16 | unlimited", "guardian's own", "open descriptors",
      "limits: {open-files: 65536}"),
    Key("limits.core", "size | unlimited", "guardian's own", "size of a core dump", "limits: {core: 0}"),
    Key(
      "limits.stack", "size | unlimited", "guardian's own", "size of the main thread's stack", "limits: {stack: 64M}"),
    Key(
      "limits.processes", "number | unlimited", "guardian's own", "processes and threads of the user",
      "limits: {processes: 512}"),
    Key(
      "limits.file-size", "size | unlimited", "guardian's own", "size of a file it writes", "limits: {file-size: 2G}"),
    Key(
      "limits.locked-memory", "size | unlimited", "guardian's own", "memory it may lock", "limits: {locked-memory: 64K}"
    ),
    Key("limits.address-space", "size | unlimited", "guardian's own", "virtual memory", "limits: {address-space: 8G}"),
    Key(
      "limits.cpu-time", "duration from 1s | unlimited", "guardian's own", "processor time", "limits: {cpu-time: 1h}"),
    Key("limits.data", "size | unlimited", "guardian's own", "data segment", "limits: {data: 1G}"),
    Key(
      "limits.memory", "size from 1M | unlimited", "", "memory of all its processes together, by their control group",
      "limits: {memory: 1G}"),
    Key(
      "limits.tasks", "number from 1 | unlimited", "", "processes and threads of its control group",
      "limits: {tasks: 512}"),
    Key(
      "limits.cpu-weight", "1 … 10000", "100 of the kernel's", "share of the processor beside other control groups",
      "limits: {cpu-weight: 50}"),
    Key(
      "oom-score-adjust", "-1000 … 1000", "0, or guardian's own where that is higher",
      "how soon the kernel kills it for memory", "oom-score-adjust: 200"),
    Key(
      "nice", "-20 … 19", "0, or guardian's own where that is higher", "scheduling priority; less is more", "nice: 5"),
    Key(
      "capabilities", "list of names", "[]", "what a user other than root keeps of root's power, as in capabilities(7)",
      "user: web\ncapabilities: [net-bind-service]"),
    Key(
      "sockets", "list of names", "[]", "sockets that systemd passed to guardian, handed on from descriptor 3",
      "sockets: [http]"),
    Key(
      "before-start", "list, or one line", "", "a program to run before each start; its failure is no crash",
      "before-start: [/usr/libexec/web/migrate]"),
    Key("start", "boot | manual", "boot", "whether guardian starts it by itself", "start: manual"),
    Key(
      "requires", "list of services", "[]", "it waits until these are ready; a task: until it has finished well",
      "requires: [db]"),
    Key(
      "after", "list of services", "[]", "it starts after these, where they start at the same time", "after: [cache]"),
    Key("groups", "list of names", "[]", "@NAME means all of a group, with guardianctl", "groups: [shop]"),
    Key("type", "daemon | task", "daemon", "runs until stopped, or to its end", "type: task"),
    Key("ready", "none | notify | check | {fd: N}", "none", "how it tells that it is ready", "ready: notify"),
    Key("ready.fd", "3 … 1023", "", "it writes a newline there when it is ready", "ready: {fd: 3}"),
    Key(
      "start-timeout", "duration from 1ms", "90s", "how long it may take to become ready",
      "start-timeout: 30s\nready: notify"),
    Key("startup-window", "duration from 1ms", "60s", "a death before this is over is a strike", "startup-window: 20s"),
    Key("watchdog", "duration", "0s", "WATCHDOG=1 is expected this often; 0s: not", "watchdog: 30s"),
    Key(
      "checks", "list of mappings", "[]", "what is looked at, again and again, while it runs",
      "checks:\n  - {name: port, tcp: 8080}"),
    Key("checks[].name", "name", "", "how it is called in status and records", "checks:\n  - {name: port, tcp: 8080}"),
    Key(
      "checks[].http", "URL", "", "an HTTP server answers a GET well",
      "checks:\n  - {name: health, http: \"http://127.0.0.1:8080/health\"}"),
    Key(
      "checks[].status", "100 … 599, or list of them", "200 to 299", "the status codes that are good",
      "checks:\n  - {name: health, http: \"http://127.0.0.1:8080/health\", status: [200, 204]}"),
    Key(
      "checks[].body", "text", "", "what must be within the first 64 KiB of the answer's body",
      "checks:\n  - {name: health, http: \"http://127.0.0.1:8080/health\", body: ok}"),
    Key(
      "checks[].unix", "path", "", "the socket to connect to instead of the URL's host",
      "checks:\n  - {name: health, http: \"http://localhost/health\", unix: /run/web/http.sock}"),
    Key(
      "checks[].tcp", "port, HOST:PORT or path", "", "a connection is accepted",
      "checks:\n  - {name: port, tcp: \"127.0.0.1:5432\"}"),
    Key(
      "checks[].exec", "list, or one line", "", "a program ends with exit status 0",
      "checks:\n  - {name: query, exec: [/usr/libexec/web/check]}"),
    Key(
      "checks[].file", "path", "", "a file is written to again and again",
      "checks:\n  - {name: beat, file: /run/web/heartbeat, within: 1min}"),
    Key(
      "checks[].within", "duration from 1s", "", "how old that file may be",
      "checks:\n  - {name: beat, file: /run/web/heartbeat, within: 1min}"),
    Key(
      "checks[].every", "duration from 100ms", "10s", "from one look to the next",
      "checks:\n  - {name: port, tcp: 8080, every: 30s}"),
    Key(
      "checks[].timeout", "duration from 1ms to 1h", "3s", "a look that takes longer has failed",
      "checks:\n  - {name: port, tcp: 8080, timeout: 1s}"),
    Key(
      "checks[].failures", "1 … 1000", "3", "so many failures in a row make the check fail",
      "checks:\n  - {name: port, tcp: 8080, failures: 5}"),
    Key(
      "checks[].successes", "1 … 1000", "1", "so many good looks in a row make it pass",
      "checks:\n  - {name: port, tcp: 8080, successes: 2}"),
    Key("stop", "mapping", "{}", "how it is ended", "stop: {signal: INT}"),
    Key("stop.signal", "signal name", "TERM", "what the main process gets first", "stop: {signal: QUIT}"),
    Key("stop.timeout", "duration", "10s", "shared by all its processes; then KILL", "stop: {timeout: 30s}"),
    Key(
      "stop.then", "list of mappings", "[]", "further signals before KILL, each with its time",
      "stop: {then: [{signal: INT, timeout: 5s}]}"),
    Key(
      "stop.then[].signal", "signal name", "", "what the main process gets, or the rest once that has ended",
      "stop: {then: [{signal: QUIT}]}"),
    Key(
      "stop.then[].timeout", "duration", "that of the stop", "how long it is given",
      "stop: {then: [{signal: INT, timeout: 3s}]}"),
    Key(
      "stop.leftovers", "kill | term", "kill", "what the rest gets after a crash of the main process",
      "stop: {leftovers: term}"),
    Key(
      "reload", "signal name | list, or one line", "", "how it is told to read its own configuration again",
      "reload: HUP"),
    Key(
      "restart", "always | on-crash | never", "always; for a task on-crash", "which ends are followed by a start",
      "restart: never"),
    Key("backoff", "mapping", "{}", "the pause before a restart", "backoff: {first: 1s}"),
    Key("backoff.first", "duration", "500ms", "before the first try on a step", "backoff: {first: 1s}"),
    Key(
      "backoff.factor", "number from 1 to 1000", "2", "each further pause is longer by this", "backoff: {factor: 1.5}"),
    Key("backoff.max", "duration", "60s", "never longer than this", "backoff: {max: 5min}"),
    Key("backoff.jitter", "0% … 100%", "10%", "up to this much is added by chance", "backoff: {jitter: 0%}"),
    Key(
      "escalation", "mapping | off", "{}", "how many strikes each step has; off: restart for ever", "escalation: off"),
    Key("escalation.restart", "1 … 1000", "3", "strikes of the step restart", "escalation: {restart: 5}"),
    Key("escalation.repair", "1 … 1000", "2", "strikes of the step repair", "escalation: {repair: 1}"),
    Key("escalation.safe-mode", "1 … 1000", "2", "strikes of the step safe-mode", "escalation: {safe-mode: 1}"),
    Key(
      "escalation.deescalate-after", "duration from 1s", "1h", "settled running after which it goes one step down",
      "escalation: {deescalate-after: 10min}"),
    Key("late", "mapping", "{}", "deaths after the startup window", "late: {budget: 10}"),
    Key("late.budget", "0 … 10000", "5", "as many restart at once and are no strikes", "late: {budget: 10}"),
    Key("late.within", "duration from 1s", "1h", "counted over this time", "late: {within: 6h}"),
    Key("success-exit", "list of exit codes", "[0]", "these are clean ends", "success-exit: [0, 143]"),
    Key("fatal-exit", "list of exit codes", "[]", "these lead straight to quarantine", "fatal-exit: [64]"),
    Key(
      "repair", "list of mappings", "[]", "what is tried, in order, before a start on the step repair",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web}"),
    Key(
      "repair[].name", "name", "", "how it is called in status and records",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web}"),
    Key(
      "repair[].run", "list, or one line", "", "a program to run; exit 125 says that nothing can be repaired",
      "repair:\n  - {name: index, run: [/usr/libexec/web/rebuild-index]}"),
    Key(
      "repair[].move-aside", "path", "", "a file or directory to rename out of the way",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web}"),
    Key(
      "repair[].restore", "list of paths", "", "files to put back as they were when the service was last well",
      "repair:\n  - {name: config, restore: [/etc/web/config.json]}"),
    Key(
      "repair[].on", "list of causes", "[]", "only after such a death: exit:N, signal:NAME, class:NAME or a cause",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web, on: [\"exit:78\", oom]}"),
    Key(
      "repair[].from-attempt", "1 … 1000", "1", "not before this round of repairs",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web, from-attempt: 2}"),
    Key(
      "repair[].at-most", "mapping", "", "a limit on how often it runs",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web, at-most: {times: 2, within: 24h}}"),
    Key(
      "repair[].at-most.times", "1 … 1000", "", "so many times",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web, at-most: {times: 2, within: 24h}}"),
    Key(
      "repair[].at-most.within", "duration from 1s", "", "in this time",
      "repair:\n  - {name: drop-cache, move-aside: /var/cache/web, at-most: {times: 2, within: 24h}}"),
    Key(
      "repair[].timeout", "duration from 1ms", "60s", "then it gets TERM, and after that KILL",
      "repair:\n  - {name: index, run: [/usr/libexec/web/rebuild-index], timeout: 10min}"),
    Key(
      "repair[].user", "name or number", "the service's; for move-aside and restore guardian's own", "who runs it",
      "repair:\n  - {name: index, run: [/usr/libexec/web/rebuild-index], user: web}"),
    Key(
      "plugins", "mapping", "{}", "parts that can be switched off",
      "plugins:\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.search", "off | suggest | auto", "auto", "find the one that is to blame, where safe mode has helped",
      "plugins:\n  search: suggest\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.when", "incident | idle | time of day", "incident",
      "when a service that is well may be started anew for its plugins' sake",
      "plugins:\n  when: \"02:00-05:00\"\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.retry-after", "duration from 1s", "24h", "a plugin that is off is due for another try after this",
      "plugins:\n  retry-after: 6h\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.list", "list of mappings", "[]", "the plugins",
      "plugins:\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.list[].name", "name", "", "how it is called in status and in GUARDIAN_DISABLED_PLUGINS",
      "plugins:\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.list[].environment", "mapping of names to text", "{}", "set while it is off",
      "plugins:\n  list:\n    - {name: payments, environment: {WEB_PAYMENTS: \"off\"}}"),
    Key(
      "plugins.list[].unset", "list of variables", "[]", "variables that are missing while it is off",
      "plugins:\n  list:\n    - {name: tracing, unset: [WEB_TRACE_TO]}"),
    Key(
      "plugins.list[].remove-from", "list of mappings", "[]", "lists that miss an element while it is off",
      "plugins:\n  list:\n    - {name: social, remove-from: [{variable: WEB_PLUGINS, item: social}]}"),
    Key(
      "plugins.list[].remove-from[].variable", "name of a variable", "", "whose value is the list",
      "plugins:\n  list:\n    - {name: social, remove-from: [{variable: WEB_PLUGINS, item: social}]}"),
    Key(
      "plugins.list[].remove-from[].argument", "text", "", "the option whose value is the list",
      "command: [/usr/bin/web, \"--plugins=social,maps\"]\nplugins:\n  list:\n    - {name: social, remove-from: [{argument: --plugins, item: social}]}"
    ),
    Key(
      "plugins.list[].remove-from[].item", "text", "", "the element",
      "plugins:\n  list:\n    - {name: social, remove-from: [{variable: WEB_PLUGINS, item: social}]}"),
    Key(
      "plugins.list[].remove-from[].separator", "text", "\",\"", "what stands between elements",
      "plugins:\n  list:\n    - name: hooks\n      remove-from: [{variable: NODE_OPTIONS, item: --require hooks, separator: \" \"}]"
    ),
    Key(
      "plugins.list[].preload", "library, or list of libraries", "[]", "missing in LD_PRELOAD while it is off",
      "plugins:\n  list:\n    - {name: allocator, preload: libjemalloc.so.2}"),
    Key(
      "plugins.list[].arguments", "list of arguments", "[]", "added to the command while it is off",
      "plugins:\n  list:\n    - {name: metrics, arguments: [--disable-extension, metrics]}"),
    Key(
      "plugins.list[].remove-arguments", "list of arguments, or of lists of arguments", "[]",
      "missing in the command while it is off",
      "command: [/usr/bin/web, --with-search, --load=search.so]\nplugins:\n  list:\n    - {name: search, remove-arguments: [--with-search, [--load, search.so]]}"
    ),
    Key(
      "plugins.list[].replace-arguments", "list of mappings", "[]", "others in their place while it is off",
      "command: [/usr/bin/web, --engine=fast]\nplugins:\n  list:\n    - {name: engine, replace-arguments: [{from: --engine=fast, to: --engine=plain}]}"
    ),
    Key(
      "plugins.list[].replace-arguments[].from", "argument, or list of arguments", "", "what is in the command",
      "command: [/usr/bin/web, --engine=fast]\nplugins:\n  list:\n    - {name: engine, replace-arguments: [{from: --engine=fast, to: --engine=plain}]}"
    ),
    Key(
      "plugins.list[].replace-arguments[].to", "argument, or list of arguments", "", "what is there instead",
      "command: [/usr/bin/web, --engine=fast]\nplugins:\n  list:\n    - {name: engine, replace-arguments: [{from: --engine=fast, to: --engine=plain}]}"
    ),
    Key(
      "plugins.list[].hide", "path, or list of paths", "[]", "absent for this service alone while it is off",
      "plugins:\n  list:\n    - {name: social, hide: /srv/web/plugins/social.so}"),
    Key(
      "plugins.list[].empty", "path, or list of paths", "[]", "empty for this service alone while it is off",
      "plugins:\n  list:\n    - {name: themes, empty: /srv/web/themes}"),
    Key(
      "plugins.list[].good-copy", "path, or list of paths", "[]",
      "files as they were when it was last well, for this service alone while it is off",
      "plugins:\n  list:\n    - {name: config, good-copy: /etc/web/config.json}"),
    Key(
      "plugins.directory", "path", "", "each entry of this directory is a plugin",
      "plugins: {directory: /srv/web/plugins.d}"),
    Key(
      "plugins.only", "pattern, or list of patterns", "all", "which entries of the directory are plugins",
      "plugins: {directory: /srv/web/plugins.d, only: \"*.so\"}"),
    Key(
      "plugins.entry", "mapping", "{hide: \"%p\"}", "how an entry of the directory is switched off",
      "plugins:\n  directory: /srv/web/plugins.d\n  entry: {remove-from: [{variable: WEB_PLUGINS, item: \"%s\"}]}"),
    Key(
      "plugins.acknowledge", "mapping", "", "what must confirm that plugins are off",
      "plugins: {directory: /srv/web/plugins.d, acknowledge: {status: \"safe mode\"}}"),
    Key(
      "plugins.acknowledge.check", "name", "", "this check passes",
      "checks:\n  - {name: safe, http: \"http://127.0.0.1:8080/safe\"}\nplugins:\n  directory: /srv/web/plugins.d\n  acknowledge: {check: safe}"
    ),
    Key(
      "plugins.acknowledge.status", "text", "", "a STATUS= of the program begins with this",
      "plugins: {directory: /srv/web/plugins.d, acknowledge: {status: \"safe mode\"}}"),
    Key("quarantine", "mapping", "{}", "the last step", "quarantine: {retry-after: 1h}"),
    Key(
      "quarantine.retry-after", "duration from 1s | never", "15min", "before the first trial start; doubles each time",
      "quarantine: {retry-after: never}"),
    Key("quarantine.max", "duration from 1s", "24h", "never longer than this", "quarantine: {max: 2h}"),
    Key(
      "quarantine.fallback", "name of a service", "", "what runs in its place meanwhile; it has start: manual",
      "quarantine: {fallback: web-static}"),
    Key(
      "mode", "enforce | observe", "enforce", "observe: repair, safe mode and quarantine are only logged",
      "mode: observe"),
    Key(
      "mitigate", "off | auto", "off",
      "auto: what surrounds a program that crashes may be changed, to see whether that helps", "mitigate: auto"),
    Key("runbook", "text", "", "shown in quarantine", "runbook: https://wiki.example/web"),
    Key("contact", "text", "", "shown in quarantine", "contact: ops@example.org"),
    Key(
      "access", "mapping", "{}", "who may do what about this service",
      "access: {operate: [web, \"@redis\"]}"),
    Key(
      "access.view", "list of users and @groups", "[]", "they may look at it", "access: {view: [web]}"),
    Key(
      "access.operate", "list of users and @groups", "[]", "they may also give orders about it",
      "access: {operate: [web]}"),
    Key(
      "access.admin", "list of users and @groups", "[]", "they may also run its repairs in a drill",
      "access: {admin: [\"@redis\"]}"),
    Key(
      "notices", "mapping", "{}", "programs to run when something happens",
      "notices: {on-crash: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "notices.on-crash", "list, or one line", "", "after each death that counts",
      "notices: {on-crash: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "notices.on-escalation", "list, or one line", "", "when it moves a step up",
      "notices: {on-escalation: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "notices.on-recovery", "list, or one line", "", "when it has settled after strikes",
      "notices: {on-recovery: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "notices.on-quarantine", "list, or one line", "", "when it is quarantined",
      "notices: {on-quarantine: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "notices.on-common-cause", "list, or one line", "", "when it is one of several that begin to loop at once",
      "notices: {on-common-cause: [/usr/libexec/guardian/notify-mail]}"),
    Key(
      "log", "journal | file | inherit | none", "journal where its socket exists, else inherit",
      "where its output goes",
      "log: none"),
  ])
}
