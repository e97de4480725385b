import Glibc
import Testing

extension PluginPrograms {
  @Suite struct `a program whose fault its surroundings can hide` {
    /// Only the kernel's line about a fault tells where it was, and with that what could help.
    static let isTold: Bool = {
      let kernelLog = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      guard kernelLog >= 0 else { return false }
      close(kernelLog)
      return (try? Files.read("/proc/sys/debug/exception-trace"))?.hasPrefix("1") ?? false
    }()

    private func service(_ program: String, _ fault: String) -> String {
      """
      command: ["\(program)", \(fault)]
      mitigate: auto
      limits: {stack: 8M}
      startup-window: 300ms
      backoff: {first: 300ms, factor: 1}
      escalation: {restart: 30}
      log: none

      """
    }

    @Test(
      .enabled(
        if: isTold && Compiler.path != nil, "not shown: no C compiler, or the kernel tells nobody where a fault was"))
    func `lives with it, degraded, until the program is another one; a privileged one has none`() async throws {
      let scratch = try Scratch()
      let program = scratch.path + "/mended", privileged = scratch.path + "/privileged"
      try await Compiler.build("mended.c", program)
      try await Compiler.build("mended.c", privileged)
      #expect(chmod(privileged, 0o4755) == 0)
      let guardian = try await Guardian(
        scratch,
        services: [
          "heap": service(program, "uninitialised"), "stack": service(program, "deep"),
          "power": service(privileged, "uninitialised"),
        ])
      for (name, mitigation) in [("heap", "zeroed-memory"), ("stack", "larger-stack")] {
        let status = try await guardian.wait(for: name, "settles") { $0["settled"].bool == true }
        #expect(status["degraded"].bool == true, "\(status)")
        // Two failures that the kernel has told of, and it tells of ten in five seconds, of all programs.
        #expect((status["restarts"].int ?? 0) >= 2, "two failures, then the trial: \(status)")
        #expect(status["notes"].array.contains { $0.string?.contains("\(mitigation), on trial") ?? false }, "\(status)")
        let pid = try #require(status["pid"].int)
        if name == "heap" {
          let environment = try Files.read("/proc/\(pid)/environ")
          // The loader takes the variable apart in place: older ones leave a zero byte for each colon.
          #expect(environment.contains("GLIBC_TUNABLES=glibc.malloc.perturb=255"))
          #expect(environment.contains("glibc.malloc.tcache_count=0"))
        } else {
          let limits = try Files.read("/proc/\(pid)/limits")
          #expect(limits.contains(#/Max stack size +33554432 /#), "\(limits)")
        }
      }
      // Set-user-id: it dies on, and nothing is tried.
      try await guardian.wait(for: "power", "dies on") { ($0["restarts"].int ?? 0) >= 4 }
      #expect(!guardian.log.contains(#/power.*mitigation/#), "\(guardian.log)")

      // The mended program replaces the broken one, as a package manager does it.
      let compiler = try #require(Compiler.path)
      let source = Place.repository + "/Tests/Support/mended.c"
      #expect(try await run([compiler, "-O1", "-DFIXED", "-o", program + ".new", source]).code == 0)
      #expect(rename(program + ".new", program) == 0)
      #expect(try await guardian.control("restart", "heap").code == 0)
      let status = try await guardian.wait(for: "heap", "settles") { $0["settled"].bool == true }
      #expect(status["degraded"].bool == false, "\(status)")
      let pid = try #require(status["pid"].int)
      #expect(!(try Files.read("/proc/\(pid)/environ").contains("GLIBC_TUNABLES")))
      try await guardian.stop()
    }
  }
}
