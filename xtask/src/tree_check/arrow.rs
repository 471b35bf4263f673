//! Which crate may import which, as in ARCHITECTURE.md, checked against cargo's metadata.

use super::PROTOCOL;
use crate::member::{Dependency, Kind, Member};
use crate::tree::{Finding, View};

/// Allowed imports of each member. A crate may import only crates to its left in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 20] = [
    ("wire", &[]),
    ("crypto", &["wire"]),
    ("udp_proto", &["wire", "crypto"]),
    ("lockstep", &["wire"]),
    ("hub", &["wire"]),
    ("hub_nats", &["wire", "hub"]),
    ("matchmaker_core", &["wire", "crypto"]),
    ("relay_mesh", &["wire", "crypto", "udp_proto"]),
    ("netsim", &["wire", "crypto"]),
    ("servicer", &PROTOCOL),
    ("tickwire", LIBRARIES),
    ("bevy_tickwire", LIBRARIES),
    ("daemon", LIBRARIES),
    ("demo", PROGRAMS),
    ("cli", &["daemon", "demo"]),
    ("examples", EXAMPLES),
    ("benches", BENCHES),
    ("fuzz", LIBRARIES),
    ("harness", &[]),
    ("xtask", &["harness"]),
];
/// The crates that a program may import; the lists below are its first ones.
const IMPORTABLE: [&str; 14] = [
    "wire",
    "crypto",
    "udp_proto",
    "lockstep",
    "relay_mesh",
    "hub",
    "matchmaker_core",
    "netsim",
    "servicer",
    "hub_nats",
    "tickwire",
    "bevy_tickwire",
    "daemon",
    "demo",
];
/// Crates above `servicer` may import all crates up to the facade.
const LIBRARIES: &[&str] = IMPORTABLE.split_at(11).0;
/// The demonstration may also import the daemon.
const PROGRAMS: &[&str] = IMPORTABLE.split_at(13).0;
/// Examples may also import the demonstration, because some play its game.
const EXAMPLES: &[&str] = &IMPORTABLE;
/// Benches may also import the shared comparison harness.
const BENCHES: &[&str] = &[
    "harness",
    "wire",
    "crypto",
    "udp_proto",
    "lockstep",
    "matchmaker_core",
    "relay_mesh",
    "servicer",
];
/// Crates that run the machines. Lower crates must not import them, even in tests.
const DRIVERS: [&str; 6] = [
    "servicer",
    "tickwire",
    "bevy_tickwire",
    "daemon",
    "demo",
    "cli",
];
/// External packages with an executor or a socket.
const IMPURE: [&str; 5] = ["tokio", "async-std", "mio", "socket2", "quinn-udp"];
/// Maximum required external dependencies of a protocol crate.
const REQUIRED_MAX: usize = 6;

/// Finds forbidden imports, impure dependencies, and too many dependencies.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in view.members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        let text = view.files.get(&manifest).map_or("", String::as_str);
        let mut find = |dependency: Option<&Dependency>, fault: String| {
            let line = dependency.map_or(1, |it| line_of_dependency(text, it));
            findings.push(Finding::at(&manifest, line, fault));
        };
        let name = member.name();
        match ARROWS.iter().find(|(importer, _)| *importer == name) {
            Some((_, allowed)) => {
                for (dependency, fault) in against_arrows(member, allowed) {
                    find(Some(dependency), fault);
                }
            }
            None => find(
                None,
                format!("{name} has no row in xtask's table of arrows"),
            ),
        }
        if PROTOCOL.contains(&name) {
            for dependency in foreign(member).filter(|it| IMPURE.contains(&it.package.as_str())) {
                find(
                    Some(dependency),
                    format!("{name} may not depend on {}", dependency.package),
                );
            }
            let required = foreign(member).filter(|it| !it.optional).count();
            if required > REQUIRED_MAX {
                find(
                    None,
                    format!("{required} required dependencies, over the limit of {REQUIRED_MAX}"),
                );
            }
        }
    }
    findings
}

/// Returns imports of members outside `allowed`, and test imports of drivers by lower crates.
fn against_arrows<'m>(
    member: &'m Member,
    allowed: &[&str],
) -> impl Iterator<Item = (&'m Dependency, String)> {
    let name = member.name();
    member.dependencies.iter().filter_map(move |dependency| {
        let folder = dependency.folder.as_deref()?;
        let imported = folder.rsplit('/').next().unwrap_or(folder);
        let is_allowed = match dependency.kind {
            Kind::Normal | Kind::Build => allowed.contains(&imported),
            Kind::Dev => !(PROTOCOL.contains(&name) && DRIVERS.contains(&imported)),
        };
        (!is_allowed).then(|| (dependency, format!("{name} may not import {imported}")))
    })
}

/// Returns the normal dependencies from outside the workspace.
fn foreign(member: &Member) -> impl Iterator<Item = &Dependency> {
    member
        .dependencies
        .iter()
        .filter(|it| it.folder.is_none() && it.kind == Kind::Normal)
}

/// Returns the manifest line of `dependency`, by its package or library name.
fn line_of_dependency(manifest: &str, dependency: &Dependency) -> usize {
    let package = dependency.package.as_str();
    let library = package.trim_start_matches("tickwire-").replace('-', "_");
    let asks = |line: &str| {
        let key = line.split(['.', '=', ' ']).next().unwrap_or("");
        key == package || key == library
    };
    manifest.lines().position(asks).map_or(1, |line| line + 1)
}

#[cfg(test)]
mod tests;
