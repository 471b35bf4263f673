//! The hub as a process: kills, restarts, unusual ports and folders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use daemon::exit::Exit;
use daemon::role::hub::{HubOptions, HubProcess};
use daemon::trust;
use hub::join_file::Grant;
use hub::record::DownReason;
use hub::{MailSeq, NodeEvent, Redacted, Role};
use wire::ClientId;

use crate::http::raw;
use crate::net::{Net, PATIENCE, Program, until};
use crate::node::{NodeRequest, Talker};

const PLAYER: ClientId = ClientId(9);
const MAILS: u32 = 64;

#[test]
fn hub_h10_a_hub_killed_with_mail_in_flight_delivers_each_once() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let sender = Talker::start(&net, "server-0");
    let receiver = Talker::start(&net, "server-1");
    sender.wait_joined();
    receiver.wait_joined();
    for number in 0..MAILS {
        let body = Bytes::copy_from_slice(&number.to_be_bytes());
        sender.tell(NodeRequest::Mail(PLAYER, body));
    }
    // After the first acknowledgement the hub is killed while the other mail is in flight.
    while !matches!(sender.next(), NodeEvent::MailStored(_)) {}
    hub.kill();
    let hub = net.hub_process();
    let mut stored = 1;
    while stored < MAILS {
        if let NodeEvent::MailStored(_) = sender.next() {
            stored += 1;
        }
    }

    receiver.tell(NodeRequest::Claim(PLAYER));
    let mut seen = BTreeMap::new();
    let mut order = Vec::new();
    let mut last = None;
    while seen.len() < MAILS as usize {
        if let NodeEvent::Mail {
            claim, seq, body, ..
        } = receiver.next()
        {
            let number = u32::from_be_bytes(body.as_ref().try_into().unwrap());
            assert_eq!(seen.insert(seq, number), None, "mail {seq:?} came twice");
            order.push(number);
            receiver.tell(NodeRequest::Acknowledge(claim, seq));
            last = Some((claim, seq));
        }
    }
    assert_eq!(order, (0..MAILS).collect::<Vec<_>>());

    // Acknowledged mail is not delivered again.
    let (claim, seq) = last.unwrap();
    acknowledged(&sender, &receiver, (claim, seq));
    hub.kill();
    let _hub = net.hub_process();
    receiver.wait_joined();
    let body = Bytes::from_static(b"last");
    sender.tell(NodeRequest::Mail(PLAYER, body.clone()));
    let next = loop {
        if let NodeEvent::Mail { body, .. } = receiver.next() {
            break body;
        }
    };
    assert_eq!(next, Redacted(body));
}

/// Returns when the hub has stored an acknowledgement: a later mail was delivered.
fn acknowledged(sender: &Talker, receiver: &Talker, last: (hub::ClaimId, MailSeq)) {
    sender.tell(NodeRequest::Mail(PLAYER, Bytes::from_static(b"fence")));
    loop {
        if let NodeEvent::Mail { claim, seq, .. } = receiver.next() {
            assert!(seq > last.1);
            receiver.tell(NodeRequest::Acknowledge(claim, seq));
            // The store is ordered: a later claim is answered after the acknowledgement.
            receiver.tell(NodeRequest::Claim(PLAYER));
            while !matches!(receiver.next(), NodeEvent::Claimed(_)) {}
            // All earlier deliveries precede the acknowledgement.
            assert!(!matches!(
                receiver.soon(Duration::from_millis(100)),
                Some(NodeEvent::Mail { .. })
            ));
            return;
        }
    }
}

#[test]
fn hub_h10_links_are_restored_and_calls_work_again() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let one = Talker::start(&net, "server-0");
    let other = Talker::start(&net, "server-1");
    one.wait_joined();
    other.wait_joined();
    call(&net, &one);
    hub.kill();
    while one.next() != NodeEvent::HubDown {}
    while other.next() != NodeEvent::HubDown {}
    let hub = net.hub_process();
    assert_eq!(hub.said, net.hub_address.to_string());
    one.wait_joined();
    other.wait_joined();
    call(&net, &one);
}

/// Calls the other node until it answers.
fn call(net: &Net, one: &Talker) {
    let to = net.identity("server-1").node_id();
    loop {
        one.tell(NodeRequest::Call(to, Bytes::from_static(b"well met")));
        let result = loop {
            if let NodeEvent::Reply { result, .. } = one.next() {
                break result;
            }
        };
        if let Ok(body) = result {
            assert_eq!(body.0, "well met");
            return;
        }
    }
}

