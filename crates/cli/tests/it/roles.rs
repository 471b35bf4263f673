//! Errors of the demonstration's processes.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};

use demo::keyring::Keyring;
use demo::plan::{Block, Claim, NodeRole, Plan, PlanOptions};

struct Deployment {
    plan: Plan,
    claim: Claim,
    keyring: Keyring,
}

impl Deployment {
    fn new() -> Self {
        let options = PlanOptions::default();
        let claim = Block::claim().unwrap();
        let plan = Plan::new(options, claim.block());
        let keyring = Keyring::make(&plan).unwrap();
        Self {
            plan,
            claim,
            keyring,
        }
    }

    /// Runs a role to its end, with stdin open.
    fn run(&self, role: &[&str]) -> Output {
        let folder = self.keyring.directory();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .arg("role")
            .args(role)
            .arg(format!("--block={}", self.claim.block()))
            .arg("--directory")
            .arg(folder)
            // The environment of a game server.
            .env("TICKWIRE_IDENTITY", folder.join("game.pem"))
            .env("TICKWIRE_JOIN_FILE", folder.join("join"))
            .env("TICKWIRE_LISTEN", self.plan.server().to_string())
            .env("TICKWIRE_SLOT", "0")
            .env("TICKWIRE_LOG", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let leash = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(leash);
        output
    }

    /// Asserts exit status 1 and one sentence with all `words`.
    fn assert_fails(&self, role: &[&str], words: &[&str]) {
        let output = self.run(role);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{role:?}: {reported}");
        assert_eq!(reported.lines().count(), 1, "{role:?}: {reported}");
        for word in words {
            assert!(reported.contains(word), "{role:?}: {word}: {reported}");
        }
    }
}

#[test]
fn a_port_in_use_ends_each_role_with_one_sentence() {
    let deployment = Deployment::new();
    let Deployment { plan, .. } = &deployment;
    let number_of = |role| plan.hosts_with_role(role).next().unwrap();
    let (entry, relay) = (number_of(NodeRole::Entry), number_of(NodeRole::Relay));
    let (at_entry, at_relay) = (format!("--number={entry}"), format!("--number={relay}"));
    let tcp: [(&[&str], SocketAddr); 2] = [(&["hub"], plan.hub()), (&["matchmaker"], plan.edge())];
    for (role, address) in tcp {
        let _busy = TcpListener::bind(address).unwrap();
        deployment.assert_fails(role, &[&address.to_string(), "in use"]);
    }
    let udp: [(&[&str], SocketAddr); 4] = [
        (&["game-server"], plan.server()),
        (&["relay", &at_relay], plan.relay(relay)),
        (&["relay", &at_entry], plan.entry(entry)),
        (&["relay", &at_entry], plan.beacon_entry(entry)),
    ];
    for (role, address) in udp {
        let _busy = UdpSocket::bind(address).unwrap();
        deployment.assert_fails(role, &[&address.to_string(), "in use"]);
    }
}

#[test]
fn an_invalid_join_file_ends_each_role_with_one_sentence() {
    let deployment = Deployment::new();
    let path = deployment.keyring.directory().join("join");
    let good = fs::read_to_string(&path).unwrap();
    let broken = good.replacen("hub ", "hbu ", 1);
    assert_ne!(good, broken);
    for (text, word) in [
        ("", "the file is empty"),
        ("junk\n", "line "),
        (&broken, "line "),
    ] {
        fs::write(&path, text).unwrap();
        for role in [
            &["hub"][..],
            &["matchmaker"],
            &["game-server"],
            &["players"],
            &["relay", "--number=0"],
        ] {
            deployment.assert_fails(role, &["join file: ", word]);
        }
    }
    fs::remove_file(&path).unwrap();
    deployment.assert_fails(&["hub"], &["join: join file: there is no such file"]);
}
