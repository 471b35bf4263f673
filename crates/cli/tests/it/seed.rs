//! Nodes that start from `PureGamer`'s `config.json`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use crypto::{Identity, Ring};
use daemon::relay::{NodeName, ProcessEvent};
use serde_json::{Value, json};

use crate::mesh_node::tickwire_relay;

/// A node's temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tickwire-seed-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, file: &Value) -> PathBuf {
        let path = self.0.join("config.json");
        fs::write(&path, file.to_string()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A node, killed at the end of the test.
struct Running {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    _leash: ChildStdin,
}

impl Running {
    fn start(config: &Path) -> Self {
        use std::io::BufRead;

        let mut command = tickwire_relay();
        let command = command
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let leash = child.stdin.take().unwrap();
        Self {
            child,
            lines: output.lines(),
            _leash: leash,
        }
    }

    fn news(&mut self) -> ProcessEvent {
        let line = self.lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ready(&mut self) -> (NodeName, SocketAddr) {
        let news = self.news();
        let ProcessEvent::Ready { node, address } = news else {
            panic!("{news:?}");
        };
        (node, address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn config(key: &str, bootstrap: &[String]) -> Value {
    json!({
        "super_admin_pub_key": key,
        "config_path": "game.json",
        "data_path": "data",
        "bootstrap_nodes": bootstrap,
        "port": 0,
    })
}

#[test]
fn pg1_nodes_start_from_puregamers_file_and_find_each_other() {
    let admin = Identity::generate(&mut Ring::new()).unwrap();
    let key = admin.public_key().to_pem().unwrap();
    let (first, second) = (Folder::new("first"), Folder::new("second"));
    let path = first.write(&config(&key, &[]));
    let mut one = Running::start(&path);
    let (id, address) = one.ready();
    let text = String::from(id);
    let known = format!(
        "/ip4/{}/udp/{}/quic-v1/p2p/{text}",
        address.ip(),
        address.port()
    );
    let mut two = Running::start(&second.write(&config(&key, &[known])));
    let (other, _) = two.ready();
    for (node, met) in [(&mut one, other), (&mut two, id)] {
        let up = node.news();
        assert!(
            matches!(up, ProcessEvent::LinkUp { node, .. } if node == met),
            "{up:?}"
        );
    }
    for name in ["secret", "node.pem"] {
        let file = first.0.join("data").join(name);
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    // After a restart the node has the same id and secret.
    drop(one);
    fs::write(first.0.join("data/secret"), "ab".repeat(32)).unwrap();
    assert_eq!(Running::start(&path).ready().0, id);
    let secret = fs::read_to_string(first.0.join("data/secret")).unwrap();
    assert_eq!(secret, "ab".repeat(32));
}

#[test]
fn pg1_an_invalid_puregamer_file_is_reported_in_one_sentence() {
    let admin = Identity::generate(&mut Ring::new()).unwrap();
    let key = admin.public_key().to_pem().unwrap();
    let folder = Folder::new("faults");
    let foreign = "/ip4/192.0.2.1/udp/4001/quic-v1/p2p/12D3KooWtest".to_owned();
    let mut odd = config(&key, &[]);
    odd["colour"] = json!("blue");
    for (file, words) in [
        (config("no key", &[]), "super_admin_pub_key: "),
        (config(&key, &["here".to_owned()]), "\"here\" is no address"),
        (config(&key, &[foreign]), "named as by libp2p"),
        (odd, "unknown field \"colour\""),
    ] {
        let path = folder.write(&file);
        let output = tickwire_relay()
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(words), "{said}");
    }
}