#[test]
fn junk_at_the_hubs_port_closes_only_its_connection() {
    let mut net = Net::new();
    let hub = net.hub();
    let zeros = vec![0; 70_000];
    let junk: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &zeros,
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    ];
    for bytes in junk {
        let answer = raw(net.hub_address, bytes);
        assert!(answer.len() < 100, "an alert at the most");
    }
    // An unlisted node is rejected.
    let outsider = Talker::start(&net, "guest");
    let one = Talker::start(&net, "server-0");
    one.wait_joined();
    assert!(hub.wait(Duration::ZERO).is_ok());
    assert!(!matches!(
        outsider.soon(Duration::from_millis(50)),
        Some(NodeEvent::Joined { .. })
    ));
    hub.shutdown(PATIENCE).unwrap();
}

#[test]
fn unusable_ports_and_folders_are_reported_in_one_sentence() {
    let mut net = Net::new();
    let hub = net.hub();
    let identity = net.identity("hub");
    let other = net.path("other");
    let start = |listen: Option<&str>, data, identity| {
        let mut options = HubOptions::new(identity, net.join_file(), data);
        options.listen = listen.map(|listen| listen.parse().unwrap());
        HubProcess::start(options).map(drop).unwrap_err()
    };
    let data = net.path("data");
    let failure = start(Some("127.0.0.1:0"), &data, &identity);
    assert_eq!(failure.exit, Exit::Refused);
    assert!(
        failure
            .sentence
            .ends_with("another process has this folder"),
        "{failure}"
    );
    let failure = start(None, &other, &identity);
    assert_eq!(failure.exit, Exit::Refused);
    assert!(
        failure.sentence.ends_with("is in use by another program"),
        "{failure}"
    );
    let failure = start(None, &other, &net.identity("server-0"));
    assert_eq!(failure.exit, Exit::Usage);
    assert!(
        failure
            .sentence
            .starts_with("the join file does not list node"),
        "{failure}"
    );
    // The folder's path is a file.
    let file = net.join_path();
    assert!(
        HubProcess::start(HubOptions {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            ..HubOptions::new(&identity, net.join_file(), &file)
        })
        .is_err()
    );
    hub.shutdown(PATIENCE).unwrap();
}

#[test]
fn hub_1_a_disk_failure_ends_the_hub_and_loses_no_acknowledged_mail() {
    const PLAYERS: u64 = 32;
    let mut net = Net::new();
    let hub = net.hub_process();
    let sender = Talker::start(&net, "server-0");
    sender.wait_joined();
    let mut mails = 0_u64;
    let mut send = || {
        let mut body = vec![0; 60_000];
        body[..8].copy_from_slice(&mails.to_be_bytes());
        sender.tell(NodeRequest::Mail(ClientId(mails % PLAYERS), body.into()));
        mails += 1;
    };
    (0..16).for_each(|_| send());
    let mut stored = BTreeSet::new();
    while stored.is_empty() {
        if let NodeEvent::MailStored(seq) = sender.next() {
            stored.insert(seq.0);
        }
    }
    // The volume disappears. Open segments can be written, until the hub notices.
    let (data, away) = (net.path("data"), net.path("away"));
    std::fs::rename(&data, &away).unwrap();
    loop {
        let event = sender.next();
        if let NodeEvent::MailStored(seq) = event {
            assert!(stored.insert(seq.0));
            send();
        } else if matches!(event, NodeEvent::HubDown | NodeEvent::Refused(_)) {
            break;
        }
        assert!(!matches!(event, NodeEvent::MailRefused(..)), "{event:?}");
    }
    assert_eq!(hub.wait_end(), Some(1));
    let log = std::fs::read_to_string(net.path("hub.log")).unwrap();
    let last = log.lines().last().unwrap();
    let path = data.display();
    let causes = [
        "tickwire: the disk of the hub has failed; start the hub again".to_owned(),
        format!("tickwire: {path}: this folder was removed or replaced"),
    ];
    let is_known = causes.iter().any(|cause| last.starts_with(cause));
    assert!(is_known, "{last}");
    // Stops retransmission.
    drop(sender);
    assert!((1..mails).contains(&u64::try_from(stored.len()).unwrap()));

    std::fs::rename(&away, &data).unwrap();
    let _hub = net.hub_process();
    let receiver = Talker::start(&net, "server-1");
    receiver.wait_joined();
    (0..PLAYERS).for_each(|player| receiver.tell(NodeRequest::Claim(ClientId(player))));
    let mut seen = BTreeSet::new();
    // Mail in flight may be stored; acknowledged mail must be.
    while !stored.is_subset(&seen) {
        if let NodeEvent::Mail {
            claim, seq, body, ..
        } = receiver.next()
        {
            // A node numbers its mail from 1.
            let number = u64::from_be_bytes(*body.first_chunk().unwrap()) + 1;
            assert!(seen.insert(number), "mail {number} came twice");
            receiver.tell(NodeRequest::Acknowledge(claim, seq));
        }
    }
    assert!(seen.iter().all(|number| *number <= mails));
}

