//! Attacks by a holder of the network secret with another node's identity.

use core::time::Duration;

use crypto::{Identity, Provider, Secret32};
use netsim::provider::{Counting, Counts, SimProvider};
use udp_proto::{Config, Credentials, Event, Network, Proof};
use wire::{NodeId, Seed};

use crate::direct::{CLIENT, Party, START};
use crate::harness::{Keys, address};
use crate::rogue::{Rogue, RogueSession, confirm};

struct Scenario {
    server: Party<Counting<SimProvider>>,
    counts: Counts,
    session: RogueSession,
    accepter: NodeId,
    own: Identity,
    /// Plaintexts of the server's answers.
    incoming: Vec<Vec<u8>>,
}

impl Scenario {
    /// Runs the handshake up to the ACCEPT, as a node.
    fn new(number: u64) -> Self {
        let seed = Seed::from_number(number);
        let (keys, counts) = (Keys::new(seed), Counts::default());
        let provider = Counting::new(SimProvider::new(seed), &counts);
        let mut server = Party::server(Config::default(), &keys, provider, |listen| {
            listen.with_network(Network {
                secret: Secret32::new([7; 32]),
                previous: Some(Secret32::new([6; 32])),
            })
        });
        let mut rogue = Rogue::new(number, &Credentials::Open);
        // The previous network secret is valid, too.
        rogue.psk = Some(Secret32::new([6; 32]));
        rogue.sign();
        for _ in 0..2 {
            server.take(START, address(CLIENT), &rogue.hello);
            let answer = server.drain(START).remove(0).bytes;
            if answer[0] == 0xC2 {
                rogue.follow(&answer);
                continue;
            }
            assert_eq!(answer.len(), 276);
            let session = rogue.accept(&answer);
            return Self {
                server,
                counts,
                session,
                accepter: keys.public().node_id(),
                own: Identity::generate(&mut rogue.provider).unwrap(),
                incoming: Vec::new(),
            };
        }
        panic!("no ACCEPT");
    }

    /// IDENTITY of `claimed`, signed with our own key over `confirm`.
    fn identity(&self, claimed: &Identity, confirm: &[u8]) -> Vec<u8> {
        let mut message = b"tw1 peer identity".to_vec();
        message.extend_from_slice(&self.session.th1);
        message.extend_from_slice(&claimed.node_id().0);
        message.extend_from_slice(&self.accepter.0);
        message.extend_from_slice(&confirm[1..]);
        let mut provider = SimProvider::new(Seed::from_number(5));
        let key = provider.signing_key(&self.own).unwrap();
        let signature = provider.sign(&key, &message).unwrap();
        let mut frame = vec![0x0A];
        frame.extend_from_slice(&claimed.public_key().0);
        frame.extend_from_slice(&signature);
        frame
    }

    /// Sends CONFIRM with this IDENTITY behind it.
    fn send_plaintext(&mut self, confirm: &[u8], identity: &[u8]) {
        let packet = self.session.packet(&[confirm, identity].concat());
        self.server.take(START, address(CLIENT), &packet);
        for sent in self.server.drain(START) {
            self.incoming.push(self.session.open(&sent.bytes).unwrap());
        }
    }
}

#[test]
fn an_identity_built_from_the_specification_is_accepted() {
    let mut scenario = Scenario::new(1);
    let confirm = confirm(&Config::default());
    let identity = scenario.identity(&scenario.own, &confirm);
    scenario.send_plaintext(&confirm, &identity);
    let Some(Event::Connected { peer, .. }) = scenario.server.events.first() else {
        panic!("connected");
    };
    assert_eq!(peer.proof, Proof::Node(scenario.own.node_id()));
}

#[test]
fn twp_k4_a_false_identity_is_verified_once_and_rejected() {
    let confirm = confirm(&Config::default());
    let other = Identity::generate(&mut SimProvider::new(Seed::from_number(6))).unwrap();
    let mut scenario = Scenario::new(2);
    let stolen = scenario.identity(&other, &confirm);
    let mut altered = confirm.clone();
    altered[8] ^= 1;
    let before = scenario.counts.now();
    // Another node's key, followed by a valid one: each slot gets only one verification.
    scenario.send_plaintext(&confirm, &stolen);
    let own = scenario.identity(&scenario.own, &confirm);
    for _ in 0..5 {
        scenario.send_plaintext(&confirm, &own);
        scenario.send_plaintext(&confirm, &[]);
    }
    assert_eq!((scenario.counts.now() - before).verify, 1);
    assert!(scenario.server.events.is_empty());
    // The client gets the reason at once and holds no slot.
    assert!(
        matches!(scenario.incoming[0][..], [0x04, 0, 21, ..]),
        "{:?}",
        scenario.incoming
    );
    scenario.server.wake(START + Duration::from_secs(2));
    assert_eq!(scenario.server.machine.session_count(), 0);

    // The signature covers the parameters of CONFIRM.
    let mut scenario = Scenario::new(3);
    let own = scenario.identity(&scenario.own, &confirm);
    scenario.send_plaintext(&altered, &own);
    assert!(scenario.server.events.is_empty());

    // An IDENTITY of another handshake is invalid here.
    let mut scenario = Scenario::new(4);
    let earlier = Scenario::new(5);
    scenario.own = Identity::from_pem(&earlier.own.to_pem()).unwrap();
    let replayed = earlier.identity(&earlier.own, &confirm);
    scenario.send_plaintext(&confirm, &replayed);
    assert!(scenario.server.events.is_empty());
}
