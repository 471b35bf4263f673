//! apt with a state folder of its own: it reads package lists and downloads packages, and changes
//! nothing in the system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::file;
use super::sources::{Source, parse_list, parse_paragraphs};
use super::version::Version;
use crate::failure::Failure;
use crate::process;

/// apt with its folders and sources.
#[derive(Debug)]
pub(super) struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

/// Time limit of one apt command.
const LIMIT: Duration = Duration::from_secs(180);

/// Start of the names of packages with libraries, which a server may need.
const LIBRARIES: [&str; 2] = ["lib", "lua-"];

/// Packages that must be the system's: other programs of the process load them.
const SYSTEM: [&str; 2] = ["libc6", "libgcc-s1"];

/// Returns the system's sources of its own release.
pub(super) fn own_sources() -> Result<Vec<Source>, Failure> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = codename(&release)
        .ok_or_else(|| Failure::Check("this is no release of Debian or Ubuntu".to_owned()))?;
    let places = process::output(process::program("apt-config").args([
        "shell",
        "LIST",
        "Dir::Etc::sourcelist/f",
        "PARTS",
        "Dir::Etc::sourceparts/d",
    ]))?;
    let mut files = vec![PathBuf::from(shell_value(&places, "LIST"))];
    let parts = fs::read_dir(shell_value(&places, "PARTS"));
    files.extend(parts.into_iter().flatten().flatten().map(|it| it.path()));
    files.sort();
    let mut sources = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap_or_default();
        match path.extension().and_then(|it| it.to_str()) {
            Some("list") => sources.extend(parse_list(&text)),
            Some("sources") => sources.extend(parse_paragraphs(&text)),
            _ => {}
        }
    }
    sources.retain(|source| source.is_of_release(codename));
    Ok(sources)
}

/// Returns the release in the text of `os-release`.
fn codename(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let value = value.trim_matches('"');
    (!value.is_empty()).then_some(value)
}

/// Returns the value of a line `NAME='value'`.
fn shell_value<'a>(text: &'a str, name: &str) -> &'a str {
    let value = text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.trim_matches('\''))
    });
    value.unwrap_or("")
}

impl Apt {
    /// Creates the folders for `sources`.
    pub(super) fn new(folder: &Path, sources: &[Source]) -> Result<Self, Failure> {
        for inner in ["state/lists/partial", "cache/archives/partial", "packages"] {
            let inner = folder.join(inner);
            fs::create_dir_all(&inner).map_err(|source| file(&inner, source))?;
        }
        let list = folder.join("suite.sources");
        let paragraphs: Vec<String> = sources.iter().map(Source::paragraph).collect();
        fs::write(&list, paragraphs.join("\n")).map_err(|source| file(&list, source))?;
        let settings = [
            format!("Dir::State={}", folder.join("state").display()),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::Cache={}", folder.join("cache").display()),
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferences=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            "APT::Sandbox::User=".to_owned(),
            // A list that cannot be fetched is an error.
            "APT::Update::Error-Mode=any".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=1".to_owned(),
            "Acquire::http::Timeout=20".to_owned(),
        ];
        let options = settings.into_iter().flat_map(|it| ["-o".to_owned(), it]);
        Ok(Self {
            folder: folder.to_path_buf(),
            options: options.collect(),
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = process::program(program);
        command.args(&self.options).env("LC_ALL", "C");
        command
    }

    /// Fetches the package lists. apt checks their signatures by the system's keyrings.
    pub(super) fn update(&self) -> Result<(), Failure> {
        run(
            self.command("apt-get").args(["update", "-qq"]),
            "package lists",
        )
    }

    /// Returns the version of a package in the lists.
    pub(super) fn version(&self, package: &str) -> Result<Version, Failure> {
        let mut show = self.command("apt-cache");
        let text = process::output(show.args(["policy", package]))?;
        let candidate = text.lines().find_map(|line| {
            let value = line.trim().strip_prefix("Candidate:")?;
            Version::of_package(value.trim())
        });
        candidate.ok_or_else(|| Failure::Check(format!("has no package {package}")))
    }

    /// Returns the package, the packages of the same source that it depends on, and the libraries
    /// that the system lacks.
    pub(super) fn packages_of(&self, package: &str) -> Result<Vec<String>, Failure> {
        let mut depends = self.command("apt-cache");
        depends.args(["depends", "--recurse", "--no-recommends", "--no-suggests"]);
        depends.args([
            "--no-conflicts",
            "--no-breaks",
            "--no-replaces",
            "--no-enhances",
        ]);
        let text = process::output(depends.arg(package))?;
        let stem = package.split('-').next().unwrap_or(package);
        let mut wanted = needed(&text, package, stem);
        wanted.retain(|it| is_of(it, stem) || !is_installed(it));
        Ok(wanted)
    }

    /// Downloads packages and unpacks them in `root`.
    pub(super) fn unpack(&self, packages: &[String], root: &Path) -> Result<(), Failure> {
        let packages_folder = self.folder.join("packages");
        for package in packages {
            let before = debs(&packages_folder, package);
            for old in before {
                fs::remove_file(&old).map_err(|source| file(&old, source))?;
            }
            let mut download = self.command("apt-get");
            download.args(["download", "-qq", package]);
            run(download.current_dir(&packages_folder), package)?;
            let deb = debs(&packages_folder, package).pop();
            let deb = deb.ok_or_else(|| Failure::Check(format!("apt brought no {package}")))?;
            let mut unpack = process::program("dpkg-deb");
            run(unpack.arg("-x").arg(deb).arg(root), package)?;
        }
        Ok(())
    }
}

/// Runs a command without output; a failure has its last line.
fn run(command: &mut Command, what: &str) -> Result<(), Failure> {
    let mut last = String::new();
    let ended = process::run_bounded(command, LIMIT, |line| {
        if !line.trim().is_empty() {
            line.clone_into(&mut last);
        }
    });
    ended.map_err(|failure| {
        let cause = if last.is_empty() {
            failure.to_string()
        } else {
            last
        };
        Failure::Check(format!("{what}: {cause}"))
    })
}

/// Returns the files of `package` in a folder.
fn debs(folder: &Path, package: &str) -> Vec<PathBuf> {
    let start = format!("{package}_");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_package =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
    of_package.map(|entry| entry.path()).collect()
}

/// Returns `package` and what it depends on, of the output of `apt-cache depends --recurse`: packages
/// of the same source, and libraries, and what these depend on.
fn needed(text: &str, package: &str, stem: &str) -> Vec<String> {
    let depends = parse_depends(text);
    let is_wanted = |name: &str| {
        let is_library = LIBRARIES.iter().any(|start| name.starts_with(start));
        (is_of(name, stem) || is_library) && !SYSTEM.contains(&name)
    };
    let mut needed = vec![package];
    let mut next = 0;
    while let Some(name) = needed.get(next) {
        for name in depends.get(name).into_iter().flatten() {
            if is_wanted(name) && !needed.contains(name) {
                needed.push(name);
            }
        }
        next += 1;
    }
    needed.into_iter().map(str::to_owned).collect()
}

/// Returns the dependencies of each package; of several alternatives only the first.
fn parse_depends(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut depends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut package, mut is_alternative) = ("", false);
    for line in text.lines() {
        let name = line.split_once(": ").map_or(line, |(_, name)| name);
        let name = name.split(':').next().unwrap_or(name);
        if line.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            package = name;
            is_alternative = false;
        } else if line.starts_with("  Depends: ") || line.starts_with(" |Depends: ") {
            if !is_alternative {
                depends.entry(package).or_default().push(name);
            }
            is_alternative = line.starts_with(" |");
        }
    }
    depends
}

