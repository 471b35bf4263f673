//! Real servers which some tests need: names, Debian packages, and the tests.
//!
//! A test declares its need with `#[ignore = "needs chocolate-doom"]` or `"needs ip, nft"`. Plain
//! `cargo test` skips it, and `cargo xtask test` finds and runs it. Tools of which a version is needed
//! are in [`servers`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process;
use crate::servers;
use crate::source::{leading_name, line_of, words};
use crate::tree::{Finding, View, Workspace};

/// Each tool with the Debian package that contains it.
const TOOLS: [(&str, &str); 9] = [
    ("chocolate-doom", "chocolate-doom"),
    ("curl", "curl"),
    ("haproxy", "haproxy"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("nft", "nftables"),
    ("nginx", "nginx-light"),
    ("python3", "python3"),
    ("tcpdump", "tcpdump"),
];
/// Debian's program folders which the `PATH` of a service often lacks.
const FOLDERS: [&str; 3] = ["/usr/games", "/usr/sbin", "/usr/local/bin"];

/// One test that needs a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerTest {
    /// Names of its tools, as in the attribute.
    pub(crate) tools: Vec<String>,
    /// Folder of its package, `crates/daemon`.
    pub(crate) folder: String,
    /// Name of the test function.
    pub(crate) function: String,
}

/// What to do if a server is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Install it.
    Install,
    /// Skip its tests and report how many.
    LeaveOut,
}

/// A plan for the tests which need a tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Debian packages to install first, each with its tool.
    pub(crate) install: Vec<(&'static str, &'static str)>,
    /// Tests to run, by the folder of their package.
    pub(crate) run: BTreeMap<String, Vec<String>>,
    /// Number of skipped tests, by missing tool.
    pub(crate) left_out: BTreeMap<String, usize>,
}

/// Finds the tests which need a tool, and ignored tests with an unknown tool.
pub(crate) fn server_tests(view: &View<'_>) -> (Vec<ServerTest>, Vec<Finding>) {
    let (mut tests, mut findings) = (Vec::new(), Vec::new());
    for source in &view.sources {
        for offset in words(&source.code, "#[ignore =") {
            let after = source.text.get(offset..).unwrap_or("");
            let reason = after.split('"').nth(1).unwrap_or("");
            let tools: Vec<String> = reason
                .strip_prefix("needs ")
                .map(|tools| tools.split(", ").map(str::to_owned).collect())
                .unwrap_or_default();
            let is_known = |tool: &String| {
                TOOLS.iter().any(|(known, _)| known == tool) || servers::named(tool).is_some()
            };
            let are_known = !tools.is_empty() && tools.iter().all(is_known);
            let code = source.code.get(offset..).unwrap_or("");
            let function = code
                .split_once("fn ")
                .map_or("", |(_, rest)| leading_name(rest));
            match folder_of(source.path).filter(|_| are_known) {
                Some(folder) => tests.push(ServerTest {
                    tools,
                    folder: folder.to_owned(),
                    function: function.to_owned(),
                }),
                None => findings.push(Finding::at(
                    source.path,
                    line_of(&source.code, offset),
                    format!("ignored for `{reason}`, which `cargo xtask test` cannot supply"),
                )),
            }
        }
    }
    (tests, findings)
}

/// Returns the package folder of the file at `path`.
fn folder_of(path: &str) -> Option<&str> {
    let end = path.find("/src/").or_else(|| path.find("/tests/"))?;
    path.get(..end)
}

/// Decides which tests run. A server that could not be fetched is not present.
pub(crate) fn plan(
    tests: &[ServerTest],
    is_present: impl Fn(&str) -> bool,
    absent: Absent,
) -> Plan {
    let mut plan = Plan::default();
    for (tool, package) in TOOLS {
        let is_needed = |test: &ServerTest| test.tools.iter().any(|needed| needed == tool);
        if absent == Absent::Install && !is_present(tool) && tests.iter().any(is_needed) {
            plan.install.push((tool, package));
        }
    }
    for test in tests {
        let is_lacking = |tool: &&String| {
            let is_final = absent == Absent::LeaveOut || servers::named(tool).is_some();
            is_final && !is_present(tool)
        };
        if let Some(tool) = test.tools.iter().find(is_lacking) {
            *plan.left_out.entry(tool.clone()).or_default() += 1;
        } else {
            let functions = plan.run.entry(test.folder.clone()).or_default();
            functions.push(test.function.clone());
        }
    }
    plan
}

/// Finds or installs the tools that the tests of `workspace` need, and prints the steps.
pub(crate) fn prepare(workspace: &Workspace, absent: Absent) -> Result<Plan, Failure> {
    let (tests, findings) = server_tests(&workspace.view());
    crate::tree::report("test", &findings)?;
    fetch(&tests, absent);
    let plan = plan(&tests, |tool| find(tool).is_some(), absent);
    println!(
        "servers: {} tests need one; {} to install",
        tests.len(),
        plan.install.len()
    );
    for (tool, package) in &plan.install {
        install(tool, package)?;
    }
    for (tool, count) in &plan.left_out {
        println!("servers: {count} tests not run: {tool} is not here");
    }
    Ok(plan)
}

/// Fetches the servers that `tests` need, unless that is not wanted. Tests of a server that cannot be
/// had do not run.
fn fetch(tests: &[ServerTest], absent: Absent) {
    for server in servers::SERVERS {
        let name = server.name();
        let is_needed = tests
            .iter()
            .any(|test| test.tools.iter().any(|it| it == name));
        if !is_needed || absent == Absent::LeaveOut {
            continue;
        }
        match server.ensure(absent) {
            Ok(found) => println!("servers: {name} is {}", found.path.display()),
            Err(failure) => println!("servers: {name} is not available: {failure}"),
        }
    }
}

