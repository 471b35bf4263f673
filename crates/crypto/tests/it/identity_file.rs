//! Identity files: mode, errors, and that none is overwritten.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crypto::identity_file::{
    FILE_LEN_MAX, IdentityFileError, read, read_or_create, write_new, write_new_sec1,
};
use crypto::{Identity, PemError, Ring};

#[test]
fn what_is_written_is_read() {
    let directory = Directory::new("round_trip");
    let path = directory.path("server.pem");
    let identity = Identity::generate(&mut Ring::new()).unwrap();
    write_new(&path, &identity).unwrap();
    let again = read(&path).unwrap();
    assert_eq!(again.public_key(), identity.public_key());
    assert_eq!(directory.names(), ["server.pem"], "no draft is left");
}

#[test]
fn either_format_round_trips() {
    let directory = Directory::new("sec1");
    let path = directory.path("server.pem");
    let identity = identity();
    write_new_sec1(&path, &identity).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!(read(&path).unwrap().public_key(), identity.public_key());
    assert_eq!(
        write_new_sec1(&path, &identity),
        Err(IdentityFileError::Exists)
    );
    #[cfg(unix)]
    assert_eq!(mode(&path), 0o600);
}

#[cfg(unix)]
#[test]
fn a_new_file_has_mode_0600() {
    let directory = Directory::new("mode");
    let path = directory.path("server.pem");
    write_new(&path, &identity()).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[cfg(unix)]
#[test]
fn a_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new("too_open");
    let path = directory.path("server.pem");
    write_new(&path, &identity()).unwrap();
    for open_bit in [0o040, 0o020, 0o010, 0o004, 0o002, 0o001] {
        let mode = 0o600 | open_bit;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error, IdentityFileError::TooOpen { mode });
        assert!(error.to_string().contains(&format!("{mode:04o}")));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(read(&path).is_ok());
}

#[test]
fn an_existing_file_is_never_overwritten() {
    let directory = Directory::new("exists");
    let path = directory.path("server.pem");
    fs::write(&path, "precious").unwrap();
    let refused = write_new(&path, &identity());
    assert_eq!(refused, Err(IdentityFileError::Exists));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(directory.names(), ["server.pem"], "no draft is left");
}

#[cfg(unix)]
#[test]
fn a_dangling_symlink_is_not_followed() {
    let directory = Directory::new("dangling");
    let path = directory.path("server.pem");
    std::os::unix::fs::symlink(directory.path("elsewhere"), &path).unwrap();
    let refused = write_new(&path, &identity());
    assert_eq!(refused, Err(IdentityFileError::Exists));
    assert_eq!(directory.names(), ["server.pem"]);
}

#[test]
fn the_first_run_creates_an_identity_and_later_ones_keep_it() {
    let directory = Directory::new("first_run");
    let path = directory.path("server.pem");
    let made = read_or_create(&path, &mut Ring::new()).unwrap();
    let kept = read_or_create(&path, &mut Ring::new()).unwrap();
    assert_eq!(made.public_key(), kept.public_key());
}

#[test]
fn concurrent_first_runs_create_one_identity() {
    let directory = Directory::new("race");
    let path = directory.path("server.pem");
    let keys = std::thread::scope(|scope| {
        let run = || {
            *read_or_create(&path, &mut Ring::new())
                .unwrap()
                .public_key()
        };
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        runs.into_iter()
            .map(|run| run.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(keys, [keys[0]; 8]);
    assert_eq!(directory.names(), ["server.pem"]);
}

#[test]
fn errors_name_the_fault() {
    let directory = Directory::new("errors");
    let missing = directory.path("missing.pem");
    let error = |path: &Path| read(path).unwrap_err();
    assert_eq!(error(&missing), IdentityFileError::Io(ErrorKind::NotFound));
    assert_eq!(error(&directory.0), IdentityFileError::NotAFile);
    let nowhere = directory.path("no/such/directory.pem");
    assert_eq!(
        write_new(&nowhere, &identity()),
        Err(IdentityFileError::Io(ErrorKind::NotFound))
    );
    assert_eq!(
        write_new(Path::new("/"), &identity()),
        Err(IdentityFileError::NotAFile)
    );

    let path = directory.path("bad.pem");
    write_private(&path, "no key here");
    assert_eq!(error(&path), IdentityFileError::Pem(PemError::NoKey));
    write_private(&path, &"#".repeat(FILE_LEN_MAX + 1));
    assert_eq!(error(&path), IdentityFileError::TooLong);
    let padded = format!("{:>1$}", *identity().to_pem(), FILE_LEN_MAX);
    write_private(&path, &padded);
    assert!(read(&path).is_ok(), "the limit itself is allowed");
}

fn identity() -> Identity {
    Identity::generate(&mut Ring::new()).unwrap()
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A test's directory, removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("tickwire-identity-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
