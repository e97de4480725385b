import GuardianControl
import Glibc
import Testing

@Suite struct `guardianctl import` {
  let scratch = Scratch()

  private func write(_ text: String, to path: String) {
    guard let file = fopen(path, "w") else { return }
    fputs(text, file)
    fclose(file)
  }
  private func read(_ path: String) -> String? {
    guard let file = fopen(path, "r") else { return nil }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 65_536)
    let count = fread(&bytes, 1, bytes.count, file)
    return Array(bytes[..<count]).text
  }

  @Test func `prints the service, tells the rest on standard error, and overwrites nothing`() throws {
    let unit = scratch.path + "/web.service", drop = unit + ".d", out = scratch.path + "/out"
    for directory in [drop, out] { mkdir(directory, 0o755) }
    write("[Service]\nExecStart=/bin/sleep 1\nPrivateTmp=yes\n[Install]\nWantedBy=x.target\n", to: unit)
    write("[Service]\nRestart=always\n", to: drop + "/a.conf")

    let plain = guardianctl(["import", unit], in: scratch)
    #expect(plain.status == 0)
    #expect(
      plain.output == """
        # Made from \(unit) by guardianctl import.
        command: [/bin/sleep, "1"]
        stop: {timeout: 90s}
        restart: always

        """)
    #expect(
      plain.errors == """
        \(unit):3: PrivateTmp=yes: not carried over: guardian does not shut services in: it shares /tmp and /var/tmp with \
        everybody
        guardianctl: web: 3 lines carried over, 0 with a difference, 1 not carried over, 0 not needed

        """)

    let written = guardianctl(["import", unit, "--output", out], in: scratch)
    #expect(written.status == 0 && written.output == "\(out)/web.yaml\n")
    #expect(read(out + "/web.yaml") == plain.output)

    write("mine\n", to: out + "/web.yaml")
    let refused = guardianctl(["import", unit, "--output", out, "--json"], in: scratch)
    #expect(refused.status == 1 && refused.output.contains("is there already; --force replaces it"))
    #expect(read(out + "/web.yaml") == "mine\n")
    let forced = guardianctl(["import", unit, "--output", out, "--force"], in: scratch)
    #expect(forced.status == 0 && read(out + "/web.yaml") == plain.output)

    let json = guardianctl(["import", unit, "--json"], in: scratch)
    #expect(
      json.status == 0 && json.errors == ""
        && json.output.hasPrefix(#"{"schema":1,"services":[{"name":"web","path":null,"#))
    #expect(json.output.contains(#""remarks":[{"kind":"lost","file":"\#(unit)","line":3,"what":"PrivateTmp=yes","#))
  }

  @Test func `gives the good services beside a path of which nothing comes, and ends with a failure`() {
    let one = scratch.path + "/one.service", empty = scratch.path + "/empty.service"
    write("[Service]\nExecStart=/bin/true\n", to: one)
    write("[Service]\nType=simple\n", to: empty)
    let both = guardianctl(["import", one, scratch.path + "/none.service", empty], in: scratch)
    #expect(both.status == 1 && both.output.contains("\ncommand: [/bin/true]\n"), "\(both)")
    #expect(both.errors.contains("cannot read \(scratch.path)/none.service: No such file"), "\(both)")
    #expect(both.errors.contains("guardianctl: there is no service in \(empty)\n"), "\(both)")
    let json = guardianctl(["import", "/nope", one, "--json"], in: scratch)
    #expect(json.status == 1 && json.output.hasPrefix(#"{"schema":1,"services":[{"name":"one""#), "\(json)")
    #expect(
      json.output.hasSuffix(
        #""error":{"name":"failed","message":"cannot read /nope: No such file or directory"}}"# + "\n"))
  }

  @Test func `reads a supervisord_conf with what it includes, and a directory of runit`() {
    let conf = scratch.path + "/supervisord.conf", runit = scratch.path + "/sv"
    for directory in [runit, runit + "/env"] { mkdir(directory, 0o755) }
    write("[include]\nfiles = *.ini\n", to: conf)
    write("[program:one]\ncommand=/bin/true\n[program:two]\ncommand=/bin/true\n", to: scratch.path + "/x.ini")
    write("#!/bin/sh\nexec chpst -e ./env /bin/true\n", to: runit + "/run")
    write("1\n", to: runit + "/env/A")
    let both = guardianctl(["import", conf, runit], in: scratch)
    #expect(both.status == 0, "\(both)")
    #expect(both.output.contains("--- # one.yaml\n# Made from \(scratch.path)/x.ini"))
    #expect(both.output.contains("--- # two.yaml\n") && both.output.contains("--- # sv.yaml\n"))
    #expect(both.output.contains("\nenvironment: {A: \"1\"}\n"))
  }

  @Test(
    arguments: [
      (["import"], 64, "'import' needs a UNIT.service, a supervisord.conf, or a service directory of runit"),
      (["import", "/nowhere/x.service"], 1, "cannot read /nowhere/x.service: No such file or directory"),
      (["import", "/"], 1, "/ has no 'run', and so is no service directory of runit"),
      (["import", "/dev/null"], 1, "/dev/null is none of UNIT.service"),
      (["import", "x", "--force"], 64, "--force goes with --output: without it no file is written"),
      (["status", "--output", "x"], 64, "--output does not go with 'status'; it belongs to 'import'"),
    ] as [([String], Int32, String)])
  func `says what is wrong`(arguments: [String], status: Int32, sentence: String) {
    let told = guardianctl(arguments, in: scratch)
    #expect(told.status == status && told.output == "")
    #expect(told.errors.hasPrefix("guardianctl: \(sentence)"), "\(told.errors)")
    let json = guardianctl(arguments + ["--json"], in: scratch)
    #expect(json.status == status && json.output.hasPrefix(#"{"schema":1,"#))
  }
}
