// swift-tools-version: 6.2
import PackageDescription

// Pure targets decide and never touch the outside; the compiler checks their memory safety too.
let swift: [SwiftSetting] = [
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("ExistentialAny"),
]
// Optimized in debug builds too: the simulator's tests play through days, and take minutes without.
let optimized: [SwiftSetting] = swift + [.unsafeFlags(["-O"], .when(configuration: .debug))]
let pure: [SwiftSetting] = optimized + [.strictMemorySafety()]

// `guardian` needs libsystemd and the name service, so its Swift runtime is linked statically and the C library is not;
// `guardianctl` and the simulator need neither and are wholly static, which halves the time of a short command.
// The thread sanitizer cannot be linked into a static program; `make sanitize` asks for dynamic ones.
let dynamic = Context.environment["GUARDIAN_DYNAMIC"] != nil
let staticRuntime: [LinkerSetting] = dynamic ? [] : [.unsafeFlags(["-static-stdlib"])]
let staticProgram: [LinkerSetting] = dynamic ? [] : [.unsafeFlags(["-static-executable"])]

// Named instants at which a test can kill guardian; in a release build only on request.
let failPoints = Context.environment["GUARDIAN_FAILPOINTS"] != nil
let failPointsInSwift: [SwiftSetting] = [
  failPoints ? .define("FAILPOINTS") : .define("FAILPOINTS", .when(configuration: .debug))
]
let failPointsInC: [CSetting] = [
  failPoints ? .define("GUARDIAN_FAILPOINTS") : .define("GUARDIAN_FAILPOINTS", .when(configuration: .debug))
]

