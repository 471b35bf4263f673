use super::*;
use crate::link_state::{Digest, Network, Profile, ShortId, TableConfig};
use crypto::Identity;
use netsim::provider::SimProvider;
use wire::Seed;

const NETWORK: Network = Network([9; 16]);
const LIAR: NodeId = NodeId([0xee; 32]);

/// A node with one neighbour, which sends arbitrary messages.
struct Harness {
    provider: SimProvider,
    gossip: Gossip<SimProvider>,
}

impl Harness {
    fn new() -> Self {
        let mut provider = SimProvider::new(Seed::from_number(1));
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        let public = *identity.public_key();
        let publisher = Publisher::new(key, public, NETWORK, Profile::default()).unwrap();
        let table = LinkStateTable::new(TableConfig::default(), NETWORK, identity.node_id());
        let generator = Seed::from_number(2).generator(0);
        let gossip = Gossip::new(publisher, table, generator, Instant::ZERO);
        let mut harness = Self { provider, gossip };
        harness.tick(Instant::ZERO);
        harness.gossip.on_up(Instant::ZERO, LIAR);
        harness.drain();
        harness
    }

    fn tick(&mut self, now: Instant) {
        let links = BTreeMap::new();
        let provider = &mut self.provider;
        self.gossip.on_tick(now, None, provider, &links).unwrap();
    }

    fn deliver(&mut self, now: Instant, message: Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let message = (message, bytes.len());
        self.gossip
            .handle_message(now, &self.provider, LIAR, message);
    }

    /// Drains the queue; returns the number of digests and of requests.
    fn drain(&mut self) -> (usize, usize) {
        let (mut digests, mut requests) = (0, 0);
        let mut bytes = Vec::new();
        while self.gossip.poll_message(&mut bytes).is_some() {
            let message = Message::decode(&bytes).unwrap();
            digests += usize::from(matches!(message, Message::Digest(_)));
            requests += usize::from(matches!(message, Message::Request(_)));
            bytes.clear();
        }
        (digests, requests)
    }
}

fn invented() -> Digest {
    Digest::new((1..=1_024_u64).map(|number| (ShortId(number.to_be_bytes()), u64::MAX)))
}

#[test]
fn mesh_a1_no_digest_costs_a_look_through_all_that_is_wanted() {
    let mut harness = Harness::new();
    let looks = harness.gossip.stats().looks;
    harness.deliver(Instant::ZERO, Message::Digest(invented()));
    for _ in 0..20_000 {
        harness.deliver(Instant::ZERO, Message::Digest(Digest::default()));
    }
    assert_eq!(harness.gossip.stats().looks, looks);
    assert_eq!(harness.drain(), (0, 0));
    let now = Instant::from_millis(100);
    harness.tick(now);
    assert_eq!(harness.gossip.stats().looks, looks + 1);
    assert_eq!(harness.drain().1, 1, "it is asked by the timer");
}

#[test]
fn mesh_a1_a_neighbour_gets_at_most_one_digest_a_second() {
    let mut harness = Harness::new();
    let at = |millis: u64| Instant::from_millis(5_000 + millis);
    for _ in 0..1_000 {
        harness.deliver(at(0), Message::Part);
        harness.deliver(at(0), Message::Graft);
    }
    assert_eq!(harness.drain().0, 1);
    for tick in 1..10 {
        harness.deliver(at(tick * 100), Message::Part);
        harness.tick(at(tick * 100));
        harness.deliver(at(tick * 100), Message::Graft);
    }
    assert_eq!(harness.drain().0, 0);
    harness.tick(at(1_000));
    assert_eq!(harness.drain().0, 1, "what was put off is told once");
    harness.tick(at(2_000));
    assert_eq!(harness.drain().0, 0);
}

#[test]
fn mesh_a1_digests_contain_only_records_a_neighbour_may_have() {
    let mut harness = Harness::new();
    let now = Instant::from_millis(5_000);
    let neighbour = harness.gossip.neighbours.get_mut(&LIAR).unwrap();
    while neighbour.may_reply(now, 1_000) {}
    while neighbour.may_reply(now, 0) {}
    harness.deliver(now, Message::Graft);
    assert_eq!(harness.drain().0, 0, "it had all that it may be told");
    harness.tick(now + Duration::from_millis(100));
    assert_eq!(harness.drain().0, 1);
}
