/// `io.guardian.Supervisor` in Varlink's own language, as GetInterfaceDescription answers it. A test holds the codec to it.
package let supervisorInterface = """
  # Supervises services, and walks the failing ones through restart, repair, safe mode and quarantine.
  interface io.guardian.Supervisor

  # What a service does next of its own accord. Times are RFC 3339, UTC.
  type Next (action: string, at: string, in_ms: int)

  # How the last run ended. 'cause' and 'class' are the words of guardian-ladder(7).
  type LastEnd (
    cause: string,
    class: string,
    code: ?int,
    signal: ?string,
    core: bool,
    at: string,
    uptime_ms: int,
    text: string
  )

  # A health check in the present run. 'kind' is http, tcp, exec or file; 'state' is unknown, passing or failing; 'text' is
  # what the last look came to; 'failures' counts bad looks in a row.
  type Check (
    name: string,
    kind: string,
    state: string,
    since: string,
    text: string,
    failures: int
  )

  # A plugin. 'state' is on, off, suspect or probation; 'off' says that the present run, or the next one, is without it;
  # 'by' is ladder, search, operator or switch; 'until' when it is tried again, or trusted again; 'suspicion' how likely it
  # is to be to blame, in thousandths; 'partner' the one together with which alone it does harm; 'files' those of its files
  # that are not as they were when the service was last well, and when they changed (null: they are gone).
  type Plugin (
    name: string,
    state: string,
    off: bool,
    by: ?string,
    until: ?string,
    suspicion: ?int,
    pinned: bool,
    partner: ?string,
    files: []ChangedFile
  )
  type ChangedFile (path: string, changed: ?string)

  # What a file of switches.d turns off for a service on this host; 'until' is null where it ends with its file only.
  type Switch (what: string, reason: string, until: ?string, file: string)

  # One service. A list has all members, a brief list only 'name' and what is not as usual, which is: running, settled,
  # wanted up, on step restart, without strikes.
  type Service (
    name: string,
    description: ?string,
    wanted: ?string,
    phase: ?string,
    step: ?string,
    settled: ?bool,
    degraded: ?bool,
    pid: ?int,
    run: ?string,
    since: ?string,
    uptime_ms: ?int,
    restarts: ?int,
    strikes: ?int,
    strikes_allowed: ?int,
    held: ?bool,
    disabled_plugins: ?[]string,
    next: ?Next,
    last_end: ?LastEnd,
    reason: ?string,
    type: ?string,
    observe: ?bool,
    clears: ?string,
    pending_definition: ?bool,
    runbook: ?string,
    contact: ?string,
    log: ?string,
    log_file: ?string,
    status_text: ?string,
    requires: ?[]string,
    after: ?[]string,
    groups: ?[]string,
    repairs: ?[]string,
    waits_for: ?[]string,
    checks: ?[]Check,
    plugins: ?[]Plugin,
    stopped_by: ?string,
    fallback: ?string,
    stands_in_for: ?[]string,
    switches: ?[]Switch,
    notes: ?[]string
  )

  # A fault of the configuration. 'severity' is error or warning.
  type Diagnostic (
    severity: string,
    file: string,
    line: ?int,
    column: ?int,
    what: string,
    why: string,
    suggestion: ?string
  )

  # One line of a plan, in milliseconds from its beginning, without jitter and with all of it.
  type PlanEntry (
    earliest_ms: int,
    latest_ms: int,
    action: string,
    step: string,
    strikes: int,
    strikes_allowed: int,
    text: string
  )

  # Services in order of name, at most 64 in one reply: call it with 'more'. A name '@shop' means all of the group shop. 'worst' is what these services add to the exit
  # status of 'guardianctl status'; 'missing' are the names that nobody has.
  method List(names: ?[]string, brief: ?bool) -> (services: []Service, worst: int, missing: ?[]string)

  # Orders. With 'wait' (the default) the reply comes when the order has come true, or has failed.
  method Start(name: string, wait: ?bool) -> (name: string, note: string)
  method Stop(name: string, until_boot: ?bool, wait: ?bool) -> (name: string, note: string)
  method Restart(name: string, wait: ?bool) -> (name: string, note: string)
  method Release(name: string, wait: ?bool) -> (name: string, note: string)
  method Reset(name: string, wait: ?bool) -> (name: string, note: string)
  # The service's own reload, as its definition says; 'Failed' where it has none, or does not run.
  method ReloadService(name: string, wait: ?bool) -> (name: string, note: string)

  # 'action' is enable, disable, pin, unpin (of one plugin), or search (of all). What is enabled or disabled is so from the
  # next start on.
  method Plugins(name: string, action: string, plugin: ?string, wait: ?bool) -> (name: string, note: string)
  # All plugins off, or on, by an operator; a service that runs is restarted for it.
  method SafeMode(name: string, on: bool, wait: ?bool) -> (name: string, note: string)
  # Runs this repair, or all of the service, now: a service that runs is stopped before and started after that.
  method Repair(name: string, repair: ?string, wait: ?bool) -> (name: string, note: string)

  # Ends the observe mode into which guardian goes after three faults of its own within five minutes.
  method ResetGuardian() -> (name: string, note: string)
  method Hold(name: string, for_ms: int, wait: ?bool) -> (name: string, note: string)

  # A changed service: the keys that are in force now, and those that its present run does not have.
  type Changed (name: string, live: []string, next_start: []string, note: string)

  # A service that runs on with what it was started with, by this change or an earlier one.
  type Pending (name: string, keys: []string)

  # What became of one restart; or of one stop, where the definition is gone.
  type Restarted (name: string, done: bool, text: string)

  # Reads the configuration again. One bad file harms no other service: those in 'invalid' go on with their last good
  # definition, if they had one, and 'diagnostics' has the errors. 'next_start' are those of 'changed' that run on as they
  # were until their next start, 'details' says of each which keys that is about; 'host' are changed keys of guardian.yaml.
  # With 'dry_run' nothing is changed. With 'restart' all in 'need_restart' are restarted, and the reply comes when that is
  # over. ConfigurationFault: the directory cannot be read at all, and everything is as before.
  method Reload(dry_run: ?bool, restart: ?bool) -> (
    dry_run: bool,
    services: int,
    added: []string,
    changed: []string,
    removed: []string,
    next_start: []string,
    unchanged: int,
    invalid: []string,
    host: []string,
    details: []Changed,
    need_restart: []Pending,
    restarts: []Restarted,
    diagnostics: []Diagnostic
  )

  # Guardian's own program, as its file is now, takes over with the same pid; no service is touched, and no client is
  # lost. The reply comes from the new program; 'Failed' comes from the old one, which then goes on.
  method Upgrade() -> (from: string, to: string, pid: int, services: int)

  # What would happen, and when, if the service kept dying; from its present state, or from zero. 'causes' say how it dies,
  # and how long after its start: signal:SEGV@2s, exit:1, oom@1min; at most 16, in turn. Without any it dies as it last did.
  method Plan(name: string, from_start: ?bool, causes: ?[]string) -> (name: string, entries: []PlanEntry)

  # A walk along a throw-away copy of the service's ladder, from zero and without any delay: it dies as 'cause' says (exit:N,
  # signal:NAME, class:NAME, oom, killed, exec, watchdog, start-timeout or check; exit:1 where nothing is said), at most
  # 'crashes' times (100), and the walk ends in quarantine. Its record and its history know nothing of it. With
  # 'with_repairs' the repairs are really run, with GUARDIAN_DRILL=1, one reply for what each comes to: call it with 'more'.
  # 'failed' counts those that have failed. It ends with its client.
  method Drill(name: string, crashes: ?int, cause: ?string, with_repairs: ?bool) -> (
    name: string,
    entries: []PlanEntry,
    failed: int
  )

  # A death that nobody asked for. 'count' is how often its like was seen: the same service and signature; 'first' and
  # 'last' say when.
  type Crash (
    id: string,
    service: string,
    at: string,
    cause: string,
    class: string,
    text: string,
    signature: string,
    signature_strong: bool,
    count: int,
    first: string,
    last: string
  )

  # Crash reports, newest first, at most 200; of one service, or of all.
  method Crashes(name: ?string) -> (crashes: []Crash)

  # One whole report, by the beginning of its id, of which six digits are enough where they are unique. Its members are
  # those of guardianctl(1), CRASH REPORTS.
  method GetCrash(id: string) -> (report: object)

  # One transition of a service. 'id', 16 hexadecimal digits, is its own for ever, and greater than that of every event
  # before it; 'name' is a word and 'details' has what is particular to it: see guardianctl(1), EVENTS.
  type Event (id: string, at: string, service: string, name: string, text: string, details: object)

  # Events, oldest first, at most 256 in one reply: call it with 'more'. Of the named services (a name '@shop' means all of
  # the group shop), or of all. 'since' is a time, 'after' an event's id; without either the newest 1000 are told, or with
  # 'follow' the newest 10. With 'follow' the replies go on, one or more for each event to come, until the client goes away.
  # A client that does not read is not waited for: 'missed' says how many events were left out before those of the reply.
  method Events(names: ?[]string, since: ?string, after: ?string, follow: ?bool) -> (events: []Event, missed: ?int)

  method Summary() -> (line: string, state: string, warnings: []string, diagnostics: []Diagnostic)

  # One value. 'labels' are the values of the labels of its kind, in their order. A plain one has 'value', in millionths of a
  # second where its name ends in _seconds; a histogram has 'buckets', the last one for all that is beyond its bounds, and
  # 'sum', in millionths of a second: see guardianctl(1), METRICS.
  type Metric (name: string, labels: []string, value: ?int, buckets: ?[]int, sum: ?int)

  # What guardian has counted and measured since its program was started: call it with 'more'.
  method Metrics() -> (metrics: []Metric)

  method GetVersion() -> (version: string, guarantees: [string]string)

  error NoSuchService (name: string)
  # 'needs' is the role that is missing: view, operate or admin; 'service' where, null for the host. 'reason' says which key
  # of which file would grant it.
  error NotPermitted (reason: string, needs: ?string, service: ?string)
  error Failed (reason: string)
  error ConfigurationFault (diagnostics: []Diagnostic)
  error Busy (reason: string)

  """

/// `org.varlink.service`, which every Varlink service has. Source: https://varlink.org/Service
package let varlinkServiceInterface = """
  # The interface that every Varlink service has.
  interface org.varlink.service

  method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)
  method GetInterfaceDescription(interface: string) -> (description: string)

  error InterfaceNotFound (interface: string)
  error MethodNotFound (method: string)
  error MethodNotImplemented (method: string)
  error InvalidParameter (parameter: string)
  error PermissionDenied ()
  error ExpectedMore ()

  """
