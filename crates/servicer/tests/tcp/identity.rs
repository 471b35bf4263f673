//! No peer can impersonate another.

use std::io::{Read, Write};
use std::net::TcpListener;

use crypto::{Identity, Ring};
use servicer::{Admission, DialError, NodeList, TlsIdentity};
use wire::PeerIdentity;

use crate::harness::{Node, Setup, TalkerEvent, identity};
use crate::raw_client::{PROTOCOL, RawIdentity, plain, read_confirmation, read_to_end, signer};

/// The empty record with which the accepting end confirms.
const WELCOME: &[u8] = &[0; 4];

#[test]
fn another_node_at_the_address_is_named_and_refused() {
    let (one, other) = (Node::start(), Node::start());
    let expected = identity().node_id();
    let error = one.dial(other.address, expected).unwrap_err();
    assert_eq!(
        error,
        DialError::WrongNode {
            expected,
            found: other.id
        }
    );
    assert_eq!(
        error.to_string(),
        format!("found node {} where {expected} was expected", other.id)
    );
    assert_eq!(one.handle.counters().failed_identity, 1);
    let counters = other.wait_for(|counters| counters.failed_refused == 1);
    assert_eq!((counters.accepted, counters.opened), (1, 0));
    assert!(other.events.is_empty(), "the machine never hears of it");
}

#[test]
fn a_man_in_the_middle_with_another_key_is_refused() {
    let (one, real) = (Node::start(), Node::start());
    let attacker = RawIdentity::honest();
    let error = one.dial(attacker.serve(WELCOME), real.id).unwrap_err();
    assert_eq!(
        error,
        DialError::WrongNode {
            expected: real.id,
            found: attacker.public.node_id()
        }
    );
}

#[test]
fn a_public_key_without_its_private_key_is_no_proof() {
    // Towards the accepting end.
    let victim = Identity::generate(&mut Ring::new()).unwrap();
    let raw_identity = RawIdentity {
        public: *victim.public_key(),
        ..RawIdentity::honest()
    };
    let one = Node::start();
    let error = one
        .dial(raw_identity.serve(WELCOME), victim.node_id())
        .unwrap_err();
    assert_eq!(error, DialError::Malformed);
    assert_eq!(one.handle.counters().failed_identity, 1);
    // Towards the dialing end, with a key that would be accepted.
    let server = Setup {
        admission: Admission::Only(NodeList::from_iter([victim.node_id()])),
        ..Setup::default()
    }
    .start();
    let mut raw_client = raw_identity.dial(server.address);
    drop(raw_client.write_all(&[0; 4]));
    assert_eq!(raw_client.read(&mut [0; 1]).ok(), None);
    server.wait_for(|counters| counters.failed_identity == 1);
    // With a valid proof, the test's client is accepted.
    let owner = RawIdentity {
        signer: signer(&victim),
        ..raw_identity
    };
    read_confirmation(&mut owner.dial(server.address));
    let peer = PeerIdentity::Node(victim.node_id());
    assert!(matches!(server.next(), TalkerEvent::Opened(_, found) if found == peer));
    assert_eq!(server.handle.counters().opened, 1);
}

#[test]
fn only_listed_nodes_are_admitted() {
    let (friend, raw_client) = (identity(), identity());
    let server = Setup {
        admission: Admission::Only(NodeList::from_iter([friend.node_id()])),
        ..Setup::default()
    }
    .start();
    let dial = |identity: TlsIdentity| {
        let node = Setup {
            identity,
            ..Setup::default()
        }
        .start();
        let result = node.dial(server.address, server.id);
        (node, result)
    };
    let (raw_client, result) = dial(raw_client);
    assert_eq!(result, Err(DialError::Refused));
    assert_eq!(server.next(), TalkerEvent::RawClient(raw_client.id));
    let (friend, result) = dial(friend);
    assert!(result.is_ok());
    assert!(
        matches!(server.next(), TalkerEvent::Opened(_, peer) if peer == PeerIdentity::Node(friend.id))
    );
    let counters = server.wait_for(|counters| counters.failed_identity == 1);
    assert_eq!((counters.accepted, counters.opened), (2, 1));
}

#[test]
fn an_unauthenticated_node_is_refused_if_a_key_is_required() {
    let server = Node::start();
    let anonymous = Setup {
        is_anonymous: true,
        ..Setup::default()
    }
    .start();
    assert_eq!(
        anonymous.dial(server.address, server.id),
        Err(DialError::Refused)
    );
    server.wait_for(|counters| counters.failed_identity == 1);
}

#[test]
fn another_protocol_over_the_same_keys_is_refused() {
    let server = Node::start();
    for protocol in [None, Some(&b"h2"[..])] {
        let raw_identity = RawIdentity {
            protocol,
            ..RawIdentity::honest()
        };
        let mut raw_client = raw_identity.dial(server.address);
        drop(raw_client.write_all(&[0; 4]));
        assert!(read_to_end(raw_client).is_empty());
        let raw_identity = RawIdentity {
            protocol,
            ..RawIdentity::honest()
        };
        let one = Node::start();
        let result = one.dial(raw_identity.serve(WELCOME), raw_identity.public.node_id());
        // A peer with other protocol names rejects ours; one without any is rejected.
        let expected = match protocol {
            Some(_) => DialError::Refused,
            None => DialError::Malformed,
        };
        assert_eq!(result, Err(expected));
    }
    assert_eq!(server.wait_for(|it| it.failed_tls == 2).opened, 0);
    // The cause is the missing name, not the key.
    let raw_identity = RawIdentity::honest();
    assert_eq!(raw_identity.protocol, Some(PROTOCOL));
    read_confirmation(&mut raw_identity.dial(server.address));
}

#[test]
fn a_closed_port_is_reported_at_once() {
    let one = Node::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let result = one.dial(address, identity().node_id());
    assert_eq!(
        result,
        Err(DialError::Unreachable(
            std::io::ErrorKind::ConnectionRefused
        ))
    );
    assert_eq!(one.handle.counters().failed_unreachable, 1);
}

#[test]
fn gonet_h2_an_observer_learns_no_identity_and_can_replay_nothing() {
    // A captured first flight, sent again, gets an answer and nothing more.
    let server = Node::start();
    let hello = crate::raw_client::client_hello(server.address);
    for _ in 0..3 {
        let mut again = plain(server.address);
        again.write_all(&hello).unwrap();
        let mut answer = vec![0; 200];
        again.read_exact(&mut answer).unwrap();
        again.shutdown(std::net::Shutdown::Write).unwrap();
        answer.extend(read_to_end(again));
        let key = server.id.0;
        assert!(!answer.windows(8).any(|window| window == &key[..8]));
    }
    let counters = server.wait_for(|counters| counters.failed_gone == 3);
    assert_eq!(counters.opened, 0);
}