let package = Package(
  name: "guardian",
  products: [
    .executable(name: "guardian", targets: ["guardian"]),
    .executable(name: "guardianctl", targets: ["guardianctl"]),
    .executable(name: "guardian-check", targets: ["guardian-check"]),
    .executable(name: "guardian-logger", targets: ["guardian-logger"]),
    .executable(name: "guardian-sim", targets: ["guardian-sim"]),
  ],
  targets: [
    // Pure: values and decisions.
    .target(name: "GuardianModel", swiftSettings: pure),
    .target(name: "GuardianCore", dependencies: ["GuardianModel"], swiftSettings: pure),
    .target(name: "GuardianSim", dependencies: ["GuardianCore", "GuardianModel"], swiftSettings: pure),

    // What was written for other supervisors, as text in and text out.
    .target(name: "GuardianImport", dependencies: ["GuardianModel"], swiftSettings: pure),

    // Pure but for a C parser.
    .target(name: "GuardianConfig", dependencies: ["GuardianModel", "CYAML"], swiftSettings: optimized),
    .target(name: "GuardianControl", dependencies: ["GuardianModel", "CJansson"], swiftSettings: swift),

    // Edges: they perform, and hold no policy.
    .target(
      name: "GuardianLinux", dependencies: ["GuardianModel", "CGuardian", "CArguments", "CSystemd"],
      swiftSettings: swift + failPointsInSwift),
    .target(name: "GuardianStore", dependencies: ["GuardianModel", "CSQLite"], swiftSettings: swift),
    // Linked by `guardian-check` alone, so that the daemon has no libcurl in its process.
    .target(name: "GuardianChecks", dependencies: ["GuardianModel", "GuardianLinux", "CCurl"], swiftSettings: swift),
    // Linked by `guardian-logger` alone; without libsystemd, so that the program is wholly static.
    .target(
      name: "GuardianLogger", dependencies: ["GuardianModel", "CGuardian", "CZlib"], swiftSettings: swift),
    .target(
      name: "GuardianRuntime",
      dependencies: [
        "GuardianModel", "GuardianCore", "GuardianConfig", "GuardianControl", "GuardianLinux", "GuardianStore",
      ],
      swiftSettings: swift),

    // Programs: arguments in, exit status out.
    .executableTarget(
      name: "guardian", dependencies: ["GuardianRuntime", "GuardianModel"],
      swiftSettings: swift, linkerSettings: staticRuntime),
    .executableTarget(
      name: "guardianctl",
      dependencies: ["GuardianControl", "GuardianImport", "GuardianModel", "CArguments", "CZlib"],
      swiftSettings: swift, linkerSettings: staticProgram),
    .executableTarget(
      name: "guardian-check", dependencies: ["GuardianChecks", "GuardianLinux"],
      swiftSettings: swift, linkerSettings: staticRuntime),
    .executableTarget(
      name: "guardian-logger", dependencies: ["GuardianLogger", "CGuardian", "CArguments"],
      swiftSettings: swift, linkerSettings: staticProgram),
    .executableTarget(
      name: "guardian-sim", dependencies: ["GuardianSim", "GuardianCore", "GuardianModel"],
      swiftSettings: swift, linkerSettings: staticProgram),

    // C: what Swift cannot do, and what it cannot import.
    .target(
      name: "CGuardian",
      cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Wno-unused-parameter"])] + failPointsInC),
    .target(name: "CArguments"),
    .systemLibrary(name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
    .systemLibrary(name: "CYAML", pkgConfig: "yaml-0.1", providers: [.apt(["libyaml-dev"])]),
    .systemLibrary(name: "CJansson", pkgConfig: "jansson", providers: [.apt(["libjansson-dev"])]),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),

    .testTarget(name: "GuardianModelTests", dependencies: ["GuardianModel"], swiftSettings: swift),
    .testTarget(name: "GuardianCoreTests", dependencies: ["GuardianCore", "GuardianModel"], swiftSettings: swift),
    .testTarget(
      name: "GuardianSimTests", dependencies: ["GuardianSim", "GuardianCore", "GuardianModel"], swiftSettings: swift),
    .testTarget(
      name: "GuardianImportTests", dependencies: ["GuardianImport", "GuardianConfig", "GuardianModel"],
      swiftSettings: swift),
    .testTarget(name: "GuardianConfigTests", dependencies: ["GuardianConfig", "GuardianModel"], swiftSettings: swift),
    .testTarget(
      name: "GuardianControlTests", dependencies: ["GuardianControl", "GuardianModel"], swiftSettings: swift),
    .testTarget(
      name: "GuardianStoreTests", dependencies: ["GuardianStore", "GuardianModel", "CStoreFaults"],
      swiftSettings: swift),
    // A file system for SQLite that fails, hangs and records.
    .target(name: "CStoreFaults", dependencies: ["CSQLite"], path: "Tests/CStoreFaults"),
    // For GuardianLinuxTests: what cannot be done in the test's own process.
    .executableTarget(
      name: "guardian-probe", dependencies: ["GuardianLinux", "GuardianModel"], path: "Tests/Probe",
      swiftSettings: swift, linkerSettings: staticRuntime),
    // For ProgramTests: a service at its worst.
    .executableTarget(
      name: "guardian-hostile", path: "Tests/Hostile", cSettings: [.unsafeFlags(["-O2", "-Wall", "-Wextra"])]),
    .testTarget(name: "GuardianLinuxTests", dependencies: ["GuardianLinux", "GuardianModel"], swiftSettings: swift),
    .testTarget(
      name: "GuardianChecksTests", dependencies: ["GuardianChecks", "GuardianLinux", "GuardianModel"],
      swiftSettings: swift),
    .testTarget(
      name: "GuardianLoggerTests", dependencies: ["GuardianLogger", "GuardianModel", "CGuardian"], swiftSettings: swift),
    .testTarget(
      name: "GuardianRuntimeTests",
      dependencies: [
        "GuardianRuntime", "GuardianCore", "GuardianConfig", "GuardianControl", "GuardianLinux", "GuardianStore",
        "GuardianModel",
      ], swiftSettings: swift),
    // Whole programs, started and talked to as a user would. They are built with every test; named as dependencies, their
    // static linking would be applied to the test bundle too, and fail.
    .testTarget(name: "ProgramTests", swiftSettings: swift),
  ],
  swiftLanguageModes: [.v6]
)
