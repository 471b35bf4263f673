//! Nodes that a signal stops.

use std::process::Command;
use std::time::Duration;

use daemon::relay::ProcessEvent;
use daemon::relay::sandbox::NodeProcess;
use serde_json::Value;

use super::{EXIT, RELAY, Testbed, in_force, text};
use crate::mesh_node::PATIENCE;

/// `tickwire relay` as a service manager runs it.
fn service() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    command.args(["relay", "--config"]);
    command
}

/// Sends SIGTERM.
fn terminate(node: &NodeProcess) {
    send("-TERM", node);
}

fn send(signal: &str, node: &NodeProcess) {
    let status = Command::new("kill")
        .args([signal, &node.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

fn left(node: &NodeProcess) -> (u32, u32) {
    node.wait_for(PATIENCE, |news| {
        if let ProcessEvent::Draining { flows, labels } = news {
            Some((flows, labels))
        } else {
            None
        }
    })
    .expect("it says what is left")
}

#[test]
fn pgx12_a_signal_drains_a_node_and_then_ends_it() {
    let testbed = Testbed::new();
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut node = testbed.sandbox.start(RELAY, service()).unwrap();
        node.wait_for(PATIENCE, |news| {
            matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
        });
        // Closing stdin does not stop it.
        assert_eq!(node.stop(Duration::from_secs(1)).unwrap(), None);
        send(signal, &node);
        let status = node.stop(PATIENCE).unwrap().unwrap();
        assert_eq!(status.code(), Some(0), "{signal}");
    }
}

#[test]
fn pgx12_an_ending_exit_waits_for_players_up_to_its_limit() {
    let mut testbed = Testbed::new();
    testbed.sandbox.config_mut(EXIT).unwrap().limits.drain_secs = Some(4);
    let nodes = [0, 1, 2].map(|node| testbed.sandbox.start(node, service()).unwrap());
    nodes[0].wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
    });
    text(&testbed.put(0, &testbed.document(1, &[testbed.echo()]), "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let player = testbed.player();
    assert!(testbed.play(&player, b"before"));
    let [_entry, _relay, mut exit] = nodes;
    terminate(&exit);
    assert_eq!(left(&exit).0, 1, "the player is there");
    assert!(testbed.play(&player, b"meanwhile"), "and goes on");
    let said = text(&testbed.admin(EXIT, "drain", &[]));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["draining"], &said["done"]),
        (&true.into(), &false.into())
    );
    let status = exit.stop(PATIENCE).unwrap().unwrap();
    assert_eq!(status.code(), Some(0), "time is up");
}

#[test]
fn pgx12_a_drain_can_be_cancelled() {
    let testbed = Testbed::new();
    let nodes = testbed.start_all();
    text(&testbed.put(EXIT, &testbed.document(1, &[testbed.echo()]), "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let said = |verb: &str| {
        let said = text(&testbed.admin(EXIT, verb, &[]));
        serde_json::from_str::<Value>(&said).unwrap()
    };
    assert_eq!(said("undrain")["draining"], false, "it did not drain");
    assert_eq!(said("drain")["draining"], true);
    assert_eq!(said("health")["status"], "draining");
    assert!(!testbed.play(&testbed.player(), b"while it drains"));
    assert_eq!(said("undrain")["draining"], false);
    assert_eq!(said("health")["status"], "up");
    assert!(testbed.play(&testbed.player(), b"after it"));
}

#[test]
fn pgx12_a_second_signal_ends_a_node_at_once() {
    let mut testbed = Testbed::new();
    testbed.sandbox.config_mut(EXIT).unwrap().limits.drain_secs = Some(3_600);
    let nodes = [0, 1, 2].map(|node| testbed.sandbox.start(node, service()).unwrap());
    nodes[0].wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::AdminReady { .. }).then_some(())
    });
    text(&testbed.put(0, &testbed.document(1, &[testbed.echo()]), "admin"));
    for node in &nodes {
        in_force(node, 1);
    }
    let player = testbed.player();
    assert!(testbed.play(&player, b"before"));
    let [_entry, _relay, mut exit] = nodes;
    terminate(&exit);
    assert_eq!(left(&exit).0, 1);
    terminate(&exit);
    let status = exit.stop(PATIENCE).unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}
