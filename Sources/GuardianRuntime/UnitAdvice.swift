package import GuardianLinux

/// Whether the unit that guardian runs as lets services live when guardian dies, and what to do where it does not.
package struct UnitAdvice: Hashable, Sendable {
  /// For `guardianctl version`.
  package let guarantee: String
  /// One sentence each: where, what, why, and what to do.
  package let warnings: [String]

  package init(_ unit: OwnUnit) {
    let systemctl = unit.isUsers ? "systemctl --user" : "systemctl"
    func advice(_ setting: String) -> String {
      "; '\(systemctl) edit \(unit.name)' and write '[Service]' and below it '\(setting)', then"
        + " '\(systemctl) daemon-reload' and 'guardianctl reload'"
    }
    var warnings: [String] = []
    // `none` leaves guardian itself alone too, which is its administrator's business.
    let survives = unit.killMode == "process" || unit.killMode == "none"
    if !survives {
      warnings.append(
        "\(unit.name) says KillMode=\(unit.killMode): when guardian dies, systemd kills every service with it, and the next"
          + " guardian has to start them all" + advice("KillMode=process"))
    }
    if !unit.isDelegated {
      warnings.append(
        "\(unit.name) does not say Delegate=yes: the control group is not guardian's, and what an earlier guardian has"
          + " left in it is not ended" + advice("Delegate=yes"))
    }
    self.warnings = warnings
    guarantee =
      "\(unit.name): "
      + (survives ? "services outlive guardian" : "services are killed with guardian (KillMode=\(unit.killMode))")
      + (unit.isDelegated ? "" : ", control group not delegated")
  }

  /// It could not be found out.
  package init(unknown error: SystemError) {
    guarantee = "not known: \(error)"
    warnings = []
  }
}
