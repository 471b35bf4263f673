//! Repeated `listen` calls: what an endpoint keeps, drops and rejects.

use crypto::{Identity, Secret32};
use netsim::provider::SimProvider;
use udp_proto::{
    CidLen, CloseCode, CloseReason, Config, ConnectError, Credentials, Endpoint, Listen,
    ListenError, Network, ServerIdentity, Target,
};
use wire::{InstanceId, Seed};

use crate::direct::{CLIENT, Line, Party, START, again};
use crate::harness::{APP, INSTANCE, SERVER, address};

fn secret(byte: u8) -> Network {
    Network {
        secret: Secret32::new([byte; 32]),
        previous: None,
    }
}

fn listen(line: &mut Line) -> Result<(), ListenError> {
    let listen = Listen::new(line.keys.identity(), INSTANCE);
    let result = line.server.machine.listen(line.now, listen);
    let key = line.keys.token_key.clone();
    line.server.machine.add_token_key(key);
    result
}

#[test]
fn twp_k7_a_used_token_stays_used_after_listen_is_called_again() {
    let mut line = Line::new(1);
    let credentials = line.token(1);
    let session = line.client.dial(line.now, &line.keys, again(&credentials));
    line.settle();
    // A second call would reset the state; it is rejected, and sessions stay.
    assert_eq!(listen(&mut line), Err(ListenError::AlreadyListening));
    let code = CloseCode::NoError;
    line.client
        .machine
        .close(line.now, session, code, b"")
        .unwrap();
    line.run(1_000);
    line.client.dial(line.now, &line.keys, again(&credentials));
    line.run(11_000);
    assert_eq!(line.server.sessions().len(), 1);
    // After a shutdown the call succeeds, and the token remains used.
    line.server.machine.shutdown(line.now);
    line.run(1_000);
    assert_eq!(listen(&mut line), Ok(()));
    line.client.dial(line.now, &line.keys, credentials);
    line.run(11_000);
    assert_eq!(line.server.sessions().len(), 1);
    assert!(line.server.machine.stats().dropped_token_used >= 2);
    // New clients connect.
    line.join(2);
    assert_eq!(line.server.sessions().len(), 2);
}

#[test]
fn an_endpoint_without_connection_ids_does_not_listen() {
    let mut config = Config::default();
    config.cid_len = CidLen::Zero;
    let seed = Seed::from_number(2);
    let mut machine = Endpoint::new(config, APP, SimProvider::new(seed), START).unwrap();
    let identity = Identity::generate(&mut SimProvider::new(seed)).unwrap();
    assert_eq!(
        machine.listen(START, Listen::new(identity, InstanceId(1))),
        Err(ListenError::NoConnectionIds)
    );
    assert!(machine.public_key().is_none());
}

#[test]
fn the_network_secret_changes_while_it_listens() {
    let mut line = Line::with(3, Config::default(), |listen| {
        listen.with_network(secret(1))
    });
    let identity = Identity::generate(&mut SimProvider::new(Seed::from_number(4))).unwrap();
    let mut node = Party::new(
        CLIENT,
        Config::default(),
        SimProvider::new(Seed::from_number(5)),
    );
    let at_node = Listen::new(identity, InstanceId(7)).with_network(secret(1));
    assert!(
        !node.machine.set_network(Some(secret(1))),
        "it does not listen"
    );
    node.machine.listen(line.now, at_node).unwrap();
    line.client = node;
    let dial = |line: &mut Line| {
        let target = Target {
            addresses: vec![address(SERVER)],
            server: ServerIdentity::Node(line.keys.public().node_id()),
            credentials: Credentials::Peer,
        };
        line.client.machine.connect(line.now, target)
    };
    dial(&mut line).unwrap();
    line.run(500);
    assert_eq!(line.server.sessions().len(), 1);
    // A peer with only the old secret is rejected; open sessions stay.
    assert!(line.server.machine.set_network(Some(secret(2))));
    line.client.machine.set_allowed_nodes(None);
    dial(&mut line).unwrap();
    line.run(2_000);
    assert_eq!(line.server.sessions().len(), 1);
    assert!(line.server.machine.stats().dropped_psk > 0);
    assert!(line.client.machine.set_network(Some(secret(2))));
    dial(&mut line).unwrap();
    line.run(500);
    assert_eq!(line.server.sessions().len(), 2);
    // The same node dialled twice: the newer session stays.
    assert_eq!(
        line.server.closes(),
        [CloseReason::Local(CloseCode::Replaced)]
    );
    assert!(line.server.machine.set_network(None) && line.client.machine.set_network(None));
    assert_eq!(dial(&mut line), Err(ConnectError::NoIdentity));
}

/// In a full batch, HELLOs may wait, but not packets of sessions; a driver asks for each datagram.
#[test]
fn only_a_hello_may_be_deferred() {
    let line = Line::new(99);
    let may_wait = |first: u8, len: usize| {
        let mut datagram = vec![0; len];
        datagram[0] = first;
        wire::Machine::may_wait(&line.server.machine, &datagram)
    };
    for first in 0..=u8::MAX {
        assert_eq!(may_wait(first, 1_200), first == 0xC1);
    }
    assert!(!may_wait(0xC1, 1_199) && !may_wait(0xC1, 1_201));
}
