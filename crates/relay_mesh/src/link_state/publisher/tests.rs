use super::*;
use crate::cost::{Cost, LossCode};
use crate::link_state::Roles;
use crypto::Identity;
use netsim::provider::SimProvider;
use wire::Seed;

struct World {
    provider: SimProvider,
    publisher: Publisher<SimProvider>,
    links: BTreeMap<NodeId, LinkReport>,
}

impl World {
    fn new() -> Self {
        let mut provider = SimProvider::new(Seed::from_number(1));
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        let profile = Profile::default();
        let public = *identity.public_key();
        let publisher = Publisher::new(key, public, Network([1; 16]), profile).unwrap();
        let mut world = Self {
            provider,
            publisher,
            links: BTreeMap::new(),
        };
        world.measure(1, 50, 0);
        world
    }

    fn measure(&mut self, node: u8, millis: u16, loss: u8) {
        let report = LinkReport {
            delay: Cost::from_millis(millis),
            loss: LossCode(loss),
        };
        self.links.insert(NodeId([node; 32]), report);
    }

    /// Returns whether a node record and a link record went out.
    fn update(&mut self, millis: u64) -> (bool, bool) {
        let now = Instant::from_millis(millis);
        let publication = self
            .publisher
            .update(now, None, &mut self.provider, &self.links)
            .unwrap();
        (publication.node.is_some(), publication.links.is_some())
    }
}

const NOTHING: (bool, bool) = (false, false);
const LINKS: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

#[test]
fn says_what_changed_and_no_more_often_than_it_may() {
    let mut world = World::new();
    assert_eq!(world.update(0), BOTH);
    assert_eq!(world.update(29_999), NOTHING);
    assert_eq!(world.update(30_000), LINKS, "each 30 s");
    world.measure(1, 52, 0);
    assert_eq!(world.update(32_000), NOTHING, "2 ms of 50 are noise");
    world.measure(1, 53, 0);
    assert_eq!(world.update(32_000), LINKS);
    world.measure(1, 80, 0);
    assert_eq!(world.update(32_999), NOTHING, "once a second");
    assert_eq!(world.update(33_000), LINKS);
    world.measure(1, 80, 6);
    assert_eq!(world.update(34_000), LINKS, "0.6 % of loss");
    world.links.insert(NodeId([1; 32]), LinkReport::DOWN);
    assert_eq!(world.update(34_199), NOTHING);
    assert_eq!(world.update(34_200), LINKS, "down is said within 200 ms");
    world.measure(2, 9, 0);
    assert_eq!(world.update(34_400), BOTH, "a new neighbour");
    assert_eq!(world.update(64_400), LINKS);
    world.links.remove(&NodeId([2; 32]));
    assert_eq!(world.update(64_600), BOTH, "one less");
    for tick in 0..10 {
        world.update(64_600 + tick * 30_000);
    }
    assert_eq!(world.update(64_600 + 300_000), BOTH, "each 5 min");
}

#[test]
fn leaving_and_a_new_profile_are_said_at_once() {
    let mut world = World::new();
    world.update(0);
    world.publisher.leave();
    let now = Instant::from_millis(1);
    let publication = world
        .publisher
        .update(now, None, &mut world.provider, &world.links)
        .unwrap();
    let links = LinkRecord::decode(&publication.links.unwrap()).unwrap();
    assert!(links.is_leaving);
    assert_eq!(world.update(2), NOTHING);
    let mut profile = Profile {
        roles: Roles::RELAY,
        ..Profile::default()
    };
    world.publisher.set_profile(profile.clone()).unwrap();
    assert_eq!(world.update(3), BOTH);
    assert_eq!(world.publisher.set_profile(profile.clone()), Ok(()));
    assert_eq!(world.update(4), NOTHING, "it is the same");
    profile.name = "no spaces".to_owned();
    assert_eq!(world.publisher.set_profile(profile), Err(InvalidProfile));
}

#[test]
fn versions_rise_with_the_clock_and_without_it() {
    let mut world = World::new();
    let mut version = |unix: Option<u64>| {
        world
            .publisher
            .next_version(unix.map(UnixTime::from_millis))
    };
    assert_eq!(version(None), 1);
    assert_eq!(version(Some(1_000)), 1_000);
    assert_eq!(version(Some(500)), 1_001, "the clock went back");
    assert_eq!(version(Some(u64::MAX)), 1_002, "and broke");
    assert_eq!(version(None), 1_003);
}

#[test]
fn sixty_four_neighbours_are_said_and_no_more() {
    let mut world = World::new();
    for node in 0..100 {
        world.measure(node, 5, 0);
    }
    let publication = world
        .publisher
        .update(Instant::ZERO, None, &mut world.provider, &world.links)
        .unwrap();
    let node = NodeRecord::decode(&publication.node.unwrap()).unwrap();
    let links = LinkRecord::decode(&publication.links.unwrap()).unwrap();
    assert_eq!(node.neighbours.len(), NEIGHBOURS_MAX);
    assert_eq!(links.reports.len(), NEIGHBOURS_MAX);
    assert_eq!(world.update(1_500), NOTHING, "the cut is not a change");
}
