//! Reset secret files: one per address, random, readable by their owner only.

use std::fs;
use std::net::SocketAddr;

use crypto::Ring;
use crypto::Secret32;
use crypto::identity_file::IdentityFileError;
use crypto::reset_file::{
    ResetFileError, bound_to, read, read_or_create, secret_for, sibling_path,
};

use crate::identity_file::Directory;

#[test]
fn each_address_has_a_random_secret_that_survives_a_restart() {
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
        let path = sibling_path(&identity, address);
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

/// One server's file, copied to another host or renamed for another address.
#[test]
fn a_copied_file_gives_other_secrets_on_another_machine_or_address() {
    let kept = Secret32::new([7; 32]);
    let at = |address: &str, machine: &str| {
        let address: SocketAddr = address.parse().unwrap();
        *bound_to(&Ring::new(), &kept, address, machine.as_bytes()).expose()
    };
    let own = at("192.0.2.1:7777", "a1");
    assert_eq!(own, at("192.0.2.1:7777", "a1"), "after a restart");
    assert_eq!(own, at("[::ffff:192.0.2.1]:7777", "a1"), "the same address");
    let others = [
        at("192.0.2.1:7777", "a2"),
        at("192.0.2.1:7777", ""),
        at("192.0.2.2:7777", "a1"),
        at("192.0.2.1:7778", "a1"),
        at("0.0.0.0:7777", "a1"),
        at("0.0.0.0:7777", "a2"),
        *kept.expose(),
    ];
    for (index, other) in others.iter().enumerate() {
        assert!(*other != own && !others[..index].contains(other), "{index}");
    }
}

#[test]
fn the_secret_survives_a_restart_and_differs_from_the_file() {
    let directory = Directory::new("reset_place");
    let identity = directory.path("server.pem");
    let address: SocketAddr = "127.0.0.1:7777".parse().unwrap();
    let secret = || secret_for(&identity, address, &mut Ring::new()).unwrap();
    let first = *secret().expose();
    assert_eq!(&first, secret().expose());
    let kept = read(&sibling_path(&identity, address)).unwrap();
    assert_ne!(&first, kept.expose());
    // The same file under the name for another address.
    let other: SocketAddr = "127.0.0.1:7778".parse().unwrap();
    fs::copy(
        sibling_path(&identity, address),
        sibling_path(&identity, other),
    )
    .unwrap();
    let copied = secret_for(&identity, other, &mut Ring::new()).unwrap();
    assert_ne!(&first, copied.expose());
}

#[cfg(unix)]
#[test]
fn the_file_has_mode_0600_and_one_readable_by_others_is_refused() {
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
fn an_invalid_secret_file_is_refused_and_left_unchanged() {
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
