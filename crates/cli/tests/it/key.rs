//! `tickwire key`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::net::{Net, tickwire};

fn key(words: &[&str], paths: &[&Path]) -> Command {
    let mut command = tickwire();
    command.arg("key").args(words).args(paths);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs a command that succeeds; returns its output.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}");
    said(&output)
}

/// Asserts that a command fails with this status and one sentence that contains `needle`.
fn bad(command: &mut Command, code: i32, needle: &str) {
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{why}");
    assert!(why.contains(needle), "{why}");
    assert!(!why.contains("panicked"), "{why}");
    assert_eq!(said(&output), "");
}

fn has(path: &Path, first_line: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().next(), Some(first_line));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }
}

const PKCS8: &str = "-----BEGIN PRIVATE KEY-----";
const SEC1: &str = "-----BEGIN EC PRIVATE KEY-----";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----";

#[test]
fn u20_pgd_p20_keys_are_created_and_converted_in_both_formats() {
    let net = Net::new();
    let [made, sec1, back] = ["made.pem", "sec1.pem", "back.pem"].map(|name| net.path(name));
    let shown = good(&mut key(&["new"], &[&made]));
    has(&made, PKCS8);
    let again = good(&mut key(&["import", "--form", "sec1"], &[&made, &sec1]));
    has(&sec1, SEC1);
    let thrice = good(&mut key(&["import"], &[&sec1, &back]));
    has(&back, PKCS8);
    assert_eq!([&shown, &shown], [&again, &thrice]);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&made), read(&back));
    let fresh = net.path("fresh.pem");
    let json = good(&mut key(&["new", "--form=sec1", "--json"], &[&fresh]));
    has(&fresh, SEC1);
    let json: Value = serde_json::from_str(&json).unwrap();
    let shown = good(&mut key(&["public"], &[&fresh]));
    assert!(shown.contains(json["node_id"].as_str().unwrap()), "{shown}");
    // Neither file is overwritten.
    bad(
        &mut key(&["import"], &[&made, &sec1]),
        4,
        "sec1.pem: identity file exists",
    );
    bad(
        &mut key(&["new"], &[&made]),
        4,
        "made.pem: identity file exists",
    );
    assert_eq!(read(&made), read(&back));
    bad(
        &mut key(&["new", "--form=der"], &[&net.path("x")]),
        2,
        "pkcs8, sec1",
    );
}

#[test]
fn u20_a_public_key_is_exported_as_pem_and_shown() {
    let net = Net::new();
    let [identity, public] = ["id.pem", "public.pem"].map(|name| net.path(name));
    let shown = good(&mut key(&["new"], &[&identity]));
    let pem = good(&mut key(&["public", "--pem"], &[&identity]));
    assert!(pem.starts_with(PUBLIC) && pem.ends_with("-----END PUBLIC KEY-----\n"));
    // Readable by others, as a shell writes it.
    std::fs::write(&public, &pem).unwrap();
    assert_eq!(good(&mut key(&["public"], &[&public])), shown);
    assert_eq!(good(&mut key(&["public", "--pem"], &[&public])), pem);
    for (path, kind) in [(&identity, "identity"), (&public, "public-key")] {
        let text = good(&mut key(&["show"], &[path]));
        assert!(text.ends_with(&shown), "{text}");
        let json: Value =
            serde_json::from_str(&good(&mut key(&["show", "--json"], &[path]))).unwrap();
        assert_eq!((&json["schema"], &json["kind"]), (&1.into(), &kind.into()));
        assert!(shown.contains(json["public_key"].as_str().unwrap()));
        assert_eq!(json.as_object().unwrap().len(), 4);
    }
    // A public key is not an identity.
    bad(
        &mut key(&["import"], &[&public, &net.path("x")]),
        2,
        "public.pem",
    );
    bad(
        &mut key(&["public", "--pem", "--json"], &[&public]),
        2,
        "--json",
    );
}

#[test]
fn u20_a_key_is_imported_from_stdin() {
    let net = Net::new();
    let [made, copy] = ["made.pem", "copy.pem"].map(|name| net.path(name));
    let shown = good(&mut key(&["new"], &[&made]));
    let pipe = |text: &[u8], to: &Path| {
        let mut command = key(&["import", "-"], &[to]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end before it has read all.
        child.stdin.take().unwrap().write_all(text).ok();
        child.wait_with_output().unwrap()
    };
    let output = pipe(&std::fs::read(&made).unwrap(), &copy);
    assert_eq!((output.status.code(), said(&output)), (Some(0), shown));
    has(&copy, PKCS8);
    let none = net.path("none.pem");
    for (text, needle) in [
        (b"".to_vec(), "stdin: no PEM block"),
        (b"\xff".to_vec(), "stdin: identity file"),
        (vec![b' '; 1 << 20], "stdin: identity file is over"),
        (
            format!("{SEC1}\nAAAA\n-----END EC PRIVATE KEY-----").into_bytes(),
            "no valid P-256",
        ),
    ] {
        let output = pipe(&text, &none);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(why.contains(needle), "{why}");
    }
    assert!(!none.exists());
}

#[cfg(unix)]
#[test]
fn u20_an_identity_readable_by_others_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let net = Net::new();
    let path = net.path("open.pem");
    good(&mut key(&["new"], &[&path]));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    for words in [&["show"][..], &["public"], &["public", "--pem"]] {
        bad(&mut key(words, &[&path]), 2, "mode 0644");
    }
    bad(
        &mut key(&["import"], &[&path, &net.path("x.pem")]),
        2,
        "mode 0644",
    );
    // Nor is a file that only starts like a public key.
    let mixed = net.path("mixed.pem");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &mixed,
        format!("{PUBLIC}\nAAAA\n-----END PUBLIC KEY-----\n{text}"),
    )
    .unwrap();
    bad(&mut key(&["show"], &[&mixed]), 2, "mode 0");
}
