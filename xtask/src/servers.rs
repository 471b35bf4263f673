//! Servers of which some tests and comparisons need a version that the system may lack.
//!
//! A server is a program on `PATH` if its version suffices, else a copy in `target/servers`. The copy is
//! unpacked from the Debian package of a newer suite, by apt with the system's own mirrors and
//! keyrings. Nothing is installed.

mod apt;
mod sources;
mod version;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::need;
use crate::process;
use version::Version;

/// A server, with its least version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Name of the program and of its Debian package.
    name: &'static str,
    least: Version,
}

/// All of them.
pub(crate) const SERVERS: [Server; 2] = [
    Server {
        name: "nats-server",
        least: Version([2, 10, 0]),
    },
    Server {
        name: "redis-server",
        least: Version([6, 0, 0]),
    },
];

/// Suites to look in if the system's own has no version that suffices.
const NEWER_SUITES: [&str; 4] = ["trixie", "stable", "testing", "sid"];

/// A server that can be started.
#[derive(Debug)]
pub(crate) struct Found {
    /// The program, with an absolute path.
    pub(crate) path: PathBuf,
    version: Version,
}

/// Returns the server called `name`, or `None` if a tool of that name is not one of them.
pub(crate) fn named(name: &str) -> Option<Server> {
    SERVERS.into_iter().find(|server| server.name == name)
}

/// The folder of programs that were unpacked here.
pub(crate) fn programs() -> PathBuf {
    folder().join("bin")
}

/// Prints where each server is, and fetches those that are missing.
pub(crate) fn run(absent: need::Absent) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for server in SERVERS {
        match server.ensure(absent) {
            Ok(found) => println!("servers: {}", found.line(server.name)),
            Err(failure) => {
                println!("servers: {} is not available: {failure}", server.name);
                missing.push(server.name);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Failure::Check(format!("not available: {missing}")))
}

impl Found {
    /// Returns a line that names the program and its version.
    pub(crate) fn line(&self, name: &str) -> String {
        format!("{name} {} is {}", self.version, self.path.display())
    }
}

impl Server {
    /// Name of the program.
    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// Finds the server on `PATH` or in `target/servers`.
    pub(crate) fn find(self) -> Option<Found> {
        let copy = programs().join(self.name);
        let installed = need::find_installed(self.name);
        [installed, Some(copy)]
            .into_iter()
            .flatten()
            .find_map(|path| self.check(path).ok())
    }

    /// Finds the server, or fetches it unless `absent` forbids it. A failure says what is missing in
    /// one line.
    pub(crate) fn ensure(self, absent: need::Absent) -> Result<Found, Failure> {
        match (self.find(), absent) {
            (Some(found), _) => Ok(found),
            (None, need::Absent::Install) => self.fetch(),
            (None, need::Absent::LeaveOut) => Err(Failure::Check(format!(
                "no version of at least {} is here",
                self.least
            ))),
        }
    }

    /// Runs the program at `path`, and checks its version.
    fn check(self, path: PathBuf) -> Result<Found, Failure> {
        let output = process::program(&path)
            .arg("--version")
            .output()
            .map_err(|source| Failure::File {
                path: path.clone(),
                source,
            })?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let Some(version) = Version::find(&stdout).filter(|_| output.status.success()) else {
            // For example a library that is missing, or too old.
            let stderr = String::from_utf8_lossy(&output.stderr);
            let cause = stderr.lines().next().unwrap_or("it prints no version");
            let path = path.display();
            return Err(Failure::Check(format!("{path} does not run: {cause}")));
        };
        if version < self.least {
            let least = self.least;
            return Err(Failure::Check(format!(
                "version {version}, and at least {least} is needed"
            )));
        }
        Ok(Found { path, version })
    }

    /// Unpacks the Debian package of the first suite that has a version that suffices and runs here.
    fn fetch(self) -> Result<Found, Failure> {
        println!(
            "servers: {} of at least {} is not here; looking for a Debian package",
            self.name, self.least
        );
        let own = apt::own_sources()?;
        let newer = NEWER_SUITES.map(|suite| (suite, sources::of_suite(&own, suite)));
        let mut suites = vec![("own", own)];
        suites.extend(newer);
        let mut last = None;
        for (suite, sources) in suites {
            match self.fetch_from(suite, &sources) {
                Ok(found) => {
                    println!(
                        "servers: {} {} of suite {suite} is unpacked",
                        self.name, found.version
                    );
                    return Ok(found);
                }
                Err(failure) => {
                    println!("servers: {}: suite {suite}: {failure}", self.name);
                    last = Some(failure);
                }
            }
        }
        let none = || Failure::Check("apt has no sources of this system's release".to_owned());
        Err(last.unwrap_or_else(none))
    }

    fn fetch_from(self, suite: &str, sources: &[sources::Source]) -> Result<Found, Failure> {
        if sources.is_empty() {
            return Err(Failure::Check(
                "apt's sources have no mirror for it".to_owned(),
            ));
        }
        let apt = apt::Apt::new(&folder().join("apt").join(suite), sources)?;
        apt.update()?;
        let offered = apt.version(self.name)?;
        if offered < self.least {
            return Err(Failure::Check(format!("has version {offered}")));
        }
        let root = folder().join(format!("{}-{suite}", self.name));
        if root.exists() {
            fs::remove_dir_all(&root).map_err(|source| file(&root, source))?;
        }
        let packages = apt.packages_of(self.name)?;
        println!(
            "servers: unpacking {} under {}",
            packages.join(", "),
            root.display()
        );
        apt.unpack(&packages, &root)?;
        self.link(&root)
    }

    /// Makes the program in `root` callable in [`programs`], with the libraries beside it.
    fn link(self, root: &Path) -> Result<Found, Failure> {
        let places = ["usr/bin", "usr/sbin", "usr/games"];
        let mut places = places.iter().map(|place| root.join(place).join(self.name));
        let program = places
            .find(|path| path.is_file())
            .ok_or_else(|| Failure::Check(format!("the package has no program {}", self.name)))?;
        let folders = programs();
        fs::create_dir_all(&folders).map_err(|source| file(&folders, source))?;
        let script = launcher(&program, &library_folders(root));
        let new = folders.join(format!("{}.new", self.name));
        fs::write(&new, script).map_err(|source| file(&new, source))?;
        make_executable(&new)?;
        // Only what runs here replaces an earlier one.
        let found = self.check(new.clone())?;
        let path = folders.join(self.name);
        fs::rename(&new, &path).map_err(|source| file(&path, source))?;
        Ok(Found { path, ..found })
    }
}

/// Where all of this is kept, as an absolute path.
fn folder() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let root = env::current_dir().unwrap_or_default();
    root.join(target).join("servers")
}