#[test]
fn h13_sigterm_notifies_nodes_keeps_mail_and_ends_the_hub_with_0() {
    let mut net = Net::new();
    for signal in ["-TERM", "-INT"] {
        let hub = net.hub_process();
        let sender = Talker::start(&net, "server-0");
        sender.wait_joined();
        sender.tell(NodeRequest::Mail(PLAYER, Bytes::from_static(b"kept")));
        while !matches!(sender.next(), NodeEvent::MailStored(_)) {}
        hub.signal(signal);
        while sender.next() != NodeEvent::Refused(DownReason::Draining) {}
        assert_eq!(hub.wait_end(), Some(0), "{signal}");
    }
    let log = std::fs::read_to_string(net.path("hub.log")).unwrap();
    for line in ["shutting down", "all accepted mail is on disk"] {
        assert_eq!(log.matches(line).count(), 2, "{log}");
    }
    let _hub = net.hub_process();
    let receiver = Talker::start(&net, "server-1");
    receiver.wait_joined();
    receiver.tell(NodeRequest::Claim(PLAYER));
    let mut mails = 0;
    while mails < 2 {
        if let NodeEvent::Mail { body, .. } = receiver.next() {
            assert_eq!(body, Redacted(Bytes::from_static(b"kept")));
            mails += 1;
        }
    }
}

#[test]
fn h15_sighup_admits_and_removes_nodes_by_the_join_file() {
    let mut net = Net::new();
    let mut changed = net.join_file();
    let hub = net.hub_process();
    let server = Talker::start(&net, "server-0");
    server.wait_joined();
    let guest = Talker::start(&net, "guest");

    // A file that does not parse changes nothing.
    std::fs::write(net.join_path(), "neither this nor that").unwrap();
    hub.signal("-HUP");
    until("the invalid file is reported", || {
        let log = std::fs::read_to_string(net.path("hub.log")).unwrap();
        log.contains("the join file is not reloaded").then_some(())
    });

    let gone = net.identity("server-0").node_id();
    changed.grants.retain(|grant| grant.node != gone);
    let new = net.identity("guest").node_id();
    changed.grants.push(Grant::new(Role::GameNode, new));
    std::fs::remove_file(net.join_path()).unwrap();
    trust::write_new_join_file(&net.join_path(), &changed).unwrap();
    hub.signal("-HUP");
    guest.wait_joined();
    while server.next() != NodeEvent::Refused(DownReason::NotListed) {}
    hub.kill();
}

#[test]
fn a_hub_whose_folder_is_removed_ends_and_names_it() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let log = || std::fs::read_to_string(net.path("hub.log")).unwrap();
    until("the hub warns of the new store", || {
        log().contains("a new, empty store was made").then_some(())
    });
    std::fs::remove_dir_all(net.path("data")).unwrap();
    assert_eq!(hub.wait_end(), Some(1));
    assert!(log().contains("was removed or replaced"), "{}", log());
}

#[test]
fn h15_sighup_reads_the_limits_again_and_a_wrong_file_changes_nothing() {
    let mut net = Net::new();
    let limits = net.path("limits");
    std::fs::write(&limits, "node_players_max 1\n").unwrap();
    net.free_hub_port();
    let mut command = net.hub_command();
    command.arg("--limits").arg(&limits);
    let hub = Program::start(&mut command, &net.path("hub.log"));
    let node = Talker::start(&net, "server-0");
    node.wait_joined();
    let claim = |player| {
        node.tell(NodeRequest::Claim(ClientId(player)));
        loop {
            let event = node.next();
            if matches!(event, NodeEvent::Claimed(_) | NodeEvent::ClaimLost(..)) {
                return matches!(event, NodeEvent::Claimed(_));
            }
        }
    };
    let reload = |text: &str, line: &str| {
        std::fs::write(&limits, text).unwrap();
        hub.signal("-HUP");
        until("the file was read", || {
            let log = std::fs::read_to_string(net.path("hub.log")).unwrap();
            log.contains(line).then_some(())
        });
    };
    assert!(claim(1));
    assert!(!claim(2), "over the limit");
    reload("node_players_max 0\n", "the limits are not reloaded: ");
    assert!(!claim(3), "as before");
    reload("node_players_max 2\n", "the limits were read again");
    assert!(claim(4));
    assert!(!claim(5));
    hub.kill();
}
