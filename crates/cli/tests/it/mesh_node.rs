//! A mesh node as a process.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use daemon::relay::sandbox::Sandbox;
use daemon::relay::{
    FileConfig, FileGame, FileRole, Mode, NodeName, ProcessCommand, ProcessEvent, Protocol,
};

/// `tickwire relay`; the configuration's path is added later.
pub(crate) fn tickwire_relay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    command.args(["relay", "--end-with-stdin", "--config"]);
    command
}

/// Longest wait; only a failure takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_node_starts_answers_and_ends_with_its_stdin() {
    let sandbox = Sandbox::new(&[("relay-1", FileRole::Relay)]).unwrap();
    let mut node = sandbox.start(0, tickwire_relay()).unwrap();
    let ready = node.wait_for(PATIENCE, |news| {
        if let ProcessEvent::Ready { node, address } = news {
            Some((node, address))
        } else {
            None
        }
    });
    let (id, address) = ready.unwrap();
    assert_eq!(Some(id), sandbox.id(0));
    assert_eq!(address.ip(), sandbox.host(1));
    node.send(&ProcessCommand::Stats).unwrap();
    let answer = node.wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::Stats { .. }).then_some(())
    });
    assert!(answer.is_some());
    let status = node.stop(PATIENCE).unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn two_nodes_find_each_other_by_their_keys() {
    let sandbox = Sandbox::new(&[("one", FileRole::Relay), ("two", FileRole::Exit)]).unwrap();
    let nodes = [0, 1].map(|node| sandbox.start(node, tickwire_relay()).unwrap());
    for (node, other) in nodes.iter().zip([1, 0]) {
        let met = node.wait_for(PATIENCE, |news| {
            if let ProcessEvent::LinkUp { node, .. } = news {
                Some(node)
            } else {
                None
            }
        });
        assert_eq!(met, sandbox.id(other));
    }
}

/// A configuration file with key and secret, in a temporary folder.
struct NodeFiles {
    directory: PathBuf,
    config: FileConfig,
}

impl NodeFiles {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("tickwire-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let mut provider = crypto::Ring::new();
        let identity = crypto::Identity::generate(&mut provider).unwrap();
        crypto::identity_file::write_new(&directory.join("key.pem"), &identity).unwrap();
        let secret = directory.join("secret");
        fs::write(&secret, "ab".repeat(32)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let text = r#"{"name": "scene", "identity_file": "key.pem", "secret_file": "secret",
            "listen": "127.0.0.1:0", "roles": ["relay"]}"#;
        Self {
            directory,
            config: serde_json::from_str(text).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn run(&self) -> Output {
        let path = self.path("node.json");
        fs::write(&path, serde_json::to_vec(&self.config).unwrap()).unwrap();
        Self::run_file(&path)
    }

    fn run_file(path: &Path) -> Output {
        tickwire_relay()
            .arg(path)
            .env("TICKWIRE_LOG", "off")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for NodeFiles {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Asserts this exit status and one sentence with all `words`.
fn assert_sentence(output: &Output, code: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn errors_are_one_sentence_and_an_exit_status() {
    let mut files = NodeFiles::new("faults");
    let good = files.run();
    assert_eq!(good.status.code(), Some(0), "{good:?}");

    let bad = files.path("bad.json");
    assert_sentence(
        &NodeFiles::run_file(&bad),
        2,
        &["bad.json", "there is no such file"],
    );
    let folder = files.path("");
    assert_sentence(&NodeFiles::run_file(&folder), 2, &["this is a folder"]);
    for (text, word) in [
        ("{", "line 1: the text ends"),
        ("{\"naem\": 1}", "naem"),
        ("[]", "a list"),
    ] {
        fs::write(&bad, text).unwrap();
        assert_sentence(&NodeFiles::run_file(&bad), 2, &["bad.json", word]);
    }
    fs::write(&bad, vec![b' '; (1 << 20) + 1]).unwrap();
    assert_sentence(
        &NodeFiles::run_file(&bad),
        2,
        &["bad.json", "over 1048576 bytes"],
    );

    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap();
    let free = files.config.listen;
    files.config.listen = address;
    let words = [&*address.to_string(), "in use"];
    assert_sentence(&files.run(), 4, &words);
    files.config.listen = free;
    files.config.roles = [FileRole::Entry].into();
    files.config.games = vec![FileGame {
        name: "game".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Single,
        listen: vec![address],
        exits: vec![NodeName(wire::NodeId([1; 32]))],
        server: None,
        entries: None,
        proxy_header: None,
    }];
    assert_sentence(&files.run(), 4, &words);
    files.config.games[0].listen = vec!["127.0.0.1:0".parse().unwrap()];
    files.config.games[0].name = "x".repeat(65);
    assert_sentence(&files.run(), 2, &["64 bytes"]);
    files.config.games[0].name = "game".to_owned();
    files.config.games[0].exits.clear();
    assert_sentence(&files.run(), 2, &["game", "only one of"]);
    files.config.games.clear();
    // A documentation address, RFC 5737, which no host has.
    files.config.upstream_ip = Some("192.0.2.1".parse().unwrap());
    assert_sentence(&files.run(), 4, &["192.0.2.1"]);
}

#[test]
fn a_secret_readable_by_others_is_rejected() {
    let files = NodeFiles::new("secret");
    let secret = files.path("secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    assert_sentence(&files.run(), 2, &["secret", "0644", "chmod 600"]);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    for text in ["ab", &"xy".repeat(32), &"ab".repeat(40)] {
        fs::write(&secret, text).unwrap();
        assert_eq!(files.run().status.code(), Some(2), "{text}");
    }
    fs::remove_file(&secret).unwrap();
    let words = ["secret", "there is no such file", "\"secret_file\" names"];
    assert_sentence(&files.run(), 2, &words);
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    assert_sentence(&files.run(), 2, &["secret", "this is a folder"]);
    let key = files.path("key.pem");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    assert_sentence(&files.run(), 2, &["key.pem", "expected an identity file"]);
}