/// Returns the path of the program `tool`. A server of too old a version is not found.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    match servers::named(tool) {
        Some(server) => server.find().map(|found| found.path),
        None => find_installed(tool),
    }
}

/// Returns the path of the program `tool` on `PATH` or in one of Debian's other folders.
pub(crate) fn find_installed(tool: &str) -> Option<PathBuf> {
    std::env::split_paths(&installed_path())
        .map(|folder| folder.join(tool))
        .find(|path| path.is_file())
}

/// Returns the folder of unpacked servers, then `PATH`, then Debian's other folders.
pub(crate) fn search_path() -> OsString {
    let installed = installed_path();
    let folders = [servers::programs()].into_iter();
    let folders = folders.chain(std::env::split_paths(&installed));
    std::env::join_paths(folders).unwrap_or(installed)
}

fn installed_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    std::env::join_paths(folders).unwrap_or(path)
}

/// Installs a Debian package, as root or by `sudo` without a prompt.
fn install(tool: &str, package: &str) -> Result<(), Failure> {
    println!("servers: {tool} is not here; installing the Debian package {package}");
    let is_root = process::output(process::program("id").arg("-u"))?.trim() == "0";
    for arguments in [
        &["update", "--quiet"][..],
        &[
            "install",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            package,
        ],
    ] {
        let mut command = process::program(if is_root { "apt-get" } else { "sudo" });
        if !is_root {
            command.args(["-n", "apt-get"]);
        }
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        process::run(&mut command)?;
    }
    match find(tool) {
        Some(path) => {
            println!("servers: {tool} is at {}", Path::display(&path));
            Ok(())
        }
        None => Err(Failure::Check(format!(
            "the Debian package {package} is installed and has no program {tool}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doom(function: &str) -> ServerTest {
        ServerTest {
            tools: vec!["chocolate-doom".to_owned()],
            folder: "crates/daemon".to_owned(),
            function: function.to_owned(),
        }
    }

    #[test]
    fn finds_the_tests_by_their_attribute() {
        let text = "#[test]\n#[ignore = \"needs chocolate-doom\"]\nfn doom_plays() {}\n\
                    // #[ignore = \"needs chocolate-doom\"]\n\
                    #[test]\n#[ignore = \"slow\"]\nfn b() {}\n";
        let workspace = Workspace::of(&[("crates/daemon/tests/it/doom.rs", text)]);
        let (tests, findings) = server_tests(&workspace.view());
        assert_eq!(tests, [doom("doom_plays")]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].line, 6);
    }

    #[test]
    fn a_missing_server_is_installed_or_reported_offline() {
        let tests = [doom("a"), doom("b")];
        let online = plan(&tests, |_| false, Absent::Install);
        assert_eq!(online.install, [("chocolate-doom", "chocolate-doom")]);
        assert_eq!(online.run["crates/daemon"], ["a", "b"]);
        let offline = plan(&tests, |_| false, Absent::LeaveOut);
        assert_eq!(offline.left_out["chocolate-doom"], 2);
        assert!(offline.install.is_empty() && offline.run.is_empty());
    }

    #[test]
    fn a_test_of_several_tools_needs_each() {
        let text = "#[test]\n#[ignore = \"needs ip, nft\"]\nfn cut() {}\n\
                    #[test]\n#[ignore = \"needs ip, else\"]\nfn b() {}\n";
        let workspace = Workspace::of(&[("crates/daemon/tests/it/a.rs", text)]);
        let (tests, findings) = server_tests(&workspace.view());
        assert_eq!(tests.len(), 1);
        assert_eq!(tests[0].tools, ["ip", "nft"]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let has_ip = |tool: &str| tool == "ip";
        let online = plan(&tests, has_ip, Absent::Install);
        assert_eq!(online.install, [("nft", "nftables")]);
        assert_eq!(online.run["crates/daemon"], ["cut"]);
        let offline = plan(&tests, has_ip, Absent::LeaveOut);
        assert_eq!(offline.left_out["nft"], 1);
        assert!(offline.run.is_empty());
    }

    #[test]
    fn tests_of_a_server_that_cannot_be_had_are_left_out_and_counted() {
        let text = "#[test]\n#[ignore = \"needs nats-server\"]\nfn a() {}\n\
                    #[test]\n#[ignore = \"needs redis-server, curl\"]\nfn b() {}\n";
        let workspace = Workspace::of(&[("crates/hub_nats/tests/it/a.rs", text)]);
        let (tests, findings) = server_tests(&workspace.view());
        assert!(findings.is_empty(), "{findings:?}");
        let has_redis = |tool: &str| tool == "redis-server";
        let online = plan(&tests, has_redis, Absent::Install);
        assert_eq!(online.left_out["nats-server"], 1);
        assert_eq!(online.install, [("curl", "curl")]);
        assert_eq!(online.run["crates/hub_nats"], ["b"]);
    }

    #[test]
    fn an_installed_server_is_used_offline_too() {
        let offline = plan(&[doom("a")], |_| true, Absent::LeaveOut);
        assert_eq!(offline.run["crates/daemon"], ["a"]);
        assert!(offline.install.is_empty() && offline.left_out.is_empty());
        assert_eq!(plan(&[], |_| false, Absent::Install), Plan::default());
    }
}