/// Whether a package is of the source `stem`, as `redis-tools` is of `redis`.
fn is_of(package: &str, stem: &str) -> bool {
    let rest = package.strip_prefix(stem);
    rest.is_some_and(|rest| rest.starts_with('-'))
}

fn is_installed(package: &str) -> bool {
    let mut query = process::program("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}\n", package]);
    let output = query.stderr(std::process::Stdio::null()).output();
    output.is_ok_and(|it| it.status.success() && it.stdout.starts_with(b"installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_needs_its_own_packages_and_libraries() {
        let text = "redis-server\n  PreDepends: init-system-helpers\n  Depends: redis-tools\n\
                    init-system-helpers\n  Depends: libperl5.36\nlibperl5.36\nredis-tools\n  \
                    Depends: libc6\n  Depends: adduser\n |Depends: libjemalloc2\n  \
                    Depends: libjemalloc1\n  Depends: liblua5.1-0:amd64\n    libother\n  \
                    Depends: lua-cjson\n  Depends: redis-server\nlua-cjson\n  Depends: libc6\n  \
                    Depends: <libvirtual>\n  Depends: libdeep1\nlibc6\n  Depends: libcrypt1\n";
        let expected = [
            "redis-server",
            "redis-tools",
            "libjemalloc2",
            "liblua5.1-0",
            "lua-cjson",
            "libdeep1",
        ];
        assert_eq!(needed(text, "redis-server", "redis"), expected);
    }

    #[test]
    fn the_systems_places_and_release_are_read() {
        let text = "LIST='/etc/apt/sources.list'\nPARTS='/etc/apt/sources.list.d/'\n";
        assert_eq!(shell_value(text, "LIST"), "/etc/apt/sources.list");
        assert_eq!(shell_value(text, "PARTS"), "/etc/apt/sources.list.d/");
        assert_eq!(shell_value(text, "OTHER"), "");
        let release = "NAME=\"Debian\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(codename(release), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"noble\"\n"), Some("noble"));
        assert_eq!(codename("NAME=Other\n"), None);
    }

    #[test]
    fn a_failure_has_the_last_line_of_its_command() {
        let mut command = process::program("sh");
        command.args(["-c", "echo E: no mirror answers; echo; exit 100"]);
        let failure = run(&mut command, "package lists").unwrap_err();
        assert_eq!(failure.to_string(), "package lists: E: no mirror answers");
    }
}