/// Returns a script that becomes `program`, so that it has the same process id.
fn launcher(program: &Path, libraries: &[PathBuf]) -> String {
    let program = quoted(program);
    let libraries: Vec<String> = libraries.iter().map(|it| quoted(it)).collect();
    let libraries = libraries.join(":");
    format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} \"$@\"\n")
}

/// Returns `path` as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Returns the folders in `root` that may hold libraries.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in ["usr/lib", "lib"] {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut inner: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        inner.sort();
        if folder.is_dir() {
            folders.push(folder);
        }
        folders.extend(inner);
    }
    folders
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(|source| file(path, source))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> Result<(), Failure> {
    Err(Failure::Check(
        "Debian packages need a Unix system".to_owned(),
    ))
}

fn file(path: &Path, source: std::io::Error) -> Failure {
    Failure::File {
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_quotes_what_a_shell_would_read() {
        let script = launcher(Path::new("/a b/it's"), &["/l 1".into(), "/l2".into()]);
        let expected = "#!/bin/sh\nLD_LIBRARY_PATH='/l 1':'/l2' exec '/a b/it'\\''s' \"$@\"\n";
        assert_eq!(script, expected);
    }

    #[test]
    fn servers_are_known_by_name() {
        assert!(named("nats-server").is_some_and(|it| it.least == Version([2, 10, 0])));
        assert!(named("redis-server").is_some());
        assert!(named("curl").is_none());
    }

    #[test]
    fn a_program_is_refused_with_its_reason() {
        let server = Server {
            name: "cargo",
            least: Version([9_999, 0, 0]),
        };
        let cause = server.check("cargo".into()).unwrap_err().to_string();
        assert!(cause.contains("at least 9999.0.0 is needed"), "{cause}");
        let cause = server.check("/no/such/program".into()).unwrap_err();
        assert!(
            cause.to_string().starts_with("/no/such/program: "),
            "{cause}"
        );
        let here = Server {
            least: Version([1, 0, 0]),
            ..server
        };
        assert!(here.check("cargo".into()).is_ok());
    }
}
