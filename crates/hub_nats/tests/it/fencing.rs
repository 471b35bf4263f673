//! A hub that was stopped and continued after another took over writes nothing.

use std::path::Path;
use std::thread;
use std::time::Duration;

use hub::StoreError;

use crate::harness::{NatsBackend, Server, append_op, limits};
use crate::kill::Writer;

#[test]
#[ignore = "needs nats-server"]
fn hub_9_a_hub_that_continues_after_a_take_over_writes_nothing() {
    let server = Server::start("");
    let config = server.config();
    let mut writer = Writer::start(&config);
    let before = writer.read_acked(5);
    writer.signal("-STOP");
    // Its lease ends, since it does not renew it.
    let mut successor = NatsBackend::open(&config, limits());
    let epoch = successor.join(2);
    let stored = successor.read(1);
    assert!(stored.len() >= usize::try_from(before).unwrap());
    for seq in 1..=5 {
        let op = append_op(epoch, seq, 1, b"of the successor");
        assert!(successor.run(op).is_ok());
    }
    writer.signal("-CONT");
    assert!(writer.read_end(), "its log has failed");
    let mut expected = stored;
    expected.extend((1..=5).map(|_| b"of the successor".to_vec()));
    assert_eq!(successor.read(1), expected);
    drop(successor);
    let mut again = NatsBackend::open(&config, limits());
    assert_eq!(again.read(1), expected, "nor after another start");
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_a_standby_takes_over_when_the_lease_is_returned() {
    let server = Server::start("");
    let config = server.config();
    let mut first = NatsBackend::open(&config, limits());
    let epoch = first.join(1);
    assert!(first.run(append_op(epoch, 1, 1, b"kept")).is_ok());
    let standby = thread::spawn(move || NatsBackend::open(&config, limits()).read(1));
    thread::sleep(Duration::from_millis(500));
    assert!(!standby.is_finished(), "two hubs hold one log");
    drop(first);
    assert_eq!(standby.join().unwrap(), [b"kept"]);
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_a_server_that_has_lost_messages_stops_the_hub() {
    let mut server = Server::start("");
    let config = server.config();
    let mut backend = NatsBackend::open(&config, limits());
    let epoch = backend.join(1);
    let (store, copy) = (server.folder().join("store"), server.folder().join("copy"));
    server.kill();
    copy_folder(&store, &copy);
    server.restart();
    assert!(backend.run(append_op(epoch, 1, 1, b"lost")).is_ok());
    server.kill();
    // As a loss of power before the server's next sync.
    std::fs::remove_dir_all(&store).unwrap();
    copy_folder(&copy, &store);
    server.restart();
    let outcome = backend.run(append_op(epoch, 2, 1, b"refused"));
    assert_eq!(outcome, Err(StoreError::Failed));
    let reason = backend.watch.lost().unwrap();
    assert!(reason.contains("has lost 1 messages"), "{reason}");
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
