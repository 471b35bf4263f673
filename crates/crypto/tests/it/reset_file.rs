//! Reset secret files: one for each address, random, for their owner only.

use std::fs;
use std::net::SocketAddr;

use crypto::Ring;
use crypto::identity_file::IdentityFileError;
use crypto::reset_file::{ResetFileError, path_beside, read, read_or_create};

use crate::identity_file::Directory;

#[test]
fn each_address_has_a_random_secret_of_its_own_that_outlives_a_restart() {
    let directory = Directory::new("reset");
    let identity = directory.path("server.pem");
    let mut secrets = Vec::new();
    for address in [
        "127.0.0.1:7777",
        "127.0.0.1:7778",
        "[::1]:7777",
        "0.0.0.0:7777",
    ] {
        let address: SocketAddr = address.parse().unwrap();
        let path = path_beside(&identity, address);
        let secret = read_or_create(&path, &mut Ring::new()).unwrap();
        assert_eq!(
            read_or_create(&path, &mut Ring::new()).unwrap().expose(),
            secret.expose()
        );
        assert!(!secrets.contains(secret.expose()));
        secrets.push(*secret.expose());
    }
    let mut names = directory.names();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "server.pem.reset-0.0.0.0-7777",
            "server.pem.reset-127.0.0.1-7777",
            "server.pem.reset-127.0.0.1-7778",
            "server.pem.reset-__1-7777",
        ]
    );
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_and_one_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new("reset_mode");
    let path = directory.path("server.pem.reset-127.0.0.1-1");
    read_or_create(&path, &mut Ring::new()).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = ResetFileError::File(IdentityFileError::TooOpen { mode: 0o640 });
    assert_eq!(read(&path).map(|_| ()), Err(error));
    assert_eq!(
        read_or_create(&path, &mut Ring::new()).map(|_| ()),
        Err(error)
    );
}

#[cfg(unix)]
#[test]
fn what_is_no_secret_is_refused_and_stays_as_it_is() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new("reset_text");
    let path = directory.path("file");
    for text in [
        "",
        "00",
        &"g".repeat(64),
        &"0".repeat(65),
        &"\u{e9}".repeat(32),
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let outcome = read_or_create(&path, &mut Ring::new()).map(|_| ());
        assert_eq!(outcome, Err(ResetFileError::Text), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
